"""How a connection begins: who the client is, and which virtual host it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_broker.journal import log
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.engine.events import AuthenticationRequested
    from ferrymq_broker.connections.handler import ConnectionHandler
    from ferrymq_types.transport import Open


def authenticate(handler: ConnectionHandler, event: AuthenticationRequested) -> None:
    """The client has said who it is (AMQP 1.0 §5.3)."""
    if handler.authenticator.check(event.mechanism, event.username, event.password):
        handler.user = event.username
        handler.connection.accept_authentication()
    else:
        handler.broker.counters.logins_refused += 1
        log.warning(
            "login refused", peer=handler.peer, user=event.username, mechanism=event.mechanism
        )
        handler.connection.reject_authentication()


def on_open(handler: ConnectionHandler, open: Open) -> None:
    """The client has opened the connection, to one of our virtual hosts or to none."""
    handler.container_id = open.container_id
    space = handler.broker.space_for(open.hostname)
    handler.connection.open()
    handler.deadline_moved = True
    if space is None:
        log.warning("no such virtual host", peer=handler.peer, hostname=open.hostname)
        description = f"there is no virtual host for {str(open.hostname)[:200]!r}"
        handler.connection.close(Error(condition="amqp:not-found", description=description))
        return
    handler.space = space
    handler.broker.counters.connections_opened += 1
    log.info(
        "connection opened",
        peer=handler.peer,
        container=open.container_id,
        user=handler.user,
        host=space.name,
    )
