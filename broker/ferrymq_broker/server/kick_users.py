"""Closing the connections of users who have changed since they logged in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ferrymq_broker.event_log import log
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.config.security import Security
    from ferrymq_broker.connections.client_handler import ClientHandler
    from ferrymq_broker.security.authenticators import Authenticators
    from ferrymq_broker.server.protocol import AmqpProtocol

_ERROR: Final = Error(
    condition="amqp:unauthorized-access", description="the user was changed or deleted"
)


class UserKick:
    """A function of names of users that closes their connections after the current pass. A user who
    may still log in can connect again, and has the new rights then."""

    def __init__(self, connections: Callable[[], Iterable[AmqpProtocol]]) -> None:
        self._connections = connections

    def __call__(self, names: set[str]) -> None:
        """Close the connections of users who were deleted or changed."""
        meant = [each for each in self._connections() if _is_meant(each.handler, names)]
        if meant:
            asyncio.get_running_loop().call_soon(_dismiss, meant)

    def review(
        self,
        before: Security,
        known: Mapping[str, frozenset[str]],
        after: Security,
        authenticators: Authenticators,
    ) -> None:
        """Close the connections of users who have other groups or another password in another
        configuration, or are not in it, and of clients that it does not let in without a login.
        `known` are the users before, by name, with their groups."""
        users = authenticators.users()
        changed = {name for name in known if users.get(name) != known[name]}
        changed |= {name for name in before.users if after.users.get(name) != before.users[name]}
        if changed:
            self(changed)
        groups, groups_before = after.groups_of(), before.groups_of()
        regrouped = {
            name
            for name in groups.keys() | groups_before.keys()
            if groups.get(name) != groups_before.get(name)
        }
        meant = [
            each
            for each in self._connections()
            if _is_stranger(each.handler, after, authenticators)
            or (
                each.handler.client.identity is not None
                and each.handler.client.identity.user in regrouped
            )
        ]
        if meant:
            asyncio.get_running_loop().call_soon(_dismiss, meant)


def _is_stranger(
    handler: ClientHandler, security: Security, authenticators: Authenticators
) -> bool:
    """Return whether a client is in that would not be let in now."""
    client = handler.client
    identity = client.identity
    if identity is None:
        return False
    if identity.user is None:
        return not identity.key and authenticators.is_required(client.transport)
    return not identity.proven and security.names_somebody


def _dismiss(connections: list[AmqpProtocol]) -> None:
    for connection in connections:
        log.warning("connection of a changed user closed", peer=connection.handler.client.peer)
        connection.close(_ERROR)


def _is_meant(handler: ClientHandler, names: set[str]) -> bool:
    identity = handler.client.identity
    if identity is not None:
        by_password = identity.mechanism == "PLAIN" or identity.mechanism.startswith("SCRAM-")
        return by_password and identity.user in names
    # A login with the old password may be in progress.
    login = handler.client_login().pending
    if login is None or login.username not in names:
        return False
    return login.decided or login.mechanism.startswith("SCRAM-")
