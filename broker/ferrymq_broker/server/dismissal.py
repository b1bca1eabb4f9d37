"""Ends the connections of users who are not what they were when they logged in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ferrymq_broker.journal import log
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler
    from ferrymq_broker.server.protocol import AmqpProtocol

_ERROR: Final = Error(
    condition="amqp:unauthorized-access", description="the user was changed or deleted"
)


class Dismissal:
    """Called with names of users, closes their `connections`, as soon as nothing else is under way;
    so that whoever is still welcome comes back with the rights he has now."""

    def __init__(self, connections: Callable[[], Iterable[AmqpProtocol]]) -> None:
        self._connections = connections

    def __call__(self, names: set[str]) -> None:
        """These users are gone, or have changed."""
        if names:
            asyncio.get_running_loop().call_soon(self._dismiss, names)

    def _dismiss(self, names: set[str]) -> None:
        for connection in list(self._connections()):
            if _is_meant(connection.handler, names):
                log.warning("connection of a changed user closed", peer=connection.handler.peer)
                connection.close(_ERROR)


def _is_meant(handler: ConnectionHandler, names: set[str]) -> bool:
    identity = handler.identity
    if identity is not None:
        by_password = identity.mechanism == "PLAIN" or identity.mechanism.startswith("SCRAM-")
        return by_password and identity.user in names
    # Or he is about to prove that he knows a password which is no longer the one.
    return handler.login is not None and handler.login.username in names
