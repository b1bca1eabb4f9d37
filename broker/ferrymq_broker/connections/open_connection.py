"""How a connection begins: which virtual host it is for, and what it may do there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker import audit
from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.connections.client_limits import EXCEEDED
from ferrymq_broker.connections.memory_cost import count_elements
from ferrymq_broker.connections.token_expiry import watch
from ferrymq_broker.event_log import log
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler
    from ferrymq_types.transport import Open

# So many values in the properties of an open are kept, with those that they hold.
MAX_PROPERTIES: Final = 500
AUTHENTICATED: Final = "ferrymq:authenticated"
"""The property of our open that says whether the client is known as some user."""


def on_open(handler: ConnectionHandler, open: Open) -> None:
    """The client has opened the connection, to one of our virtual hosts or to none."""
    broker = handler.broker
    handler.client.name(open.container_id)
    if count_elements([open.properties]) > MAX_PROPERTIES:
        # They are only there to be shown to who asks for the connection.
        open.properties = None
    identity = handler.client.identity
    if identity is None:
        identity = handler.authenticator.silent(handler.client.transport)
        handler.client.log_in(identity)
    space = broker.space_for(open.hostname)
    opening = handler.connection.settings.opening
    opening.properties = {
        **(opening.properties or {}),
        # So that a client learns whether anybody looked at the password that it gave.
        AUTHENTICATED: handler.client.user is not None and identity.proven,
    }
    handler.connection.open()
    handler.deadline_moved = True
    if space is not None:
        rules = space.rules if broker.guarded else None
        handler.client.enter(space, ConnectionAccess(identity, rules))
        space.publishers[int(handler.client.id)] = handler.client.access
        space.strangers = None if broker.guarded else handler.client.access
    if broker.guarded and not broker.takes_tokens:
        if space is None or not handler.client.access.gives_anything():
            # Who may not use it does not learn whether it is there.
            _refuse(handler, open, "amqp:unauthorized-access", "is not allowed to you")
            return
    if space is None:
        _refuse(handler, open, "amqp:not-found", "does not exist")
        return
    watch(handler)
    if not broker.users.enter(handler.client):
        broker.counters.connections_refused_user += 1
        _refuse_user(handler)
        return
    handler.broker.counters.connections_opened += 1
    log.info(
        "connection opened",
        peer=handler.client.peer,
        container=open.container_id,
        user=handler.client.user,
        host=space.name,
    )


def _refuse_user(handler: ConnectionHandler) -> None:
    limit = handler.broker.users.limit
    log.warning(
        "too many connections of a user",
        peer=handler.client.peer,
        user=handler.client.user,
        limit=limit,
    )
    description = f"the user has {limit} connections, and may have no more"
    handler.connection.close(Error(condition=EXCEEDED, description=description))


def _refuse(handler: ConnectionHandler, open: Open, condition: str, reason: str) -> None:
    audit.host_refused(handler.client.peer, handler.client.user, open.hostname, condition)
    name = repr(open.hostname[:200]) if open.hostname else "for no hostname"
    description = f"the virtual host {name} {reason}"
    handler.connection.close(Error(condition=condition, description=description))
