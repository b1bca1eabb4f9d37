"""The producer and the workers over a connection of their own, as the commands run them."""

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
    """Send the traffic; what was sent. `options` are those of the data source's connections.

    With `create`, nodes that are not there are made first; without, they have to be there. Raises
    what `connecting`, `declare`, `expect` and `produce` raise.
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
    """Deal with what is in the queue; what was done. Raises what `connecting` and `work` raise."""
    async with connecting(options) as connection:
        return await work(connection, address, workers=workers, idle=idle, progress=progress)


def connecting(options: Mapping[str, str]) -> AbstractAsyncContextManager[ferrymq.Connection]:
    """A connection of asyncio by the options of the data source.

    Raises `AmqpOptionError` for an option that is wrong, and when it is opened, what the client
    raises.
    """
    url, arguments = client_arguments(BrokerOptions.parse(Values(options)))
    arguments["desired_capabilities"] = CAPABILITIES
    return ferrymq.connect(url, **arguments)
