"""Logins with passwords from a file of slow hashes, and from the configuration."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from ferrymq.engine.scram import SCRAM_MECHANISMS, ScramKeys
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.connections.authentication import ClientTransport, Login
from ferrymq_broker.event_log import log
from ferrymq_broker.security.authenticators import LoginRefusedError
from ferrymq_broker.security.hashing import hash_of_nobody, verify
from ferrymq_broker.security.login_queue import LoginQueue, LoginQueueFullError
from ferrymq_broker.security.password_cache import PasswordCache, PasswordDigest
from ferrymq_broker.security.passwords import WRONG, may_say_passwords
from ferrymq_broker.security.throttle import Throttle, network_of
from ferrymq_broker.security.users import ITERATIONS, StoredUser, derive_keys, usual_iterations
from ferrymq_broker.security.users_on_disk import UsersOnDisk
from ferrymq_types.security import SaslCode


class _AbandonedError(Exception):
    """An exception: the client disconnected while it waited."""


class Verify(Protocol):
    """A function that verifies a password against a hash, which takes long."""

    def __call__(self, hashed: str, password: str, /) -> bool:
        """Return whether the password is right."""
        ...


class StoredPasswords:
    """A login method with the passwords of a file, and of the `configured` users, who have
    precedence.

    One slow hash is computed for every name, so that the time does not show which names exist; none
    for a password in the cache. With `in_the_clear`, passwords may come from other machines without
    TLS. `changed` is called with the names of users who were deleted or changed.
    """

    def __init__(
        self,
        path: Path,
        configured: Mapping[str, SecretStr],
        throttle: Throttle,
        changed: Callable[[set[str]], object],
        *,
        in_the_clear: bool = False,
        now: Callable[[], float] = time.monotonic,
        verify: Verify = verify,
        line: LoginQueue | None = None,
    ) -> None:
        self._in_the_clear = in_the_clear
        self._throttle = throttle
        self._changed = changed
        self._verify = verify
        self._queue = LoginQueue() if line is None else line
        self._digest = PasswordDigest()
        self._verified = PasswordCache(now)
        self._pending: dict[tuple[str, bytes], asyncio.Future[bool]] = {}
        self._configured: dict[str, bytes] = {}
        self._configured_keys: dict[str, dict[str, ScramKeys]] = {}
        for name, secret in configured.items():
            password = secret.get_secret_value()
            self._configured[name] = self._digest.of(name, password)
            self._configured_keys[name] = derive_keys(password, ITERATIONS)
        self._disk = UsersOnDisk(path, self._queue.do, self._on_change)
        self._learn()

    # -- for `Authenticators` --------------------------------------------------------------

    @property
    def iterations(self) -> int:
        """The usual number of SCRAM iterations."""
        return self._iterations

    def users(self) -> dict[str, frozenset[str]]:
        """Return the users of the file and the configured ones."""
        self._disk.refresh()
        found = {name: user.groups for name, user in self._disk.users.items()}
        return {**found, **dict.fromkeys(self._configured, frozenset())}

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """Return the SCRAM mechanisms, and PLAIN if the client may send its password."""
        if may_say_passwords(transport, self._in_the_clear):
            return (*SCRAM_MECHANISMS, "PLAIN")
        return SCRAM_MECHANISMS

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """Return the SCRAM keys of a user; None if there is no such user."""
        self._disk.refresh()
        configured = self._configured_keys.get(username)
        if configured is not None:
            return configured.get(mechanism)
        user = self._disk.users.get(username)
        return None if user is None else user.scram.get(mechanism)

    async def identify(self, login: Login) -> UserIdentity:
        """Return the user with a valid password or SCRAM proof."""
        users = await self._disk.up_to_date()
        username = login.username or ""
        user = users.get(username)
        if login.mechanism == "PLAIN":
            user = await self._check(login, username, login.password or "", user)
        elif username not in self._configured and user is None:
            raise LoginRefusedError(WRONG)
        groups = frozenset[str]() if user is None else user.groups
        return UserIdentity(username, groups, mechanism=login.mechanism)

    def refresh(self, force: bool = False) -> bool:
        """Read the file again if it has changed, or with `force` always. Return whether it is
        valid."""
        return self._disk.refresh(force)

    def close(self) -> None:
        """Stop all logins."""
        self._queue.close()

    # -- passwords -------------------------------------------------------------------------

    async def _check(
        self, login: Login, username: str, password: str, user: StoredUser | None
    ) -> StoredUser | None:
        """Check a password. Return the user of the file; None for a configured one. Raises
        `LoginRefusedError`."""
        digest = self._digest.of(username, password)
        configured = self._configured.get(username)
        if self._verified.knows(username, digest):
            return None if configured is not None else user
        hashed = self._nobody if user is None or configured is not None else user.password
        good = await self._verify_queued(login, username, password, digest, hashed)
        if configured is not None:
            good = hmac.compare_digest(digest, configured)
            user = None
        elif user is None:
            good = False
        elif self._disk.users.get(username) != user:
            raise LoginRefusedError(
                "the user was changed while the password was checked", SaslCode.SYS_TEMP
            )
        if not good:
            raise LoginRefusedError(WRONG)
        self._verified.remember(username, digest)
        return user

    async def _verify_queued(
        self, login: Login, username: str, password: str, digest: bytes, hashed: str
    ) -> bool:
        """Return whether the password is right. Equal logins at the same time share one result: a
        client with a thousand connections waits for one hash."""
        key = (username, digest)
        # Awaiting a future that is done does not yield to the event loop, so the task that
        # removes it would never run.
        while (pending := self._pending.get(key)) is not None and not pending.done():
            try:
                return await asyncio.shield(pending)
            except _AbandonedError:
                # The client that waited first has disconnected.
                continue
        work = asyncio.ensure_future(self._verify_slowly(login, username, password, hashed))
        self._pending[key] = work
        try:
            return await work
        except _AbandonedError:
            raise LoginRefusedError("the client has disconnected", SaslCode.SYS_TEMP) from None
        finally:
            if self._pending.get(key) is work:
                del self._pending[key]

    async def _verify_slowly(self, login: Login, username: str, password: str, hashed: str) -> bool:
        transport = login.transport

        def work() -> bool:
            return self._verify(hashed, password)

        origin = "" if transport.loopback else network_of(transport.host)
        try:
            async with self._queue.turn(origin):
                if login.abandoned:
                    raise _AbandonedError
                # Logins before this one in the queue may have failed too often.
                if self._throttle.holds_off(transport, username):
                    raise LoginRefusedError("too many failed logins", SaslCode.SYS_TEMP)
                return await self._queue.do(work)
        except LoginQueueFullError:
            raise LoginRefusedError("too many logins at the same time", SaslCode.SYS_TEMP) from None

    # -- changes ---------------------------------------------------------------------------

    def _on_change(self, names: set[str]) -> None:
        self._verified.forget()
        self._learn()
        self._changed(names - self._configured.keys())

    def _learn(self) -> None:
        """Adapt the data for unknown users to the file, and warn of users that occur twice."""
        users = self._disk.users
        self._iterations = usual_iterations(users)
        self._nobody = hash_of_nobody(user.password for user in users.values())
        twice = sorted(self._configured.keys() & users.keys())
        if twice:
            log.warning(
                "a user is in the configuration and in the file of users: the configuration "
                "counts",
                users=twice[:10],
            )
