"""RabbitMQ's management for the blocking client.

with ferrymq.blocking.connect("amqp://guest:guest@localhost") as connection:
    with ferrymq.rabbitmq.blocking.management(connection) as management:
        management.declare_queue("orders", type="quorum")
"""

from __future__ import annotations

from typing import Final

from ferrymq.blocking.connection import Connection
from ferrymq.blocking.face import Face, blocking
from ferrymq.options import Timeout
from ferrymq.rabbitmq import management_client as aio

__all__ = ["Management", "management"]


def management(connection: Connection, *, timeout: Timeout = "default") -> Management:
    """Open the management of the RabbitMQ that a connection leads to; see
    `ferrymq.rabbitmq.management`."""
    opening = aio.management(connection._behind, timeout=timeout)
    return connection._portal.open(opening.opener(), Management, aio.Management.close)


class Management(Face[aio.Management]):
    """Management of a virtual host; the blocking face of `ferrymq.rabbitmq.Management`."""

    @property
    def closed(self) -> bool:
        """Whether the management was closed, or its connection is over."""
        return self._behind.closed

    declare_queue: Final = blocking(aio.Management.declare_queue)
    get_queue: Final = blocking(aio.Management.get_queue)
    delete_queue: Final = blocking(aio.Management.delete_queue)
    purge_queue: Final = blocking(aio.Management.purge_queue)
    declare_exchange: Final = blocking(aio.Management.declare_exchange)
    delete_exchange: Final = blocking(aio.Management.delete_exchange)
    bind: Final = blocking(aio.Management.bind)
    unbind: Final = blocking(aio.Management.unbind)
    bindings: Final = blocking(aio.Management.bindings)
    request: Final = blocking(aio.Management.request)

    def close(self) -> None:
        """End the session of the management; see `ferrymq.rabbitmq.Management.close`."""
        if self._portal.usable:
            self._portal.run(self._behind.close)
