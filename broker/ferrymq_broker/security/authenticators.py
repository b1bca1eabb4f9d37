"""The authenticators of a broker: all its login methods together."""

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
    """A login was refused. The message is for the log, not for the client, and has no secret.

    `code` is the SASL outcome for the client: `AUTH`, or `SYS_TEMP` if it may try again unchanged.
    """

    def __init__(self, reason: str, code: SaslCode = SaslCode.AUTH) -> None:
        super().__init__(reason)
        self.code = code


class Method(Protocol):
    """A login method, for one or several SASL mechanisms."""

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """Return the mechanisms to offer to this client, the strongest first; none if it cannot log
        in with this method."""
        ...

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """Return the stored SCRAM keys of a user; None if there are none."""
        ...

    async def identify(self, login: Login) -> UserIdentity:
        """Return the identity of a login. Raises `LoginRefusedError`.

        A method that can decide at once does not await. Work of more than a millisecond is done in
        another thread.
        """
        ...


class PasswordMethod(Method, Protocol):
    """A login method with passwords."""

    @property
    def iterations(self) -> int:
        """The usual number of SCRAM iterations, which unknown users get too, so that they look the
        same."""
        ...

    def users(self) -> dict[str, frozenset[str]]:
        """Return the users with a password, by name, and the groups that are stored with them."""
        ...


class Watched(Protocol):
    """A source of a method's data that may change, such as a file."""

    def refresh(self, force: bool = False) -> bool:
        """Read the data again if it has changed, or with `force` always. Return whether it is
        valid."""
        ...

    def close(self) -> None:
        """Release resources."""
        ...


class Authenticators(Authenticator):
    """All login methods of a broker. Several methods for one mechanism are tried in turn.

    `passwords` is the method with passwords. `anonymous` accepts clients without a login,
    `nameless` does so only on this machine. `throttle` refuses logins after too many failures.
    `groups` has the configured groups of users by name, whatever the login method. `watched` are
    the sources that `refresh` reads.
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
        self.throttle: Throttle = Throttle(0) if throttle is None else throttle
        self._groups: Mapping[str, frozenset[str]] = {} if groups is None else groups
        self._watched = watched
        self._tasks: set[asyncio.Task[None]] = set()

    # -- for connections -------------------------------------------------------------------

    def mechanisms(self, transport: ClientTransport) -> list[str]:
        """Return the SASL mechanisms of all methods, in their order; ANONYMOUS comes last."""
        offered = [name for method in self._methods for name in method.mechanisms(transport)]
        if not self.is_required(transport):
            offered.append("ANONYMOUS")
        return list(dict.fromkeys(offered))

    def is_required(self, transport: ClientTransport) -> bool:
        """Return whether a client has to log in."""
        return not (self._anonymous or (self._nameless and transport.loopback))

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """Return the SCRAM keys of the user from the first method that has some; made-up ones for
        an unknown user."""
        for method in self._methods:
            keys = method.scram_keys(mechanism, username)
            if keys is not None:
                return keys
        passwords = self._passwords
        iterations = DEFAULT_ITERATIONS if passwords is None else passwords.iterations
        return ScramKeys.made_up(mechanism, username, iterations)

    def is_held_off(self, transport: ClientTransport, username: str | None) -> bool:
        """Return whether this client has failed so often that its login is refused unchecked."""
        return self.throttle.holds_off(transport, username)

    def login_failed(self, transport: ClientTransport, username: str | None) -> None:
        """Count a login that failed in the SASL exchange, before `authenticate`."""
        self.throttle.failed(transport, username)

    def authenticate(self, login: Login) -> None:
        """Decide a login by the methods that offer its mechanism to this client."""
        transport = login.transport
        if login.mechanism == "ANONYMOUS" and not self.is_required(transport):
            login.decide(UserIdentity(None, mechanism=login.mechanism))
            return
        if self.throttle.holds_off(transport, login.username):
            # A SCRAM proof has been checked already, and a wrong one gets the code AUTH. A right
            # one
            # must get the same code: otherwise an attacker could begin a thousand exchanges before
            # the limit, and test a thousand passwords.
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
            # A login to be tried again later is no failure.
            if error.code is SaslCode.AUTH:
                self.throttle.failed(login.transport, login.username)
            login.decide(None, str(error), error.code)
        except Exception:
            # An unexpected exception refuses the login.
            log.exception("internal error", peer=login.transport.peer)
            login.decide(None, "internal error", SaslCode.SYS)
        else:
            login.decide(self._welcome(identity, login.transport))

    async def _identify(self, methods: Sequence[Method], login: Login) -> UserIdentity:
        """Return the identity from the first method that accepts the login. Raises the error of the
        last method."""
        for method in methods[:-1]:
            try:
                return await method.identify(login)
            except LoginRefusedError:
                continue
        return await methods[-1].identify(login)

    def silent(self, transport: ClientTransport) -> UserIdentity:
        """Return the identity of a client without a login."""
        return UserIdentity(None)

    # -- for the server --------------------------------------------------------------------

    def users(self) -> dict[str, frozenset[str]]:
        """Return the users with a password, by name, and their groups."""
        found = {} if self._passwords is None else self._passwords.users()
        return {name: own | self._groups.get(name, frozenset()) for name, own in found.items()}

    def refresh(self, force: bool = False) -> bool:
        """Read files again that have changed, or with `force` all. Return whether all are valid."""
        good = [watched.refresh(force) for watched in self._watched]
        return all(good)

    def mechanisms_of(self, username: str) -> list[str]:
        """Return the mechanisms that accept the password of a user who has one."""
        passwords = self._passwords
        if passwords is None:
            return []
        proofs = [
            each for each in SCRAM_MECHANISMS if passwords.scram_keys(each, username) is not None
        ]
        return [*proofs, "PLAIN"]

    def retire(self) -> None:
        """End when the last login that is under way has been decided. Others take over."""
        if not self._tasks:
            self.close()
        for task in self._tasks:
            task.add_done_callback(self._close_after)

    def _close_after(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self.close()

    def close(self) -> None:
        """Stop all logins."""
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
