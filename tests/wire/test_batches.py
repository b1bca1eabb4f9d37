"""Deliveries of message-format 0x80013700: several messages in one, as Azure's clients send."""

from __future__ import annotations

import pytest

from tests.raw.answers import condition_of
from tests.raw.client import Client
from tests.raw.frames import flow_frame, transfer_frame
from tests.raw.process import Broker
from tests.raw.values import (
    TRUE,
    binary,
    composite,
    data_section,
    described,
    mapping,
    string,
    symbol,
    uint,
)
from tests.wire.control import Control, exchange, in_transaction, named, outcomes_by_id, waiting

BATCH = uint(0x80013700)
MESSAGES = [data_section(b"one"), composite(0x73, [string("id")]) + data_section(b"two")]


# Nodes that take batches apart, beside the queues that are made when they are named.
CONFIG = """
[[queue]]
name = "unpacking"
unpack-batches = true
[[queue]]
name = "small"
max-length = 2
unpack-batches = true
[[stream]]
name = "events"
partitions = 4
unpack-batches = true
[[topic]]
name = "news"
unpack-batches = true
[[exchange]]
name = "unbound"
unpack-batches = true
"""


def batch(messages: list[bytes], envelope: bytes = b"") -> bytes:
    """Encode a batch."""
    return envelope + b"".join(described(0x75, binary(message)) for message in messages)


def send(peer: Client, address: str, payload: bytes) -> tuple[str, str]:
    """Send a batch on a link of its own; its outcome, and the condition of the error in it."""
    peer.sender(address)
    frame = transfer_frame(payload, 0, uint(0), binary(b"t"), message_format=BATCH)
    (state,) = outcomes_by_id(exchange(peer, frame)).values()
    return state.name, (condition_of(state.field(0)) or ("", ""))[0]


@pytest.mark.spec("2.8.11")
def test_a_node_that_does_not_unpack_rejects_a_batch(
    peer: Client, broker: Broker, address: str
) -> None:
    assert send(peer, address, batch(MESSAGES)) == ("rejected", "amqp:not-implemented")
    assert waiting(broker.port, address) == []


@pytest.mark.spec("2.8.11")
def test_a_queue_takes_a_batch_apart(peer: Client, broker: Broker) -> None:
    assert send(peer, "unpacking", batch(MESSAGES))[0] == "accepted"
    with Client(broker.port) as client:
        client.begin().receiver("unpacking")
        found = named(exchange(client, flow_frame(uint(1), uint(9), uint(0), drain=TRUE)),
                      "transfer")  # fmt: skip
    assert [answer.payload for answer in found] == MESSAGES
    # They are messages of AMQP's own format.
    assert {answer.field(3) for answer in found} <= {None, 0}


@pytest.mark.spec("2.8.11")
def test_a_topic_takes_a_batch_apart(peer: Client, broker: Broker) -> None:
    with Client(broker.port) as client:
        client.begin().receiver("news")
        assert send(peer, "news", batch(MESSAGES))[0] == "accepted"
        assert [answer.payload for answer in client.arrivals(2)] == MESSAGES


@pytest.mark.spec("2.8.11")
def test_the_partition_key_of_a_batch_is_for_all_its_messages(peer: Client, broker: Broker) -> None:
    envelope = described(0x72, mapping(symbol("x-opt-partition-key"), string("k")))
    with Client(broker.port) as client:
        client.begin().receiver("events")
        assert send(peer, "events", batch(MESSAGES, envelope))[0] == "accepted"
        first, second = (answer.payload for answer in client.arrivals(2))
    for payload, message in ((first, MESSAGES[0]), (second, MESSAGES[1])):
        assert b"x-opt-partition-key\xa1\x01k" in payload and payload.endswith(message)
    # One key, one partition.
    partition = b"x-opt-partition\x71"
    place = first.index(partition) + len(partition)
    assert first[place : place + 4] == second[place : place + 4]


@pytest.mark.spec("2.8.11")
@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (batch([]), "amqp:decode-error"),
        (batch([MESSAGES[0], b"no message"]), "amqp:decode-error"),
        (batch([MESSAGES[0], MESSAGES[0] + composite(0x70, [TRUE])]), "amqp:decode-error"),
        (described(0x77, string("no batch")), "amqp:decode-error"),
        (b"no sections", "amqp:decode-error"),
    ],
    ids=["empty", "message", "order", "value", "bytes"],
)
def test_a_malformed_batch_is_rejected_as_a_whole(
    peer: Client, broker: Broker, payload: bytes, condition: str
) -> None:
    before = len(waiting(broker.port, "unpacking"))
    assert send(peer, "unpacking", payload) == ("rejected", condition)
    assert len(waiting(broker.port, "unpacking")) == before


@pytest.mark.spec("2.8.11")
def test_a_batch_that_does_not_fit_is_rejected_as_a_whole(peer: Client, broker: Broker) -> None:
    outcome = send(peer, "small", batch([data_section(b"%d" % n) for n in range(3)]))
    assert outcome == ("rejected", "amqp:resource-limit-exceeded")
    assert waiting(broker.port, "small") == []
    with Client(broker.port) as client:
        assert send(client.begin(), "small", batch(MESSAGES))[0] == "accepted"


@pytest.mark.spec("2.8.11")
def test_a_batch_that_nobody_wants_is_refused(peer: Client) -> None:
    assert send(peer, "unbound", batch(MESSAGES))[0] in ("released", "rejected")


@pytest.mark.spec("2.8.11", "4.4.1")
def test_a_batch_is_no_part_of_a_transaction(peer: Client, broker: Broker) -> None:
    peer.sender("unpacking")
    control = Control(peer)
    txn = control.declare()
    number = next(control.ids)
    frame = transfer_frame(batch(MESSAGES), 0, uint(number), binary(b"b"),
                           state=in_transaction(txn), message_format=BATCH)  # fmt: skip
    before = len(waiting(broker.port, "unpacking"))
    states = outcomes_by_id(exchange(peer, frame, control.discharge(txn)))
    assert states[number + 1].name == "rejected"
    assert len(waiting(broker.port, "unpacking")) == before
