"""What a delivery says about its message: its times, its numbers, where it comes from."""

from __future__ import annotations

import pytest

from ferrymq_codec.scalars import Symbol, Timestamp, UInt
from ferrymq_types.messaging import (
    ApplicationProperties,
    Data,
    Header,
    MessageAnnotations,
    Modified,
    Properties,
    Rejected,
)
from ferrymq_types.transport import Error
from tests.broker.harness import Network, encode, header, message_annotations
from tests.servicebus.kit import application, first, network_of, properties
from tests.servicebus.management.requests import EntityClient

DEAD_LETTER = Rejected(
    error=Error(condition="com.microsoft:dead-letter", info={"DeadLetterReason": "bad"})
)
NAMES = (
    "enqueued-time",
    "sequence-number",
    "enqueue-sequence-number",
    "offset",
    "locked-until",
    "message-state",
    "deadletter-source",
    "deadletter-reason",
    "deadletter-info",
)


@pytest.fixture
def net() -> Network:
    return network_of(
        queue=[
            {"name": "orders"},
            {"name": "short", "default-message-time-to-live": "10s"},
            {"name": "bad", "forward-dead-lettered-messages-to": "graves"},
            {"name": "graves"},
            {"name": "front", "forward-to": "orders"},
        ],
        topic=[
            {
                "name": "news",
                "subscription": [
                    {"name": "audit", "forward-dead-lettered-messages-to": "graves"},
                    {"name": "copy"},
                ],
            }
        ],
    )


# -- times -------------------------------------------------------------------------------------


def test_the_ttl_comes_as_it_was_sent(net: Network) -> None:
    net.connect().sender("orders").send_sections(Header(ttl=UInt(60_000)), Data(value=b"a"))
    sent = net.wall
    net.advance(20)
    (delivery,) = first(net).deliveries
    assert header(delivery.payload).ttl == 60_000
    assert properties(delivery.payload).absolute_expiry_time == Timestamp(sent + 60_000)
    assert b"a" in delivery.payload


def test_a_peeked_message_has_its_own_ttl_and_no_expiry_time(net: Network) -> None:
    sender = net.connect().sender("short")
    sender.send_sections(Header(ttl=UInt(60_000)), Data(value=b"a"))
    net.advance(4)
    client = EntityClient(net, "short")
    found = client.body("peek-message", {"from-sequence-number": 0, "message-count": 5})["messages"]
    assert isinstance(found, list)
    assert header(found[0]["message"]).ttl == 60_000
    assert properties(found[0]["message"]).absolute_expiry_time is None


def test_the_ttl_of_the_queue_shows_where_the_message_has_none(net: Network) -> None:
    sender = net.connect().sender("short")
    sender.send(b"a")
    sent = net.wall
    net.advance(4)
    (delivery,) = first(net, "short").deliveries
    assert header(delivery.payload).ttl == 10_000
    assert properties(delivery.payload).absolute_expiry_time == Timestamp(sent + 10_000)


def test_the_earlier_expiry_holds(net: Network) -> None:
    net.connect().sender("short").send_sections(Header(ttl=UInt(60_000)), Data(value=b"a"))
    (delivery,) = first(net, "short").deliveries
    assert header(delivery.payload).ttl == 60_000
    assert properties(delivery.payload).absolute_expiry_time == Timestamp(net.wall + 10_000)
    net.advance(11)
    assert net.connect().receiver("short", credit=1).deliveries == []


def test_an_absolute_expiry_time_of_the_sender_does_not_count(net: Network) -> None:
    net.connect().sender("orders").send_sections(
        Header(ttl=UInt(5_000)),
        Properties(message_id="m", absolute_expiry_time=Timestamp(1)),
        Data(value=b"a"),
    )
    found = properties(first(net).deliveries[0].payload)
    assert (found.message_id, found.absolute_expiry_time) == ("m", Timestamp(net.wall + 5_000))


# -- numbers and sources -----------------------------------------------------------------------


def test_a_dead_letter_keeps_its_first_number(net: Network) -> None:
    sender = net.connect().sender("orders")
    for body in (b"0", b"1", b"2"):
        sender.send(body)
    receiver = net.connect().receiver("orders", credit=3)
    receiver.settle(DEAD_LETTER, receiver.take()[2])
    letter = first(net, "orders/$DeadLetterQueue")
    annotations = message_annotations(letter.deliveries[0].payload)
    assert annotations["x-opt-sequence-number"] == 1
    assert annotations["x-opt-enqueue-sequence-number"] == 3
    assert annotations["x-opt-offset"] == 3
    client = EntityClient(net, "orders/$DeadLetterQueue")
    found = client.body("peek-message", {"from-sequence-number": 0, "message-count": 5})["messages"]
    assert isinstance(found, list)
    peeked = message_annotations(found[0]["message"])
    assert (peeked["x-opt-sequence-number"], peeked["x-opt-enqueue-sequence-number"]) == (1, 3)
    assert peeked["x-opt-deadletter-source"] == "orders"


@pytest.mark.parametrize(
    ("address", "path", "source"),
    [("bad", "bad", "bad"), ("news", "news/subscriptions/audit", "news/Subscriptions/audit")],
)
def test_a_forwarded_dead_letter_has_source_number_and_reason(
    net: Network, address: str, path: str, source: str
) -> None:
    net.connect().sender(address).send(b"0", b"1")
    receiver = net.connect().receiver(path, credit=2)
    receiver.settle(DEAD_LETTER, receiver.take()[1])
    (delivery,) = first(net, "graves").deliveries
    annotations = message_annotations(delivery.payload)
    assert annotations["x-opt-deadletter-source"] == source
    assert annotations["x-opt-enqueue-sequence-number"] == 2
    assert application(delivery.payload) == {"DeadLetterReason": "bad"}


def test_a_message_that_is_forwarded_keeps_the_number_of_its_arrival(net: Network) -> None:
    sender = net.connect().sender("front")
    sender.send(b"0", b"1")
    receiver = net.connect().receiver("orders", credit=2)
    taken = receiver.take()
    numbers = []
    for sequence, delivery in enumerate(taken, 1):
        annotations = message_annotations(delivery.payload)
        assert annotations["x-opt-sequence-number"] == sequence
        assert annotations["x-opt-offset"] == annotations["x-opt-enqueue-sequence-number"]
        numbers.append(annotations["x-opt-enqueue-sequence-number"])
    assert 1 << 52 <= int(str(numbers[0])) < int(str(numbers[1])) < 1 << 53
    receiver.settle(DEAD_LETTER, taken[1])
    letter = message_annotations(first(net, "orders/$DeadLetterQueue").deliveries[0].payload)
    assert letter["x-opt-enqueue-sequence-number"] == numbers[1]


# -- what senders may not say ------------------------------------------------------------------


@pytest.mark.parametrize("key", [Symbol, str])
@pytest.mark.parametrize("way", ["single", "batch", "scheduled", "topic"])
def test_annotations_of_the_service_are_dropped(net: Network, key: type[str], way: str) -> None:
    forged: dict[str | int, object] = {key(f"x-opt-{name}"): 77 for name in NAMES}
    sections = (MessageAnnotations({**forged, Symbol("own"): 1}), Data(value=b"a"))
    path = "orders"
    if way == "single":
        net.connect().sender("orders").send_sections(*sections)
    elif way == "batch":
        payload = encode(Data(value=encode(*sections)))
        net.connect().sender("orders").send_encoded(payload, message_format=0x80013700)
    elif way == "scheduled":
        due = Timestamp(net.wall + 1000)
        later = MessageAnnotations({**forged, Symbol("x-opt-scheduled-enqueue-time"): due})
        message = {"message": encode(later, Data(value=b"a"))}
        EntityClient(net, "orders").body("schedule-message", {"messages": [message]})
        net.advance(2)
    else:
        net.connect().sender("news").send_sections(*sections)
        path = "news/subscriptions/copy"
    payload = first(net, path).deliveries[0].payload
    annotations = message_annotations(payload)
    assert 77 not in annotations.values()
    assert not any(str(name).startswith("x-opt-deadletter-") for name in annotations)
    assert application(payload) == {}
    if way != "scheduled":
        assert annotations["own"] == 1


def test_a_dead_letter_that_is_sent_again_is_none(net: Network) -> None:
    net.connect().sender("orders").send_sections(
        ApplicationProperties({"kept": 1}), Data(value=b"a")
    )
    first(net).settle(DEAD_LETTER)
    payload = first(net, "orders/$DeadLetterQueue").deliveries[0].payload
    net.connect().sender("orders").send_encoded(payload)
    again = first(net)
    annotations = message_annotations(again.deliveries[0].payload)
    assert annotations["x-opt-enqueue-sequence-number"] == 2
    assert "x-opt-deadletter-source" not in annotations
    again.settle(Modified(delivery_failed=True))
