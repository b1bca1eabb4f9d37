"""Termini that expire some time after their links (AMQP 1.0 §3.5.6), by a clock of the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ferrymq_broker.clock import Clock
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.server import BrokerServer
from tests.raw.client import Client
from tests.raw.frames import (
    SOURCE,
    attach_frame,
    begin_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    open_frame,
    target,
)
from tests.raw.values import TRUE, composite, data_section, string, symbol, uint
from tests.raw.wire import PATIENCE
from tests.wire.control import ACCEPTED, exchange, named


class LeapingClock(Clock):
    """A clock that a test moves on."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


def subscribe(client: Client, seconds: int) -> int:
    """Attach a subscription that lasts so long after its link; how many messages it has."""
    fields = [string("news"), uint(1), symbol("link-detach"), uint(seconds)]
    where = composite(SOURCE, fields)
    client.send(attach_frame("sub", 1, True, where, target()))
    client.expect("attach", "flow")
    transfers = named(exchange(client, flow_frame(uint(1), uint(9), uint(0))), "transfer")
    if transfers:
        number = transfers[0].field(1)
        assert isinstance(number, int)
        exchange(client, disposition_frame(number, settled=TRUE, state=ACCEPTED))
    return len(transfers)


def leave(client: Client, port: int) -> None:
    """Detach the subscription, and publish a message that it is to keep."""
    exchange(client, detach_frame(1, closed=False))
    with Client(port) as other:
        other.begin().sender("news", name="to").publish([data_section()])
        other.close()


def script(port: int, later: Callable[[int], None]) -> None:
    """Come and go as a subscriber whose subscription lasts a minute after each detach."""
    with Client(port) as client:
        client.open(open_frame(string("subscriber"))).send(begin_frame()).expect("begin")
        assert subscribe(client, 60) == 0
        leave(client, port)
        later(40)
        assert subscribe(client, 60) == 1
        # Attached, it has no end.
        later(1_000)
        exchange(client)
        leave(client, port)
        # In full: of the time before, nothing counts.
        later(40)
        assert subscribe(client, 60) == 1
        leave(client, port)
        later(61)
        assert subscribe(client, 60) == 0
        client.close()


@pytest.mark.spec("3.5.6")
async def test_attaching_again_stops_the_time_and_the_next_detach_begins_it_anew() -> None:
    clock = LeapingClock()
    config = Config(listener=[Listener(url="amqp://127.0.0.1:0")], topic=[{"name": "news"}])  # type: ignore[list-item]

    async with BrokerServer(config, clock) as server:
        loop = asyncio.get_running_loop()

        def later(seconds: int) -> None:
            """Move the clock on, and let the broker do what is due."""

            async def leap() -> None:
                clock.ahead += seconds
                server.broker.handle_timeout(clock.now())

            asyncio.run_coroutine_threadsafe(leap(), loop).result(PATIENCE)

        await asyncio.to_thread(script, server.port, later)
