"""The end of the connections of a leader that has lost its lease, or has given it up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ferrymq_broker.event_log import log
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.server.protocol import AmqpProtocol

# Seconds for the clients to answer.
_PATIENCE: Final = 0.5


async def dismiss(
    connections: set[AmqpProtocol], error: Error, emptied: Callable[[], asyncio.Event]
) -> None:
    """Close all connections with an error. What was not written before is not written any more.

    `emptied` returns an event that is set when the last connection has ended.
    """
    if not connections:
        return
    log.info("sending clients away", connections=len(connections), reason=error.description)
    for connection in list(connections):
        connection.dismiss(error)
    try:
        async with asyncio.timeout(_PATIENCE):
            while connections:
                await emptied().wait()
    except TimeoutError:
        for connection in list(connections):
            connection.abort()
