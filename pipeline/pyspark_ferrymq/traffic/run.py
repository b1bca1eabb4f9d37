"""The producer and the workers with a connection of their own, for the commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

import ferrymq
from pyspark_ferrymq.options import BrokerOptions, Values
from pyspark_ferrymq.options.connection import client_arguments
from pyspark_ferrymq.traffic.declare import CAPABILITIES, declare, expect
from pyspark_ferrymq.traffic.ledger import Ledger
from pyspark_ferrymq.traffic.producer import produce
from pyspark_ferrymq.traffic.scenario import Traffic
from pyspark_ferrymq.traffic.workers import Shift, work


async def run_producer(
    options: Mapping[str, str],
    traffic: Traffic,
    create: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Ledger:
    """Send the traffic and return its counts. `options` are those of the data source's connections.

    With `create`, missing nodes are created first; otherwise all must exist. Raises the errors of
    `connecting`, `declare`, `expect` and `produce`.
    """
    async with connecting(options) as connection:
        await (declare if create else expect)(connection, traffic)
        return await produce(connection, traffic, progress)


async def run_workers(
    options: Mapping[str, str],
    address: str,
    workers: int = 2,
    idle: float | None = 1.0,
    progress: Callable[[int], None] | None = None,
) -> Shift:
    """Run workers on a queue and return what they did. Raises as `connecting` and `work` do."""
    async with connecting(options) as connection:
        return await work(connection, address, workers=workers, idle=idle, progress=progress)


def connecting(options: Mapping[str, str]) -> AbstractAsyncContextManager[ferrymq.Connection]:
    """Return an asyncio connection with the options of the data source.

    Raises `AmqpOptionError` for a wrong option, and the client's errors when it is opened.
    """
    url, arguments = client_arguments(BrokerOptions.parse(Values(options)))
    arguments["desired_capabilities"] = CAPABILITIES
    return ferrymq.connect(url, **arguments)
