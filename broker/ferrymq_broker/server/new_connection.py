"""The parts of a new connection, of which a package makes a handler for its own protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ferrymq_broker.broker import Broker
from ferrymq_broker.config.limits import Limits
from ferrymq_broker.connections.authentication import Authenticator
from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.connections.connected_client import ConnectedClient


class NewConnection(NamedTuple):
    """A connection that is made for a `client`, whose first bytes are those of another protocol
    than AMQP 1.0.

    `write` is called with bytes for the client, and `hang_up` once, when all are written and the
    connection is over. `now` is the time.
    """

    broker: Broker
    client: ConnectedClient
    authenticator: Authenticator
    limits: Limits
    write: Callable[[bytes], object]
    hang_up: Callable[[], object]
    now: float


HandlerFactory = Callable[[NewConnection], ClientHandler]
"""A function that makes the handler of a connection."""
