"""Logins without a connection: what a gate says of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pydantic import SecretStr

from ferrymq.engine.events import AuthenticationRequested
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport, Login
from ferrymq_broker.security.authenticators import Authenticators
from ferrymq_broker.security.hashing import make_user
from ferrymq_broker.security.stored_passwords import StoredPasswords
from ferrymq_broker.security.throttle import Throttle
from ferrymq_broker.security.users_file import edited_users, write_users
from ferrymq_types.security import SaslCode

HERE = ClientTransport("here", "127.0.0.1")
AFAR = ClientTransport("afar", "192.0.2.7", loopback=False)
SAFE = ClientTransport("safe", "192.0.2.7", loopback=False, encrypted=True)

# Made once: they are slow.
ALICE = make_user("sésame", ["staff"], 4096)
BOB = make_user("open", (), 4096)


def afar(host: str) -> ClientTransport:
    """A client on another machine, with TLS."""
    return ClientTransport(host, host, loopback=False, encrypted=True)


class Verdict(NamedTuple):
    """What became of a login."""

    identity: UserIdentity | None
    reason: str
    code: SaslCode

    @property
    def user(self) -> str | None:
        """Who was let in."""
        return None if self.identity is None else self.identity.user


async def log_in(
    authenticators: Authenticator,
    username: str | None,
    password: str | None,
    transport: ClientTransport = SAFE,
    mechanism: str = "PLAIN",
) -> Verdict:
    """What the gate says."""
    decision: asyncio.Future[tuple[UserIdentity | None, str]] = asyncio.Future()
    event = AuthenticationRequested(mechanism, username, password, None)
    login = Login(None, event, transport, lambda who, why: decision.set_result((who, why)))
    authenticators.authenticate(login)
    identity, reason = await decision
    assert login.password is None
    return Verdict(identity, reason, login.code)


async def until(condition: Callable[[], bool]) -> None:
    """When it is so, which the event loop brings about."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


class Clock:
    """Time that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Verifier:
    """Verifies no hash, but counts how many there are to verify."""

    def __init__(self, **passwords: str) -> None:
        self.asked: list[tuple[str, str]] = []
        # By the hash.
        self.good: dict[str, str] = {}

    def __call__(self, hashed: str, password: str, /) -> bool:
        self.asked.append((hashed, password))
        return self.good.get(hashed) == password


class StoredUsers:
    """A gate for the users in a file, whose passwords are verified at no cost."""

    def __init__(self, path: Path, *, failed_logins: int = 0, **configured: str) -> None:
        self.path = path
        self.clock = Clock()
        self.verifier = Verifier()
        self.verifier.good = {ALICE.password: "sésame", BOB.password: "open"}
        self.changed: list[set[str]] = []
        write_users(path, {"alice": ALICE, "bob": BOB})
        self.throttle = Throttle(failed_logins, self.clock)
        self.passwords = StoredPasswords(
            path,
            {name: SecretStr(password) for name, password in configured.items()},
            self.throttle,
            self.changed.append,
            now=self.clock,
            verify=self.verifier,
        )
        self.authenticators = Authenticators(
            [self.passwords],
            False,
            passwords=self.passwords,
            throttle=self.throttle,
            watched=[self.passwords],
        )

    def verified(self) -> int:
        """How many hashes there were to verify since the last call."""
        count = len(self.verifier.asked)
        self.verifier.asked.clear()
        return count

    def delete(self, name: str) -> None:
        """Take a user out of the file."""
        with edited_users(self.path) as users:
            del users[name]
