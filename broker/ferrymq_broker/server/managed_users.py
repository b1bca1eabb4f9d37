"""The users of a broker that runs: those in its file of users can be changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.management.errors import (
    BAD_REQUEST,
    CONFLICT,
    FAILED,
    NOT_FOUND,
    ManagementError,
)
from ferrymq_broker.management.users import KnownUser, SaltedHash, UserChange
from ferrymq_broker.security.users import StoredUser, check_name

if TYPE_CHECKING:
    from ferrymq_broker.config.model import Config
    from ferrymq_broker.security.authenticators import Authenticators


class ManagedUsers:
    """The users with a password. `config` and `authenticators` return those that count. `on_change`
    is called when the file has changed."""

    def __init__(
        self,
        config: Callable[[], Config],
        authenticators: Callable[[], Authenticators],
        on_change: Callable[[], object] | None = None,
    ) -> None:
        self._config = config
        self._authenticators = authenticators
        self._on_change = on_change
        # One change after the other, because each replaces the file.
        self._worker: ThreadPoolExecutor | None = None

    def users(self) -> Mapping[str, frozenset[str]]:
        """Return the users by name, and their groups."""
        return self._authenticators().users()

    def describe(self, name: str, groups: frozenset[str]) -> KnownUser:
        """Return what is known of a user."""
        mechanisms = tuple(self._authenticators().mechanisms_of(name))
        return KnownUser(groups, mechanisms, name in self._config().security.users)

    def begin(self, change: UserChange) -> PendingUserChange:
        """See `UserKeeper.begin`."""
        path = self._config().security.users_file
        if path is None:
            raise ManagementError(
                CONFLICT,
                "the broker has no file for users that are made while it runs: set [security]"
                " users-file",
            )
        if change.new:
            try:
                check_name(change.name)
            except ValueError as error:
                raise ManagementError(BAD_REQUEST, str(error)) from None
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="users")
        work = self._worker.submit(_change, path, change)
        return PendingUserChange(work, self._follow)

    def close(self) -> None:
        """Make no more changes."""
        if self._worker is not None:
            self._worker.shutdown(cancel_futures=True)

    def _follow(self) -> None:
        self._authenticators().refresh(force=True)
        if self._on_change is not None:
            self._on_change()


class PendingUserChange:
    """A change that a thread makes. `refresh` makes logins follow it."""

    def __init__(self, work: Future[None], refresh: Callable[[], object]) -> None:
        self._work = work
        self._refresh = refresh

    @property
    def over(self) -> bool:
        """Whether the thread is done."""
        return self._work.done()

    def finish(self) -> None:
        """Read the file again. Raises `ManagementError` if the change has failed."""
        try:
            self._work.result()
        except (ConfigError, OSError) as error:
            raise ManagementError(FAILED, f"the users stay as they were: {error}") from None
        self._refresh()


def _change(path: Path, change: UserChange) -> None:
    """Change a user in the file. Raises `ManagementError`, `UsersFileError` and `OSError`."""
    # Imported only when needed, because importing argon2 takes a while.
    from ferrymq_broker.security.users_file import edited_users

    # Before the file is locked, because hashing takes a while.
    made = _hashed(change)
    name = change.name
    with edited_users(path) as users:
        there = users.get(name)
        if change.new and there is not None:
            raise ManagementError(CONFLICT, f"there is a user {name[:200]!r} already")
        if not change.new and there is None:
            raise ManagementError(NOT_FOUND, f"there is no user {name[:200]!r}")
        if change.delete:
            del users[name]
            return
        base = made or there
        assert base is not None
        groups = frozenset() if there is None else there.groups
        if change.groups is not None:
            groups = frozenset(change.groups)
        users[name] = StoredUser(base.password, base.scram, groups)


def _hashed(change: UserChange) -> StoredUser | None:
    from ferrymq_broker.security.hashing import make_user, user_of_salted_hash

    secret = change.password
    if secret is None:
        return None
    if isinstance(secret, SaltedHash):
        try:
            return user_of_salted_hash(secret.algorithm, secret.salt, secret.digest)
        except ValueError as error:
            raise ManagementError(BAD_REQUEST, str(error)) from None
    return make_user(secret)
