"""A wall clock that is set, and a machine that is suspended: what is moved by it, and what is not.

Durations go by a clock that nobody sets. Dates go by the wall clock, whenever and however that is
set. `docs/decisions/0016-clocks.md` lists which is which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ferrymq import Message
from ferrymq import connect as connect_client
from ferrymq_broker.clock import Clock
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.values.policy import QueuePolicy, StreamPolicy, TopicPolicy
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.messaging import (
    Data,
    Header,
    MessageAnnotations,
    Properties,
    Released,
    Source,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from tests.broker.harness import Client, Network, header
from tests.broker.queues.links import consume, publish
from tests.broker.stores import ManualStore

HOUR = 3600.0
YEARS = 3e8
STEPS = [0.6, -0.6, HOUR, -HOUR, YEARS, -YEARS]
TIME = "x-opt-delivery-time"
DELAY = "x-opt-delivery-delay"


def put(client: Client, address: str, *, ttl: int | None = None, **what: object) -> None:
    """Send a message with a time of some kind: `ttl`, `expiry` or an annotation."""
    expiry = what.pop("expiry", None)
    assert expiry is None or isinstance(expiry, int)
    annotations: dict[str | int, object] = {
        f"x-opt-{key.replace('_', '-')}": value for key, value in what.items()
    }
    client.sender(address).send_sections(
        Header(durable=True, ttl=ttl),
        MessageAnnotations(value=annotations),
        Properties(absolute_expiry_time=expiry),
        Data(value=b"m"),
    )


def waiting(net: Network, address: str = "q") -> int:
    """How many messages are in a queue and could be had now."""
    return int(net.queue(address).available)


# -- durations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_a_delay_is_as_long_as_it_says(net: Network, step: float) -> None:
    client = net.connect()
    net.declare("q")
    # Something is due already, and later than what comes.
    put(client, "q", delivery_delay=50_000)
    net.set_clock(step)
    put(client, "q", delivery_delay=1000)
    net.advance(0.999)
    assert waiting(net) == 0
    net.advance(0.002)
    assert waiting(net) == 1
    net.advance(49.1)
    assert waiting(net) == 2


@pytest.mark.parametrize("step", STEPS)
def test_a_delay_that_runs_is_not_touched(net: Network, step: float) -> None:
    client = net.connect()
    net.declare("q")
    put(client, "q", delivery_delay=2000)
    net.advance(1)
    net.set_clock(step)
    net.advance(0.99)
    assert waiting(net) == 0
    net.advance(0.02)
    assert waiting(net) == 1


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("policy", [QueuePolicy(), QueuePolicy(message_ttl=2000)])
def test_a_time_to_live_is_as_long_as_it_says(
    net: Network, step: float, policy: QueuePolicy
) -> None:
    client = net.connect()
    net.declare("q", policy)
    put(client, "q", ttl=2000 if policy.message_ttl == 0 else None)
    net.advance(1)
    net.set_clock(step)
    net.advance(0.99)
    assert waiting(net) == 1
    net.advance(0.02)
    assert waiting(net) == 0


def test_the_ttl_that_goes_out_is_what_is_left(net: Network) -> None:
    client = net.connect()
    net.declare("q")
    put(client, "q", ttl=10_000)
    net.advance(1)
    net.set_clock(HOUR)
    receiver = client.receiver("q", credit=1)
    assert header(receiver.deliveries[0].payload).ttl == 9000


@pytest.mark.parametrize("step", STEPS)
def test_a_selector_over_many_messages_goes_on_at_once(net: Network, step: float) -> None:
    client = net.connect()
    net.declare("q")
    put(client, "q", delivery_delay=60_000)
    for _ in range(3):
        client.sender("q").send(*[b"x"] * 1000)
    net.set_clock(step)
    receiver = consume(client, "q", 1, selector="colour = 'red'")
    publish(client.sender("q"), b"found", colour="red")
    net.advance(0.1)
    assert receiver.bodies() == [b"found"]


@pytest.mark.parametrize("step", STEPS)
def test_a_queue_is_idle_for_as_long_as_it_may_be(net: Network, step: float) -> None:
    net.connect()
    net.declare("q", QueuePolicy(auto_delete=2000))
    net.broker.finish_pass()
    net.advance(1)
    net.set_clock(step)
    net.advance(0.99)
    assert "q" in net.space.nodes
    net.advance(0.02)
    assert "q" not in net.space.nodes


@pytest.mark.parametrize("step", STEPS)
def test_a_duplicate_is_known_for_its_window(net: Network, step: float) -> None:
    client = net.connect()
    net.declare("q", QueuePolicy(duplicate_window=2000))
    sender = client.sender("q")

    def send() -> None:
        sender.send_sections(Properties(message_id="one"), Data(value=b"m"))

    send()
    net.advance(1)
    net.set_clock(step)
    send()
    assert waiting(net) == 1
    net.advance(1.01)
    send()
    assert waiting(net) == 2


@pytest.mark.parametrize("step", STEPS)
def test_a_subscription_waits_for_its_client(net: Network, step: float) -> None:
    net.space.create("t", TopicPolicy())
    client = net.connect()
    source = Source(
        address="t",
        timeout=2,
        durable=TerminusDurability.UNSETTLED_STATE,
        expiry_policy=TerminusExpiryPolicy.LINK_DETACH,
    )
    receiver = client.receiver("t", source=source)
    receiver.close(closed=False)
    topic = net.space.nodes["t"]
    net.advance(1)
    net.set_clock(step)
    net.advance(0.99)
    assert topic.describe()["subscriptions"] == 1
    net.advance(0.02)
    assert topic.describe()["subscriptions"] == 0


@pytest.mark.parametrize("step", STEPS)
def test_records_of_a_stream_are_kept_for_as_long_as_it_says(net: Network, step: float) -> None:
    stream = net.space.create("s", StreamPolicy(max_age=2000, segment_bytes=1000))
    net.connect().sender("s").send(b"a")
    net.advance(1)
    net.set_clock(step)
    net.advance(0.99)
    assert stream.message_count() == 1
    net.advance(0.02)
    assert stream.message_count() == 0


# -- dates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("send", "before", "after"),
    [
        (lambda net, date: put(net.connect(), "q", expiry=date), 1, 0),
        (lambda net, date: put(net.connect(), "q", delivery_time=date), 0, 1),
        (
            lambda net, date: put(net.connect(), "q", scheduled_enqueue_time=Timestamp(date)),
            0,
            1,
        ),
    ],
    ids=["expiry", "delivery-time", "enqueue-time"],
)
class TestDates:
    def test_a_clock_that_is_set_forward_brings_it_on(
        self, net: Network, send: Callable[[Network, int], None], before: int, after: int
    ) -> None:
        net.declare("q")
        send(net, net.wall + 7_200_000)
        net.set_clock(HOUR)
        assert waiting(net) == before
        net.set_clock(HOUR)
        assert waiting(net) == after

    def test_it_comes_when_the_rest_is_over(
        self, net: Network, send: Callable[[Network, int], None], before: int, after: int
    ) -> None:
        net.declare("q")
        send(net, net.wall + 7_200_000)
        net.set_clock(2 * HOUR - 1)
        net.advance(0.99)
        assert waiting(net) == before
        net.advance(0.02)
        assert waiting(net) == after

    @pytest.mark.parametrize("step", [-HOUR, -YEARS])
    def test_a_clock_that_is_set_back_puts_it_off(
        self,
        net: Network,
        send: Callable[[Network, int], None],
        before: int,
        after: int,
        step: float,
    ) -> None:
        net.declare("q")
        send(net, net.wall + 1000)
        net.set_clock(step)
        net.advance(1.1)
        assert waiting(net) == before
        net.advance(-step)
        assert waiting(net) == after


@pytest.mark.parametrize("kind", ["expiry", "delivery-time"])
def test_what_a_pass_had_no_time_for_goes_by_the_clock_as_it_is_set_next(
    net: Network, kind: str
) -> None:
    net.declare("q")
    sender = net.connect().sender("q")
    date = net.wall + 60_000
    # More than expire, or come, in one pass.
    for _ in range(1100):
        if kind == "expiry":
            sender.send_sections(Properties(absolute_expiry_time=date), Data(value=b"m"))
        else:
            sender.send_sections(MessageAnnotations(value={TIME: date}), Data(value=b"m"))
    assert waiting(net) == (1100 if kind == "expiry" else 0)
    net.set_clock(2 * HOUR)
    left = waiting(net)
    assert 0 < left < 1100
    net.set_clock(-2 * HOUR)
    net.advance(59.9)
    assert waiting(net) == left
    net.advance(0.2)
    assert waiting(net) == (0 if kind == "expiry" else 1100)


def test_of_two_times_each_goes_by_its_own_clock(net: Network) -> None:
    """JMS clients send both, and the date is the earlier one by a hair."""
    net.declare("q")
    client = net.connect()
    for _ in range(2):
        put(client, "q", ttl=5000, expiry=net.wall + 4990)
        net.set_clock(-HOUR)
        net.advance(4.99)
        assert waiting(net) == 1
        net.advance(0.02)
        assert waiting(net) == 0
    put(client, "q", ttl=60_000, expiry=net.wall + 60_001)
    net.set_clock(61)
    assert waiting(net) == 0


def test_what_a_consumer_held_on_its_date_goes_when_it_comes_back(net: Network) -> None:
    """Even if the clock has been set back meanwhile."""
    net.declare("q")
    client = net.connect()
    put(client, "q", expiry=net.wall + 1000)
    receiver = client.receiver("q", credit=1)
    net.set_clock(2)
    net.set_clock(-HOUR)
    receiver.settle(Released())
    assert waiting(net) == 0
    assert net.queue("q").message_count() == 0


# -- a suspended machine -------------------------------------------------------------------------


def test_a_suspension_counts_for_durations_and_for_dates(net: Network) -> None:
    net.declare("q")
    client = net.connect()
    put(client, "q", ttl=60_000)
    put(client, "q", expiry=net.wall + 60_000)
    put(client, "q", delivery_delay=60_000)
    put(client, "q", delivery_time=net.wall + 60_000)
    net.suspend(59)
    assert waiting(net) == 2
    net.suspend(2)
    assert waiting(net) == 2
    assert net.queue("q").lifecycle.scheduled() == 0
    assert net.queue("q").lifecycle.expirations == 2


def test_a_suspension_is_no_silence_of_clients() -> None:
    net = Network(idle_time_out=10.0)
    client = net.connect(idle_time_out=10.0)
    net.suspend(HOUR)
    net.advance(5)
    assert client.terminated is None and client.closed_with is None


# -- through a restart only the wall clock counts ------------------------------------------------


@pytest.mark.parametrize("step", [-YEARS, -HOUR])
def test_after_a_restart_nothing_lives_longer_than_it_was_to(step: float) -> None:
    net = Network(store=ManualStore())
    net.declare("q")
    net.declare("later")
    client = net.connect()
    put(client, "q", ttl=2000)
    put(client, "later", delivery_delay=2000)
    net.set_clock(step)
    net.restart()
    net.advance(1.9)
    assert (waiting(net), waiting(net, "later")) == (1, 0)
    net.advance(0.2)
    assert (waiting(net), waiting(net, "later")) == (0, 1)


# -- over the wire -------------------------------------------------------------------------------


class SetClock(Clock):
    """The clock of the machine, and somebody who sets its wall clock."""

    def __init__(self) -> None:
        self.stepped = 0.0

    def epoch(self) -> float:
        return super().epoch() + self.stepped


@pytest.mark.parametrize("step", [HOUR, -HOUR, YEARS, -YEARS])
async def test_timers_of_a_server_are_on_time(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delay and a date; each would be late by the step, or for ever, by the wrong clock."""
    monkeypatch.setattr("ferrymq_broker.server.server.CLOCK_PERIOD", 0.01)
    clock = SetClock()
    config = Config(listener=[Listener(url="amqp://127.0.0.1:0")])
    async with (
        BrokerServer(config, clock) as server,
        connect_client(server.url) as connection,
    ):
        wall = int((clock.now() + clock.epoch()) * 1000)
        sender = await connection.sender("q")
        receiver = await connection.receiver("q")
        far = abs(int(step * 1000)) // 2
        date = wall + (far if step > 0 else 5000 + int(step * 1000))
        await sender.send(Message("idle", message_annotations={DELAY: 3_000_000}))
        if step > 0:
            # It is past as soon as the clock has been set.
            await sender.send(Message("date", message_annotations={TIME: Timestamp(date)}))
        before = server.broker.clock.epoch
        clock.stepped = step
        async with asyncio.timeout(20):
            while abs(server.broker.clock.epoch - before) < 1:  # noqa: ASYNC110
                await asyncio.sleep(0)
            if step < 0:
                date = int((clock.now() + clock.epoch()) * 1000) + 50
                await sender.send(Message("date", message_annotations={TIME: Timestamp(date)}))
            await sender.send(Message("delay", message_annotations={DELAY: 50}))
            taken = [await receiver.receive() for _ in range(2)]
        assert {delivery.message.body for delivery in taken} == {"date", "delay"}
