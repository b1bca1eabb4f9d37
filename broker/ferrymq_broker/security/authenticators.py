"""The gate: every way in that a broker offers, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from ferrymq.engine.scram import DEFAULT_ITERATIONS, SCRAM_MECHANISMS, ScramKeys
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport, Login
from ferrymq_broker.event_log import log
from ferrymq_broker.security.throttle import Throttle
from ferrymq_types.security import SaslCode


class LoginRefusedError(Exception):
    """Somebody is not let in. The message is for the log, never for him, and has no secret.

    `code` is what he is told: `AUTH`, or `SYS_TEMP` for one who may try again as he is.
    """

    def __init__(self, reason: str, code: SaslCode = SaslCode.AUTH) -> None:
        super().__init__(reason)
        self.code = code


class Method(Protocol):
    """One way to prove who one is, for one or several SASL mechanisms."""

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """What is offered to this client, the strongest first; nothing where it leads nowhere."""
        ...

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """The stored keys of a user, for the mechanisms of SCRAM."""
        ...

    async def identify(self, login: Login) -> UserIdentity:
        """Who has logged in so. Raises `LoginRefusedError`.

        A method that can say so at once awaits nothing. What takes longer than a millisecond is
        done in another thread.
        """
        ...


class PasswordMethod(Method, Protocol):
    """A way to prove who one is by a password."""

    @property
    def iterations(self) -> int:
        """How often SCRAM hashes the passwords of most users: unknown ones look the same."""
        ...


class Watched(Protocol):
    """Something a method learns from that may change."""

    def refresh(self, force: bool = False) -> bool:
        """Look whether it has changed, or learn it anew in any case; whether it is good."""
        ...

    def close(self) -> None:
        """It is not needed any more."""
        ...


class Authenticators(Authenticator):
    """Lets in whom one of its `methods` knows, and perhaps whoever says nothing. Several methods
    for one mechanism are asked in turn.

    `passwords` is the one of the methods that knows passwords. `anonymous` lets in whoever says
    nothing, `nameless` does so on this machine only. `throttle` holds off whoever fails too often.
    `groups` are those of users, by their names, that they are in however they have logged in.
    `watched` is what `refresh` looks at.
    """

    def __init__(
        self,
        methods: Sequence[Method],
        anonymous: bool,
        *,
        nameless: bool = False,
        passwords: PasswordMethod | None = None,
        throttle: Throttle | None = None,
        groups: Mapping[str, frozenset[str]] | None = None,
        watched: Sequence[Watched] = (),
    ) -> None:
        self._methods = methods
        self._anonymous = anonymous
        self._nameless = nameless
        self._passwords = passwords
        self.throttle = Throttle(0) if throttle is None else throttle
        self._groups: Mapping[str, frozenset[str]] = {} if groups is None else groups
        self._watched = watched
        self._tasks: set[asyncio.Task[None]] = set()

    # -- for connections -------------------------------------------------------------------

    def mechanisms(self, transport: ClientTransport) -> list[str]:
        """The SASL mechanisms of all methods, in their order; ANONYMOUS comes last."""
        offered = [name for method in self._methods for name in method.mechanisms(transport)]
        if not self.is_required(transport):
            offered.append("ANONYMOUS")
        return list(dict.fromkeys(offered))

    def is_required(self, transport: ClientTransport) -> bool:
        """Whether a client has to say who it is."""
        return not (self._anonymous or (self._nameless and transport.loopback))

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """The keys that one of the methods has of the user; made up for one that nobody knows."""
        for method in self._methods:
            keys = method.scram_keys(mechanism, username)
            if keys is not None:
                return keys
        passwords = self._passwords
        iterations = DEFAULT_ITERATIONS if passwords is None else passwords.iterations
        return ScramKeys.made_up(mechanism, username, iterations)

    def is_held_off(self, transport: ClientTransport, username: str | None) -> bool:
        """Whether there were so many failures that nobody looks at what this client says."""
        return self.throttle.holds_off(transport, username)

    def login_failed(self, transport: ClientTransport, username: str | None) -> None:
        """A client has failed before anybody could be asked who it is."""
        self.throttle.failed(transport, username)

    def authenticate(self, login: Login) -> None:
        """Ask the method that offers the mechanism to this client."""
        transport = login.transport
        if login.mechanism == "ANONYMOUS" and not self.is_required(transport):
            login.decide(UserIdentity(None, mechanism=login.mechanism))
            return
        if self.throttle.holds_off(transport, login.username):
            # A proof of SCRAM has been checked already, and a wrong one is refused for good. If the
            # right one were not, a thousand exchanges that were begun in time would try a thousand
            # passwords.
            proved = login.mechanism in SCRAM_MECHANISMS
            code = SaslCode.AUTH if proved else SaslCode.SYS_TEMP
            login.decide(None, "too many failed logins", code)
            return
        methods = [each for each in self._methods if login.mechanism in each.mechanisms(transport)]
        if not methods:
            login.decide(None, "the mechanism is not offered")
            return
        task = asyncio.ensure_future(self._decide(methods, login))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decide(self, methods: Sequence[Method], login: Login) -> None:
        try:
            identity = await self._identify(methods, login)
        except LoginRefusedError as error:
            # Who was put off until later has not failed.
            if error.code is SaslCode.AUTH:
                self.throttle.failed(login.transport, login.username)
            login.decide(None, str(error), error.code)
        except Exception:
            # A mistake of ours lets nobody in.
            log.exception("internal error", peer=login.transport.peer)
            login.decide(None, "internal error", SaslCode.SYS)
        else:
            login.decide(self._welcome(identity, login.transport))

    async def _identify(self, methods: Sequence[Method], login: Login) -> UserIdentity:
        """Who it is, by the first of the methods that knows him. Raises what the last says."""
        for method in methods[:-1]:
            try:
                return await method.identify(login)
            except LoginRefusedError:
                continue
        return await methods[-1].identify(login)

    def silent(self, transport: ClientTransport) -> UserIdentity:
        """Who a client is that came in without saying who he is."""
        return UserIdentity(None)

    # -- for the server --------------------------------------------------------------------

    def refresh(self, force: bool = False) -> bool:
        """Have files looked at that may have changed, or read again in any case; whether all are
        good."""
        good = [watched.refresh(force) for watched in self._watched]
        return all(good)

    def close(self) -> None:
        """Nobody is let in any more."""
        for task in self._tasks:
            task.cancel()
        for watched in self._watched:
            watched.close()

    # -- inside ----------------------------------------------------------------------------

    def _welcome(self, identity: UserIdentity, transport: ClientTransport) -> UserIdentity:
        user = identity.user
        if user is not None:
            self.throttle.succeeded(transport, user)
            identity.groups |= self._groups.get(user, frozenset())
        return identity
