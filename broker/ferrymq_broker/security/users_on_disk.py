"""The users of a file, which may change while the broker runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from ferrymq_broker import audit
from ferrymq_broker.event_log import log
from ferrymq_broker.security.users import StoredUser
from ferrymq_broker.security.users_file import UsersFileError, is_readable_by_others, read_users

# A file of at most so many bytes, with some hundreds of users, is read at once, in milliseconds. A
# larger one is read in a thread, and the old content stays valid meanwhile.
AT_ONCE: Final = 256 * 1024

Users = dict[str, StoredUser]
# A function that runs another one in a thread.
InThread = Callable[[Callable[[], Users]], Awaitable[Users]]
_Signature = tuple[int, int, int, int]


class UsersOnDisk:
    """The users of a file. `users` are those of the last time at which the file could be read.

    `on_change` is called with the names of users who were deleted or changed. Raises
    `UsersFileError` if the file cannot be used at the start.
    """

    def __init__(
        self, path: Path, in_thread: InThread, on_change: Callable[[set[str]], object]
    ) -> None:
        self.path = path
        self._in_thread = in_thread
        self._on_change = on_change
        self._signature = self._sign()
        self.users: Users = read_users(path)
        self._reading: asyncio.Task[None] | None = None
        self._warn()

    def refresh(self, force: bool = False) -> bool:
        """Read the file again if it has changed, or with `force` always. Return whether it is
        valid, as far as known. An invalid file changes nothing, and is logged once."""
        if self._reading is not None and not force:
            return True
        signature = self._sign()
        if signature == self._signature and not force:
            return True
        self._signature = signature
        if not force and signature is not None and signature[1] > AT_ONCE:
            self._reading = asyncio.ensure_future(self._read_slowly())
            return True
        try:
            users = read_users(self.path)
        except UsersFileError as error:
            self._complain(error)
            return False
        self._take(users)
        return True

    async def up_to_date(self) -> Users:
        """Return the users, after a changed file has been read."""
        self.refresh()
        while self._reading is not None:
            await asyncio.shield(self._reading)
        return self.users

    async def _read_slowly(self) -> None:
        try:
            self._take(await self._in_thread(lambda: read_users(self.path)))
        except UsersFileError as error:
            self._complain(error)
        finally:
            self._reading = None

    def _take(self, users: Users) -> None:
        before = self.users
        self.users = users
        log.info("users read again", file=str(self.path), users=len(users))
        audit.reloaded("users")
        self._warn()
        changed = {name for name, user in before.items() if users.get(name) != user}
        if changed or len(users) != len(before):
            self._on_change(changed)

    def _complain(self, error: UsersFileError) -> None:
        log.error("users stay as they were: their file cannot be used", reason=str(error))
        audit.reloaded("users", str(error))

    def _warn(self) -> None:
        if is_readable_by_others(self.path):
            log.warning("others can read the hashes of passwords", file=str(self.path))

    def _sign(self) -> _Signature | None:
        """Return properties of the file that show whether it has changed."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns
