"""A shared journal in memory: a database that several members of a test reach.

`MemoryDatabase` is the database; each member has a `MemorySharedJournal` on it. A call takes
`database.delay` seconds of the event loop and happens at the end of them.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

from ferrymq_broker.replication.errors import JournalUnavailable, LeaseLost, ReplicationError
from ferrymq_broker.replication.shared_journal import (
    Done,
    JournalFigures,
    Lease,
    Member,
    Position,
    SharedBatch,
    SharedJournal,
    SnapshotInfo,
)

T = TypeVar("T")

# Seconds for which a successor is waited for after the end of a lease.
SUCCESSOR_SECONDS = 5.0


class MemorySnapshot:
    """A snapshot, complete when `info` is there."""

    def __init__(self, position: Position) -> None:
        self.position = position
        self.pieces: dict[int, bytes] = {}
        self.info: SnapshotInfo | None = None


class MemoryDatabase:
    """Batches, lease, members and snapshots of one cluster."""

    def __init__(self, time: Callable[[], float], delay: float = 0.0) -> None:
        self.time = time
        self.delay = delay
        self.cluster = str(uuid.UUID(int=1))
        self.batches: dict[int, SharedBatch] = {}
        self.trimmed = 0
        self.term = 0
        self.holder = ""
        self.address = ""
        self.ends = time()
        self.successor = ""
        self.members: dict[str, tuple[Member, float]] = {}
        self.snapshots: dict[int, MemorySnapshot] = {}
        self.watchers: list[Callable[[], None]] = []
        self._last_snapshot = 0

    # -- what a test looks at or does ---------------------------------------------------------

    def last(self) -> Position:
        """The last batch."""
        if not self.batches:
            # A cluster may begin with a snapshot.
            return max((one.position for one in self.complete()), default=Position(0, 0))
        batch = self.batches[max(self.batches)]
        return Position(batch.number, batch.term)

    def lease(self) -> Lease:
        """The lease as it is now."""
        remaining = self.ends - self.time()
        return Lease(self.term, self.holder, self.address, remaining, self.successor)

    def changed(self) -> None:
        """Tell those who watch the lease."""
        for watcher in list(self.watchers):
            watcher()

    # -- steps ---------------------------------------------------------------------------------

    def append(self, term: int, number: int, changes: int, data: bytes) -> None:
        self.require(term)
        there = self.batches.get(number)
        if there is not None and there.term == term:
            raise JournalUnavailable(f"batch {number} is there already")
        if number != self.last().number + 1:
            raise ReplicationError(f"batch {number} follows batch {self.last().number}")
        self.batches[number] = SharedBatch(number, term, changes, data, self.time())

    def require(self, term: int) -> None:
        if term != self.term:
            raise LeaseLost(f"the term is {self.term}, not {term}")

    def confirm(self, term: int, number: int) -> bool:
        self.require(term)
        batch = self.batches.get(number)
        return batch is not None and batch.term == term

    def read(self, after: int, most: int) -> list[SharedBatch]:
        if after < self.trimmed:
            raise ReplicationError(f"batch {after + 1} was trimmed")
        found: list[SharedBatch] = []
        size = 0
        while (batch := self.batches.get(after + 1)) is not None:
            if found and size + len(batch.data) > most:
                break
            found.append(batch)
            size += len(batch.data)
            after += 1
        return found

    def has(self, position: Position) -> bool:
        if position == (0, 0):
            return min(self.batches, default=self.last().number + 1) == 1
        batch = self.batches.get(position.number)
        if batch is not None:
            return batch.term == position.term
        return any(one.position == position for one in self.complete())

    def complete(self) -> list[SnapshotInfo]:
        found = [one.info for one in self.snapshots.values() if one.info is not None]
        return sorted(found, key=lambda info: -info.id)

    def trim(self, before: int) -> int:
        snapshots = self.complete()
        oldest = min((one.position.number for one in snapshots), default=0)
        end = min(before, oldest + 1, self.last().number)
        gone = [number for number in self.batches if number < end]
        for number in gone:
            del self.batches[number]
            self.trimmed = max(self.trimmed, number)
        return len(gone)

    def acquire(self, holder: str, address: str, seconds: float) -> Lease:
        now = self.time()
        free = not self.holder or self.ends <= now
        named = self.successor in ("", holder) or self.ends + SUCCESSOR_SECONDS <= now
        if free and named:
            self.term += 1
            self.holder, self.address, self.successor = holder, address, ""
            self.ends = now + seconds
            self.changed()
            return self.lease()._replace(taken=True)
        return self.lease()

    def renew(self, term: int, seconds: float) -> Lease:
        self.require(term)
        self.ends = self.time() + seconds
        return self.lease()

    def release(self, term: int) -> None:
        if term == self.term:
            self.holder, self.address, self.ends = "", "", self.time()
            self.changed()

    def name_successor(self, name: str) -> Lease:
        self.successor = name
        self.changed()
        return self.lease()

    def fence(self) -> Lease:
        self.term += 1
        self.holder, self.address, self.successor = "", "", ""
        self.ends = self.time()
        self.changed()
        return self.lease()

    def begin_snapshot(self, position: Position) -> int:
        self._last_snapshot += 1
        self.snapshots[self._last_snapshot] = MemorySnapshot(position)
        return self._last_snapshot

    def add_piece(self, id: int, index: int, data: bytes) -> None:
        one = self.snapshots.get(id)
        if one is None or one.info is not None:
            raise ReplicationError(f"piece {index} cannot be added to snapshot {id}")
        one.pieces[index] = data

    def read_piece(self, id: int, index: int) -> bytes:
        one = self.snapshots.get(id)
        if one is None or index not in one.pieces:
            raise ReplicationError(f"snapshot {id} has no piece {index}")
        return one.pieces[index]

    def finish_snapshot(self, id: int, pieces: int, size: int) -> None:
        one = self.snapshots.get(id)
        if one is None or sorted(one.pieces) != list(range(pieces)):
            raise ReplicationError(f"snapshot {id} has not {pieces} pieces")
        if sum(map(len, one.pieces.values())) != size:
            raise ReplicationError(f"snapshot {id} has not {size} bytes")
        if (self.batches or self.complete()) and not self.has(one.position):
            raise ReplicationError(f"the journal does not have batch {one.position.number}")
        one.info = SnapshotInfo(id, one.position, pieces, size, self.time())

    def figures(self) -> JournalFigures:
        first = self.batches[min(self.batches)] if self.batches else None
        begin = Position(0, 0) if first is None else Position(first.number, first.term)
        stored = sum(len(batch.data) for batch in self.batches.values())
        kept = sum(one.size for one in self.complete())
        last = self.last() if self.batches else Position(0, 0)
        return JournalFigures(self.cluster, begin, last, stored, kept, True)


class MemorySharedJournal(SharedJournal):
    """One member's way to the database. While `reachable` is false, every call fails after the
    delay; a call under way then fails too, and may have happened."""

    def __init__(self, database: MemoryDatabase, loop: asyncio.AbstractEventLoop) -> None:
        self.database = database
        self.reachable = True
        self.closed = False
        self._loop = loop
        self._changed: Callable[[], None] = lambda: None
        database.watchers.append(lambda: loop.call_soon(self._tell) and None)

    def _call(self, step: Callable[[], T], done: Done[T]) -> None:
        self._loop.call_later(self.database.delay, self._make, step, done)

    def _make(self, step: Callable[[], T], done: Done[T]) -> None:
        if self.closed:
            return
        result: T | Exception
        if not self.reachable:
            result = JournalUnavailable("the database cannot be reached")
        else:
            try:
                result = step()
            except ReplicationError as error:
                result = error
        done(result)

    def append(
        self, term: int, number: int, changes: int, parts: Sequence[bytes], done: Done[None]
    ) -> None:
        data = b"".join(parts)
        self._call(lambda: self.database.append(term, number, changes, data), done)

    def confirm(self, term: int, number: int, done: Done[bool]) -> None:
        self._call(lambda: self.database.confirm(term, number), done)

    def read(self, after: int, most: int, done: Done[list[SharedBatch]]) -> None:
        self._call(lambda: self.database.read(after, most), done)

    def has(self, position: Position, done: Done[bool]) -> None:
        self._call(lambda: self.database.has(position), done)

    def trim(self, before: int, done: Done[int]) -> None:
        self._call(lambda: self.database.trim(before), done)

    def figures(self, done: Done[JournalFigures]) -> None:
        self._call(self.database.figures, done)

    def observe(self, done: Done[Lease]) -> None:
        self._call(self.database.lease, done)

    def acquire(self, holder: str, address: str, seconds: float, done: Done[Lease]) -> None:
        self._call(lambda: self.database.acquire(holder, address, seconds), done)

    def renew(self, term: int, seconds: float, done: Done[Lease]) -> None:
        self._call(lambda: self.database.renew(term, seconds), done)

    def release(self, term: int, done: Done[None]) -> None:
        self._call(lambda: self.database.release(term), done)

    def name_successor(self, name: str, done: Done[Lease]) -> None:
        self._call(lambda: self.database.name_successor(name), done)

    def fence(self, done: Done[Lease]) -> None:
        self._call(self.database.fence, done)

    def watch(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def _tell(self) -> None:
        if self.reachable and not self.closed:
            self._changed()

    def announce(self, member: Member, done: Done[None]) -> None:
        def step() -> None:
            self.database.members[member.name] = (member, self.database.time())

        self._call(step, done)

    def members(self, done: Done[list[Member]]) -> None:
        def step() -> list[Member]:
            now = self.database.time()
            found = [one._replace(seen=now - at) for one, at in self.database.members.values()]
            return sorted(found)

        self._call(step, done)

    def begin_snapshot(self, position: Position, done: Done[int]) -> None:
        self._call(lambda: self.database.begin_snapshot(position), done)

    def add_piece(self, id: int, index: int, data: bytes, done: Done[None]) -> None:
        self._call(lambda: self.database.add_piece(id, index, data), done)

    def finish_snapshot(self, id: int, pieces: int, size: int, done: Done[None]) -> None:
        self._call(lambda: self.database.finish_snapshot(id, pieces, size), done)

    def snapshots(self, done: Done[list[SnapshotInfo]]) -> None:
        self._call(self.database.complete, done)

    def read_piece(self, id: int, index: int, done: Done[bytes]) -> None:
        self._call(lambda: self.database.read_piece(id, index), done)

    def drop_snapshot(self, id: int, done: Done[None]) -> None:
        def step() -> None:
            self.database.snapshots.pop(id, None)

        self._call(step, done)

    def close(self) -> None:
        self.closed = True
