"""Backups of the stores of all workers.

A virtual host is in one store as a whole, so each store is consistent by itself, and the backup has
the layout of the directory that it is a copy of: the store of worker 0, ``worker-1`` and so on
inside, and the file that says which worker has which virtual host. The store of worker 0 is copied
last. Without its files the directory is no store, so an incomplete backup cannot be used.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ferrymq_broker.management.errors import CONFLICT, ManagementError
from ferrymq_broker.server.workers.peers import Peers, WorkerError
from ferrymq_broker.server.workers.placement import FILE, directory_of
from ferrymq_broker.store.backup_target import BackupTarget
from ferrymq_broker.store.errors import StoreError

if TYPE_CHECKING:
    from ferrymq_broker.server.storage import Storage

_BEGIN: Final = "backup"
_STATE: Final = "backup-state"
_RUNNING: Final = "running"
# Seconds for another worker to answer, and between two looks at what it has copied.
_PATIENCE: Final = 10.0
_PERIOD: Final = 0.05


class SharedStorage:
    """The stores of all workers. `storage` is that of this one, in the directory `path`."""

    def __init__(self, storage: Storage, path: Path, peers: Peers) -> None:
        self._storage = storage
        self._path = path
        self._peers = peers
        self._backup: _Backup | None = None
        self._task: asyncio.Task[None] | None = None
        peers.answerers[_BEGIN] = self._begin
        peers.answerers[_STATE] = self._state

    def describe(self) -> dict[str, object]:
        """Return the figures of the store of this worker, and the state of the last backup of
        all."""
        described = self._storage.describe()
        if self._backup is not None:
            described["backup"] = self._backup.describe()
        return described

    def begin_backup(self, target: str) -> None:
        """Begin to copy all stores to a directory. Raises `ManagementError`."""
        path = self._storage.expect_target(target)
        if self._backup is not None and self._backup.state == _RUNNING:
            raise ManagementError(CONFLICT, f"a backup to {self._backup.target} is in progress")
        try:
            BackupTarget(path).require_free()
        except (StoreError, OSError) as error:
            raise ManagementError(CONFLICT, str(error)) from None
        self._backup = _Backup(self._storage, self._path, path, self._peers)
        self._task = asyncio.ensure_future(self._backup.run())

    # -- for others ----------------------------------------------------------------------

    async def _begin(self, content: bytes) -> bytes:
        """Begin the backup of this store. Return why not; nothing if it has begun."""
        target = Path(json.loads(content))
        if not BackupTarget(target.parent).begun:
            # This worker was away for so long that the other one has given up.
            return b"the backup is over"
        try:
            self._storage.begin_backup(str(target))
        except ManagementError as error:
            return error.description.encode()
        return b""

    async def _state(self, content: bytes) -> bytes:
        return json.dumps(self._storage.backup_state()).encode()


class _Backup:
    """A backup of all stores. Its `state` becomes ``done`` or ``failed``."""

    def __init__(self, storage: Storage, path: Path, target: Path, peers: Peers) -> None:
        self.state = _RUNNING
        self.target = target
        self._reason = ""
        self._storage = storage
        self._path = path
        self._peers = peers
        # The states of the workers, as far as they have begun.
        self._states: dict[int, dict[str, Any]] = {}

    def describe(self) -> dict[str, object]:
        """Return the state, and those of the workers."""
        states = [self._states[number] for number in sorted(self._states)]
        return {
            "state": self.state,
            "target": str(self.target),
            "bytes": sum(state.get("bytes", 0) for state in states),
            "total": sum(state.get("total", 0) for state in states),
            "last-batch": self._states.get(0, {}).get("last-batch", 0),
            "reason": self._reason,
            "workers": [
                {"worker": number, **self._states[number]} for number in sorted(self._states)
            ],
        }

    async def run(self) -> None:
        """Copy all stores."""
        directory = BackupTarget(self.target)
        try:
            await asyncio.to_thread(directory.begin)
            try:
                await self._copy_others()
                await asyncio.to_thread(_copy_file, self._path / FILE, self.target / FILE)
                await self._copy_own()
            except Exception:
                await self._wait_for_others()
                await asyncio.to_thread(directory.abandon)
                raise
        except (WorkerError, StoreError, OSError) as error:
            self._reason = str(error)
            self.state = "failed"
        except ManagementError as error:
            self._reason = error.description
            self.state = "failed"
        else:
            self.state = "done"

    async def _copy_others(self) -> None:
        """Ask the others to copy their stores. Raises `WorkerError`, `StoreError`."""
        numbers = self._peers.numbers
        for number in numbers:
            target = directory_of(self.target, number)
            asked = json.dumps(str(target)).encode()
            reason = await self._peers.ask(number, _BEGIN, asked, _PATIENCE)
            if reason:
                raise StoreError(f"worker {number}: {reason.decode()}")
            self._states[number] = {"state": _RUNNING}
        for number in numbers:
            state = await self._end_of(number)
            if state["state"] == "none":
                raise StoreError(f"worker {number} has ended meanwhile")
            if state["state"] != "done":
                raise StoreError(f"worker {number}: {state['reason']}")

    async def _end_of(self, number: int) -> dict[str, Any]:
        """Return the state of another worker's backup when it has ended. Raises `WorkerError`."""
        while True:
            state = json.loads(await self._peers.ask(number, _STATE, b"", _PATIENCE))
            self._states[number] = state
            if state["state"] != _RUNNING:
                return dict(state)
            await asyncio.sleep(_PERIOD)

    async def _copy_own(self) -> None:
        """Copy the store of this worker. Raises `ManagementError`, `StoreError`."""
        self._storage.begin_backup(str(self.target), begun=True)
        while True:
            state = self._states[0] = self._storage.backup_state()
            if state["state"] == "done":
                return
            if state["state"] != _RUNNING:
                raise StoreError(str(state["reason"]))
            await asyncio.sleep(_PERIOD)

    async def _wait_for_others(self) -> None:
        """Wait until no other worker writes into the directory any more."""
        for number in self._states.keys() - {0}:
            # One that has ended writes nothing.
            with contextlib.suppress(WorkerError):
                await self._end_of(number)


def _copy_file(source: Path, target: Path) -> None:
    """Copy a small file, and sync the copy."""
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
        copy.write(source.read_bytes())
        copy.flush()
        os.fsync(copy.fileno())
