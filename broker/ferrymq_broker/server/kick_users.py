"""Ends the connections of users who are not what they were when they logged in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ferrymq_broker.event_log import log
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler
    from ferrymq_broker.server.protocol import AmqpProtocol

_ERROR: Final = Error(
    condition="amqp:unauthorized-access", description="the user was changed or deleted"
)


class UserKick:
    """Called with names of users, closes their `connections`, as soon as nothing else is under way;
    so that whoever is still welcome comes back with the rights he has now."""

    def __init__(self, connections: Callable[[], Iterable[AmqpProtocol]]) -> None:
        self._connections = connections

    def __call__(self, names: set[str]) -> None:
        """These users are gone, or have changed."""
        meant = [each for each in self._connections() if _is_meant(each.handler, names)]
        if meant:
            asyncio.get_running_loop().call_soon(_dismiss, meant)


def _dismiss(connections: list[AmqpProtocol]) -> None:
    for connection in connections:
        log.warning("connection of a changed user closed", peer=connection.handler.peer)
        connection.close(_ERROR)


def _is_meant(handler: ConnectionHandler, names: set[str]) -> bool:
    identity = handler.identity
    if identity is not None:
        by_password = identity.mechanism == "PLAIN" or identity.mechanism.startswith("SCRAM-")
        return by_password and identity.user in names
    # Or he is about to get in by a password which is no longer the one.
    login = handler.login
    if login is None or login.username not in names:
        return False
    return login.decided or login.mechanism.startswith("SCRAM-")
