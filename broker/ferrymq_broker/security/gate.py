"""The gate: every way in that a broker offers, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ferrymq.engine.scram import ScramKeys
from ferrymq_broker.access.identity import Identity
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport, Login
from ferrymq_broker.journal import log


class LoginRefusedError(Exception):
    """Somebody is not let in. The message is for the log, never for him, and has no secret."""


class Method(Protocol):
    """One way to prove who one is, for one or several SASL mechanisms."""

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """What is offered to this client, the strongest first; nothing where it leads nowhere."""
        ...

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """The stored keys of a user, for the mechanisms of SCRAM."""
        ...

    async def identify(self, login: Login) -> Identity:
        """Who has logged in so. Raises `LoginRefusedError`.

        A method that can say so at once awaits nothing. What takes longer than a millisecond is
        done in another thread.
        """
        ...


class Gate(Authenticator):
    """Lets in whom one of its `methods` knows, and with `anonymous` whoever says nothing."""

    def __init__(self, methods: Sequence[Method], anonymous: bool) -> None:
        self._methods = methods
        self._anonymous = anonymous
        self._tasks: set[asyncio.Task[None]] = set()

    def mechanisms(self, transport: ClientTransport) -> list[str]:
        """The SASL mechanisms of all methods, in their order; ANONYMOUS comes last."""
        offered = [name for method in self._methods for name in method.mechanisms(transport)]
        if self._anonymous:
            offered.append("ANONYMOUS")
        return offered

    def is_required(self, transport: ClientTransport) -> bool:
        """Whether a client has to say who it is."""
        return not self._anonymous

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """The keys that one of the methods has of the user."""
        for method in self._methods:
            keys = method.scram_keys(mechanism, username)
            if keys is not None:
                return keys
        return None

    def authenticate(self, login: Login) -> None:
        """Ask the method that offers the mechanism to this client."""
        if login.mechanism == "ANONYMOUS" and self._anonymous:
            login.decide(Identity(None, mechanism=login.mechanism))
            return
        for method in self._methods:
            if login.mechanism in method.mechanisms(login.transport):
                task = asyncio.ensure_future(_decide(method, login))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return
        login.decide(None, "the mechanism is not offered")


async def _decide(method: Method, login: Login) -> None:
    try:
        identity = await method.identify(login)
    except LoginRefusedError as error:
        login.decide(None, str(error))
    except Exception:
        # A mistake of ours lets nobody in.
        log.exception("internal error", peer=login.transport.peer)
        login.decide(None, "internal error")
    else:
        login.decide(identity)
