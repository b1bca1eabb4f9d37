"""Messages that cannot stay where they are: where they go, and what they tell of it."""

from __future__ import annotations

import logging

import pytest

from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.message import admit
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy
from ferrymq_codec.scalars import Symbol, Timestamp
from ferrymq_types.messaging import (
    Accepted,
    ApplicationProperties,
    Data,
    Footer,
    Header,
    MessageAnnotations,
    Modified,
    Properties,
    Rejected,
    Released,
)
from ferrymq_types.transport import Error
from tests.broker.harness import Network, Sender, decode, header, message_annotations, text
from tests.broker.lifecycle.letters import bodies, browse, death, drain, figure, send

BROKEN = Rejected(error=Error(condition="app:broken", description="cannot be read"))


@pytest.mark.spec("3.4.3")
def test_a_rejected_message_goes_where_the_policy_says_and_tells_why(net: Network) -> None:
    net.declare("q", QueuePolicy(dead_letter="dlq"))
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=1)
    net.advance(3)
    receiver.settle(BROKEN)
    assert net.queue("q").message_count() == 0
    (dead,) = drain(net, "dlq")
    told = death(dead)
    assert told == {
        "reason": "rejected",
        "source": "q",
        "time": net.wall,
        "count": 1,
        "first-reason": "rejected",
        "first-source": "q",
        "condition": "app:broken",
        "description": "cannot be read",
    }
    assert isinstance(told["time"], Timestamp) and isinstance(told["condition"], Symbol)
    assert figure(net, "q", "dead-lettered") == 1


@pytest.mark.spec("3.2")
def test_the_message_itself_is_untouched(net: Network) -> None:
    net.declare("q", QueuePolicy(dead_letter="dlq"))
    client = net.connect()
    bare = [
        Properties(message_id="id", to="q"),
        ApplicationProperties(value={"k": 1}),
        Data(value=b"body"),
        Footer(value={"x": 1}),
    ]
    head = Header(durable=True, priority=7)
    client.sender("q").send_sections(head, MessageAnnotations(value={"x-opt-mine": 1}), *bare)
    client.receiver("q", credit=1).settle(Rejected())
    (dead,) = drain(net, "dlq")
    sections = decode(dead.payload)
    assert sections[0] == Header(durable=True, priority=7, delivery_count=1)
    assert sections[2:] == bare
    assert message_annotations(dead.payload)["x-opt-mine"] == 1
    assert "condition" not in death(dead)


def test_a_message_that_expires_in_time_for_nobody(net: Network) -> None:
    net.declare("q", QueuePolicy(dead_letter="dlq"))
    waiting = net.connect().receiver("dlq", credit=1)
    send(net.connect().sender("q"), b"a", ttl=1000)
    assert waiting.take() == []
    net.advance(1.001)
    (dead,) = waiting.take()
    assert death(dead)["reason"] == "expired"
    assert message_annotations(dead.payload)["x-opt-original-ttl"] == 1000
    assert header(dead.payload).ttl is None


def test_expired_messages_may_go_elsewhere(net: Network) -> None:
    net.declare("q", QueuePolicy(dead_letter="dlq", expired="late"))
    client = net.connect()
    sender = client.sender("q")
    sender.send(b"bad")
    client.receiver("q", credit=1).settle(Rejected())
    send(sender, b"late", ttl=0)
    assert bodies(net, "dlq") == [b"bad"]
    assert bodies(net, "late") == [b"late"]


def test_its_own_time_does_not_kill_a_message_twice(net: Network) -> None:
    net.declare("q", QueuePolicy(dead_letter="dlq"))
    net.declare("dlq", QueuePolicy(max_length=10))
    past = Properties(absolute_expiry_time=Timestamp(net.wall - 1))
    send(net.connect().sender("q"), b"a", ttl=1, properties=past)
    net.advance(1000)
    assert browse(net, "dlq") == [b"a"]


def test_the_queue_of_dead_letters_may_have_a_time_of_its_own(net: Network) -> None:
    net.declare("q", QueuePolicy(dead_letter="dlq"))
    net.declare("dlq", QueuePolicy(message_ttl=5000))
    send(net.connect().sender("q"), b"a", ttl=1000)
    net.advance(5.999)
    assert browse(net, "dlq") == [b"a"]
    net.advance(0.002)
    assert browse(net, "dlq") == []


def test_a_schedule_does_not_hold_up_a_dead_letter(net: Network) -> None:
    net.declare("q", QueuePolicy(dead_letter="dlq"))
    client = net.connect()
    send(client.sender("q"), b"a", annotations={"x-opt-delivery-delay": 1000})
    receiver = client.receiver("q", credit=1)
    net.advance(1.001)
    receiver.settle(Rejected())
    (dead,) = drain(net, "dlq")
    assert "x-opt-delivery-delay" not in message_annotations(dead.payload)


def test_one_failed_delivery_too_many(net: Network) -> None:
    net.declare("q", QueuePolicy(delivery_limit=2, dead_letter="dlq"))
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=10)
    for count in range(2):
        (delivery,) = receiver.take()
        assert header(delivery.payload).delivery_count == count
        receiver.settle(Modified(delivery_failed=True), delivery)
    assert browse(net, "dlq") == []
    receiver.settle(Modified(delivery_failed=True))
    assert receiver.take() == []
    assert net.queue("q").message_count() == 0
    (dead,) = drain(net, "dlq")
    assert death(dead)["reason"] == "delivery-limit"


@pytest.mark.spec("3.4.3", "3.4.5", "3.2.1")
@pytest.mark.parametrize("limit", [0, 2])
def test_the_header_goes_on_counting(net: Network, limit: int) -> None:
    net.declare("q", QueuePolicy(delivery_limit=limit, dead_letter="dlq"))
    client = net.connect()
    client.sender("q").send_sections(
        Header(first_acquirer=True, delivery_count=5, ttl=60_000), Data(value=b"a")
    )
    receiver = client.receiver("q", credit=10)
    receiver.settle(Modified(delivery_failed=True))
    receiver.settle(Released())
    receiver.settle(Modified(delivery_failed=True))
    receiver.settle(Rejected() if limit == 0 else Modified(delivery_failed=True))
    (dead,) = drain(net, "dlq")
    assert header(dead.payload) == Header(first_acquirer=False, delivery_count=8)
    assert decode(dead.payload)[-1] == Data(value=b"a")


def test_what_nobody_has_had_says_so_as_a_dead_letter(net: Network) -> None:
    net.declare("q", QueuePolicy(message_ttl=1000, dead_letter="dlq"))
    head = Header(first_acquirer=True)
    net.connect().sender("q").send_sections(head, Data(value=b"a"))
    net.advance(1.001)
    (dead,) = drain(net, "dlq")
    assert header(dead.payload) == head


def test_what_is_released_does_not_count_against_the_limit(net: Network) -> None:
    net.declare("q", QueuePolicy(delivery_limit=1, dead_letter="dlq"))
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=100)
    for _ in range(10):
        receiver.settle(Modified(delivery_failed=False))
    assert len(receiver.deliveries) == 1


def test_lost_connections_count_against_the_limit(net: Network) -> None:
    net.declare("q", QueuePolicy(delivery_limit=1, dead_letter="dlq"))
    net.connect().sender("q").send(b"a")
    for _ in range(2):
        client = net.connect()
        assert client.receiver("q", credit=1).bodies() == [b"a"]
        client.lose()
    assert bodies(net, "dlq") == [b"a"]


@pytest.mark.spec("3.4.5")
def test_annotations_a_consumer_put_in_are_in_the_dead_letter(net: Network) -> None:
    net.declare("q", QueuePolicy(delivery_limit=1, dead_letter="dlq"))
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = client.receiver("q", credit=10)
    for word in ("one", "two"):
        receiver.settle(Modified(delivery_failed=True, message_annotations={"x-opt-note": word}))
    (dead,) = drain(net, "dlq")
    assert message_annotations(dead.payload)["x-opt-note"] == "two"


def test_dead_letters_without_an_address_are_dropped_and_counted(net: Network) -> None:
    client = net.connect()
    client.sender("q").send(b"a")
    client.receiver("q", credit=1).settle(BROKEN)
    assert net.queue("q").message_count() == 0
    assert figure(net, "q", "dropped") == 1
    assert figure(net, "q", "dead-lettered") == 0


@pytest.mark.parametrize("address", ["nowhere", "full", "$management", "topic::part"])
def test_what_nobody_takes_is_dropped_counted_and_said_once(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    net = Network(auto_create=False)
    net.declare("q", QueuePolicy(dead_letter=address))
    net.declare("full", QueuePolicy(max_bytes=1))
    client = net.connect()
    client.sender("q").send(b"a", b"b", b"c")
    receiver = client.receiver("q", credit=3)
    with caplog.at_level(logging.WARNING):
        receiver.settle(Rejected())
    assert net.queue("q").message_count() == 0
    assert figure(net, "q", "dropped") == 3
    assert figure(net, "q", "dead-lettered") == 0
    assert len([r for r in caplog.records if "dead letters" in r.getMessage()]) == 1


def test_what_one_queue_of_an_exchange_takes_is_not_dropped() -> None:
    net = Network(auto_create=False)
    net.declare("q", QueuePolicy(dead_letter="fan"))
    net.declare("full", QueuePolicy(max_bytes=1))
    net.declare("dlq")
    exchange = net.space.create("fan", ExchangePolicy(type="fanout"))
    assert isinstance(exchange, Exchange)
    exchange.bind("full")
    exchange.bind("dlq")
    client = net.connect()
    client.sender("q").send(b"a")
    client.receiver("q", credit=1).settle(Rejected())
    assert net.queue("dlq").available == 1
    assert (figure(net, "q", "dead-lettered"), figure(net, "q", "dropped")) == (1, 0)


def test_the_queue_for_dead_letters_is_made_where_queues_are(net: Network) -> None:
    net.declare("q", QueuePolicy(dead_letter="dlq"))
    assert "dlq" not in net.space.nodes
    send(net.connect().sender("q"), b"a", ttl=0)
    assert net.queue("dlq").available == 1


def test_deaths_are_counted_and_the_first_is_remembered(net: Network) -> None:
    net.declare("a", QueuePolicy(dead_letter="b"))
    net.declare("b", QueuePolicy(dead_letter="c", message_ttl=1000))
    began = net.wall
    client = net.connect()
    client.sender("a").send(b"x")
    client.receiver("a", credit=1).settle(BROKEN)
    net.advance(1.001)
    (dead,) = drain(net, "c")
    assert death(dead) == {
        "reason": "expired",
        "source": "b",
        "time": began + 1000,
        "count": 2,
        "first-reason": "rejected",
        "first-source": "a",
        "path": ["b"],
    }


def test_an_opaque_message_goes_too(net: Network) -> None:
    net.declare("q", QueuePolicy(dead_letter="dlq", message_ttl=1000))
    net.declare("dlq", QueuePolicy(dead_letter="q", message_ttl=1000))
    net.connect().sender("q").send_encoded(b"\x00\xff opaque", message_format=0x100)
    net.advance(1.001)
    client = net.connect()
    browser = client.receiver("dlq", mode="copy", credit=1)
    assert [d.payload for d in browser.take()] == [b"\x00\xff opaque"]
    net.advance(2)
    # It cannot carry the path it has gone: the second death is the last.
    assert net.queue("dlq").message_count() == net.queue("q").message_count() == 0
    assert figure(net, "dlq", "circles") == 1


# -- circles -----------------------------------------------------------------------------


def test_a_circle_without_a_consumer_is_cut(net: Network) -> None:
    net.declare("a", QueuePolicy(message_ttl=1000, dead_letter="b"))
    net.declare("b", QueuePolicy(message_ttl=1000, dead_letter="a"))
    net.connect().sender("a").send(b"x")
    net.advance(1.001)
    assert browse(net, "b") == [b"x"]
    net.advance(10)
    assert net.queue("a").message_count() == net.queue("b").message_count() == 0
    assert figure(net, "b", "circles") == figure(net, "b", "dropped") == 1


def test_a_queue_that_expires_into_itself_is_a_circle(net: Network) -> None:
    net.declare("a", QueuePolicy(dead_letter="a"))
    send(net.connect().sender("a"), b"x", ttl=0)
    assert net.queue("a").message_count() == 0
    assert figure(net, "a", "circles") == 1


def test_rejected_and_sent_round_is_a_retry(net: Network) -> None:
    net.declare("work", QueuePolicy(dead_letter="wait"))
    net.declare("wait", QueuePolicy(message_ttl=1000, dead_letter="work"))
    client = net.connect()
    client.sender("work").send(b"x")
    receiver = client.receiver("work", credit=100)
    for _ in range(5):
        assert receiver.bodies() == [b"x"]
        receiver.settle(BROKEN)
        net.advance(1.001)
    (delivery,) = receiver.take()
    told = death(delivery)
    assert told["count"] == 10
    assert told["path"] == ["wait"]
    assert told["first-source"] == "work"


def test_a_retry_is_no_duplicate(net: Network) -> None:
    net.declare("work", QueuePolicy(dead_letter="wait", duplicate_window=3_600_000))
    net.declare("wait", QueuePolicy(message_ttl=1000, dead_letter="work"))
    client = net.connect()
    send(client.sender("work"), b"x", properties=Properties(message_id="m"))
    receiver = client.receiver("work", credit=100)
    receiver.settle(BROKEN)
    net.advance(1.001)
    assert receiver.bodies() == [b"x"]


RING = 1000


def ring(net: Network) -> Sender:
    """A thousand full queues, each of which sends what is too much to the next; a sender to all."""
    for n in range(RING):
        following = f"ring.{(n + 1) % RING}"
        policy = QueuePolicy(max_length=1, overflow="dead-letter", dead_letter=following)
        net.declare(f"ring.{n}", policy)
    return net.connect().sender(None)


def test_every_queue_of_a_ring_pushes_on_what_it_has() -> None:
    net = Network(max_nodes=2000, credit=2 * RING)
    sender = ring(net)
    for n in range(RING):
        send(sender, b"%d" % n, properties=Properties(to=f"ring.{n}"))
    send(sender, b"one more", properties=Properties(to="ring.0"))
    # The last one's came to the first and pushed out the new one, which pushed on, and so on.
    assert sum(net.queue(f"ring.{n}").available for n in range(RING)) == RING
    circles = [figure(net, f"ring.{n}", "circles") for n in range(RING)]
    assert sum(c for c in circles if isinstance(c, int)) == 1


def test_a_message_goes_through_a_thousand_queues_once() -> None:
    net = Network(max_nodes=2000, credit=2 * RING)
    sender = ring(net)
    for n in range(RING):
        # What is scheduled fills the queue and cannot be pushed out.
        send(
            sender,
            b"later",
            properties=Properties(to=f"ring.{n}"),
            annotations={"x-opt-delivery-delay": 1000},
        )
    send(sender, b"x", properties=Properties(to="ring.0"))
    assert [figure(net, f"ring.{n}", "overflowed") for n in range(RING)] == [1] * RING
    assert all(net.queue(f"ring.{n}").available == 0 for n in range(RING))
    assert figure(net, f"ring.{RING - 1}", "circles") == 1


def test_what_is_dead_lettered_is_readable_again() -> None:
    net = Network()
    net.declare("q", QueuePolicy(dead_letter="dlq"))
    client = net.connect()
    client.sender("q").send(b"x")
    client.receiver("q", credit=1).settle(BROKEN)
    (dead,) = drain(net, "dlq")
    assert admit(dead.payload, 0).payload == dead.payload
    assert text(dead.payload) == b"x"
    dead.settle(Accepted())
