"""Credit is taken back when a bound comes that senders did not have (AMQP 1.0 §2.6.7)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import pytest

import ferrymq
from ferrymq import ManagementClient
from tests.raw.answers import Answer, Composite
from tests.raw.client import Client
from tests.raw.frames import begin_frame, disposition_frame, flow_frame, open_frame, transfer_frame
from tests.raw.process import Broker
from tests.raw.values import TRUE, binary, composite, data_section, string, uint

T = TypeVar("T")
ROOM: Final = 4
REJECTED: Final = composite(0x25, [])


# Topics whose subscriptions have room for four messages and make senders wait, and queues.
CONFIG = """
    [[topic]]
    pattern = "topic-*"
    [topic.subscription]
    max-length = 4
    overflow = "block"
    [[exchange]]
    pattern = "ex-*"
    routing = "topic"
"""


def manage(broker: Broker, work: Callable[[ManagementClient], Awaitable[T]]) -> T:
    """Do something by management, on a connection of its own."""

    async def go() -> T:
        async with (
            ferrymq.connect(broker.url) as connection,
            connection.management() as management,
        ):
            return await work(management)

    return asyncio.run(go())


def allowance(flow: Answer) -> int | None:
    """Read how many messages the flow of a link allows in all."""
    count, credit = flow.field(5), flow.field(6)
    return count + credit if isinstance(count, int) and isinstance(credit, int) else None


def told(peer: Client) -> int:
    """Wait for the next flow of link 0; how many messages it may have sent by that in all."""
    while (found := allowance(peer.expect("flow", "empty"))) is None:
        pass
    return found


def accepted(peer: Client, numbers: range) -> list[int]:
    """Send these deliveries on link 0, and read that all are accepted. What flows allowed meanwhile
    is returned."""
    peer.send(
        *(
            transfer_frame(data_section(), 0, uint(number), binary(b"%d" % number))
            for number in numbers
        )
    )
    flows: list[int] = []
    waiting = set(numbers)
    while waiting:
        answer = peer.read()
        assert answer is not None
        if answer.name == "flow" and (allowed := allowance(answer)) is not None:
            flows.append(allowed)
        elif answer.name == "disposition":
            outcome = answer.field(4)
            assert isinstance(outcome, Composite) and outcome.name == "accepted"
            first, last = answer.field(1), answer.field(2)
            assert isinstance(first, int)
            waiting -= set(range(first, (last if isinstance(last, int) else first) + 1))
    return flows


def asked(peer: Client, sent: int) -> int:
    """Ask for the credit of link 0; how many messages it may have sent in all."""
    peer.send(flow_frame(uint(0), uint(0), uint(sent), echo=TRUE))
    return told(peer)


def held_to_the_bound(peer: Client) -> None:
    """Fill the room that there is and look that there is not more; no message was sent before."""
    allowed, sent = told(peer), 0
    while sent < ROOM:
        assert allowed <= ROOM
        if sent == allowed:
            allowed = told(peer)
            continue
        flows = accepted(peer, range(sent, allowed))
        sent = allowed
        allowed = max([allowed, *flows])
    # What the broker has to say of credit has come before the answer to this.
    assert allowed == sent == asked(peer, sent)


def subscribe(broker: Broker, address: str, stay: list[Client]) -> None:
    """Attach a subscriber that takes nothing, on a connection of its own."""
    client = Client(broker.port)
    stay.append(client)
    client.open(open_frame(string(f"subscriber of {address}"))).send(begin_frame())
    client.expect("begin")
    client.receiver(address, credit=0)


def test_the_first_subscription_of_a_topic(broker: Broker, peer: Client, address: str) -> None:
    others: list[Client] = []
    peer.sender(f"topic-{address}")
    subscribe(broker, f"topic-{address}", others)
    held_to_the_bound(peer)
    others[0].close()


async def bind(
    management: ManagementClient, exchange: str, destination: str, key: str = ""
) -> None:
    """Bind a node to an exchange."""
    body = {"exchange": exchange, "destination": destination, "key": key}
    await management.request("CREATE", "binding", None, body)


def test_the_first_subscription_behind_exchanges(
    broker: Broker, peer: Client, address: str
) -> None:
    topic, inner, outer = f"topic-{address}", f"ex-in-{address}", f"ex-out-{address}"
    others: list[Client] = []

    async def prepare(management: ManagementClient) -> None:
        bounds = {"max-length": ROOM, "overflow": "block"}
        await management.create("topic", topic, {"subscription": bounds})
        await management.create("exchange", inner, {"routing": "fanout"})
        await management.create("exchange", outer, {"routing": "direct"})
        await bind(management, inner, topic)
        await bind(management, outer, inner, "key")

    manage(broker, prepare)
    peer.sender(f"{outer}::key")
    subscribe(broker, topic, others)
    held_to_the_bound(peer)
    others[0].close()


@pytest.mark.parametrize("way", ["", "::some.key"])
def test_a_binding(broker: Broker, peer: Client, address: str, way: str) -> None:
    exchange, queue = f"ex-{address}", f"small-{address}"
    peer.sender(f"{exchange}{way}")

    async def late(management: ManagementClient) -> None:
        await management.create("queue", queue, {"max-length": ROOM, "overflow": "block"})
        await bind(management, exchange, queue, "#")

    manage(broker, late)
    held_to_the_bound(peer)


@pytest.mark.parametrize("how", ["made", "named"])
def test_an_alternate(broker: Broker, peer: Client, address: str, how: str) -> None:
    exchange, queue = f"ex-{address}", f"queue-{address}"
    bounds = {"max-length": ROOM, "overflow": "block"}

    async def prepare(management: ManagementClient) -> None:
        alternate = {"alternate": queue} if how == "made" else {}
        await management.create("exchange", exchange, {"routing": "direct", **alternate})
        if how == "named":
            await management.create("queue", queue, bounds)

    async def late(management: ManagementClient) -> None:
        if how == "named":
            await management.update("exchange", exchange, {"alternate": queue})
        else:
            await management.create("queue", queue, bounds)

    manage(broker, prepare)
    peer.sender(f"{exchange}::key")
    manage(broker, late)
    held_to_the_bound(peer)


@pytest.mark.parametrize(
    "before", [{"max-length": ROOM, "overflow": "reject"}, {"max-length": 400, "overflow": "block"}]
)
def test_an_update(broker: Broker, peer: Client, address: str, before: dict[str, object]) -> None:
    manage(broker, lambda management: management.create("queue", address, before))
    peer.sender(address)
    after = {"max-length": ROOM, "overflow": "block"}
    manage(broker, lambda management: management.update("queue", address, after))
    held_to_the_bound(peer)


def test_an_update_of_a_subscription(broker: Broker, peer: Client, address: str) -> None:
    async def prepare(management: ManagementClient) -> None:
        await management.create("topic", address)
        await management.create("subscription", f"{address}::one")

    manage(broker, prepare)
    peer.sender(address)
    after = {"max-length": ROOM, "overflow": "block"}
    manage(broker, lambda management: management.update("subscription", f"{address}::one", after))
    held_to_the_bound(peer)


def test_what_is_on_its_way_is_taken_in_and_shown_as_too_much(
    broker: Broker, peer: Client, address: str
) -> None:
    before = {"max-length": ROOM, "overflow": "reject"}
    manage(broker, lambda management: management.create("queue", address, before))
    peer.sender(address)
    after = {"max-length": ROOM, "overflow": "block"}
    manage(broker, lambda management: management.update("queue", address, after))
    # They could have been sent before the broker's flow came.
    accepted(peer, range(10))
    shown = manage(broker, lambda management: management.read("queue", address))
    assert (shown["messages"], shown["excess"], shown["max-length"]) == (10, 6, ROOM)
    with Client(broker.port) as other:
        other.open(open_frame(string(f"consumer of {address}"))).send(begin_frame())
        other.expect("begin")
        other.receiver(address, credit=7)
        other.arrivals(7)
        assert asked(peer, 10) == 10, "no credit while there is no room"
        other.send(disposition_frame(0, uint(6), state=composite(0x24, []), settled=TRUE))
        assert told(peer) == 11


def test_dead_letters(broker: Broker, peer: Client, address: str) -> None:
    """They take the room that is promised to senders, and no more than there is."""
    dead, dying = f"small-{address}", f"dying-{address}"

    async def prepare(management: ManagementClient) -> None:
        await management.create("queue", dead, {"max-length": ROOM, "overflow": "block"})
        await management.create("queue", dying, {"dead-letter": dead})

    manage(broker, prepare)
    peer.sender(dead)
    with Client(broker.port) as other:
        other.open(open_frame(string(f"consumer of {address}"))).send(begin_frame())
        other.expect("begin")
        other.sender(dying).publish([data_section()] * 6)
        other.receiver(dying, credit=6)
        other.arrivals(6)
        other.send(disposition_frame(0, uint(5), state=REJECTED, settled=TRUE))

    async def look(management: ManagementClient) -> tuple[object, ...]:
        full = await management.read("queue", dead)
        died = await management.read("queue", dying)
        return full["messages"], full["excess"], died["dead-lettered"], died["dropped"]

    assert manage(broker, look) == (4, 0, 4, 2)
    while told(peer) != 0:
        pass


def test_what_is_moved(broker: Broker, peer: Client, address: str) -> None:
    full, wide = f"small-{address}", f"wide-{address}"

    async def prepare(management: ManagementClient) -> None:
        await management.create("queue", full, {"max-length": ROOM, "overflow": "block"})
        await management.create("queue", wide)

    manage(broker, prepare)
    with Client(broker.port) as other:
        other.open(open_frame(string(f"sender of {address}"))).send(begin_frame())
        other.expect("begin")
        other.sender(wide).publish([data_section()] * 6)
    peer.sender(full)

    async def move(management: ManagementClient) -> tuple[object, ...]:
        answer = await management.request("MOVE", "queue", wide, {"target": full})
        shown = await management.read("queue", full)
        return answer.map()["count"], shown["messages"], shown["excess"]

    assert manage(broker, move) == (4, 4, 0)
    while told(peer) != 0:
        pass
