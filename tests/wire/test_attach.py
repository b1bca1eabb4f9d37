"""What the broker answers to an attach, frame by frame (AMQP 1.0 §2.7.3, §2.8)."""

from __future__ import annotations

import re
import struct

import pytest

from tests.raw.answers import Composite
from tests.raw.client import Client
from tests.raw.frames import (
    COORDINATOR,
    SOURCE,
    attach_frame,
    disposition_frame,
    flow_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.process import Broker
from tests.raw.values import (
    NULL,
    TRUE,
    array,
    binary,
    composite,
    data_section,
    described,
    mapping,
    string,
    symbol,
    ubyte,
    uint,
    ulong,
)
from tests.wire.control import exchange, named

FIRST, SECOND = 0, 1


@pytest.mark.spec("2.8.3", "broker-2.3.8.1")
@pytest.mark.parametrize(
    ("expiry", "properties", "granted"),
    [
        (NULL, NULL, FIRST),
        (symbol("never"), NULL, SECOND),
        (NULL, mapping(symbol("delivery-mode"), symbol("exactly-once")), SECOND),
        (NULL, mapping(symbol("delivery-mode"), symbol("at-least-once")), FIRST),
    ],
    ids=["ordinary", "lasting", "exactly-once", "at-least-once"],
)
def test_second_is_answered_only_where_the_target_keeps_deliveries(
    peer: Client, address: str, expiry: bytes, properties: bytes, granted: int
) -> None:
    where = target(string(address), expiry=expiry)
    peer.send(
        attach_frame(
            "s", 0, source=source(), target=where, rcv_settle_mode=ubyte(SECOND),
            properties=properties,
        )
    )  # fmt: skip
    assert peer.expect("attach", "flow").field(4) == granted
    peer.expect("flow")
    answers = exchange(peer, transfer_frame(data_section(), 0, uint(0), binary(b"t")))
    (disposition,) = named(answers, "disposition")
    # The broker has settled, or waits for the sender to settle.
    assert disposition.field(3) is (granted == FIRST)


@pytest.mark.spec("2.8.3")
def test_a_coordinator_settles_first(peer: Client) -> None:
    where = composite(COORDINATOR, [])
    peer.send(attach_frame("c", 0, source=source(), target=where, rcv_settle_mode=ubyte(SECOND)))
    assert peer.expect("attach", "flow").field(4) == FIRST


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize(
    ("mode", "applies"),
    [(NULL, "released"), (ubyte(1), "accepted")],
    ids=["mixed", "settled"],
)
def test_the_answer_names_the_default_outcome_that_applies(
    peer: Client, address: str, mode: bytes, applies: str
) -> None:
    where = source(string(address))
    peer.send(attach_frame("r", 0, True, source=where, target=target(), snd_settle_mode=mode))
    granted = peer.expect("attach").field(5)
    assert isinstance(granted, Composite)
    outcome = granted.field(8)
    assert isinstance(outcome, Composite) and outcome.name == applies


@pytest.mark.spec("3.5.3")
def test_what_is_settled_without_an_outcome_gets_the_default_outcome_of_the_answer(
    peer: Client, address: str
) -> None:
    peer.sender(address).send(transfer_frame(data_section(), 0, uint(0), binary(b"t")))
    peer.expect("disposition")
    peer.receiver(address, credit=1)
    peer.arrivals(1)
    # Released: the message is there for the next one.
    peer.send(disposition_frame(0, settled=TRUE), flow_frame(uint(1), uint(1), uint(1)))
    (again,) = peer.arrivals(1)
    assert again.payload.endswith(data_section())


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize(
    "state",
    [
        composite(0x33, [binary(b"txn")]),
        composite(0x23, [uint(0), ulong(0)]),
        composite(0x34, [binary(b"txn"), composite(0x24, [])]),
    ],
    ids=["declared", "received", "transactional-state"],
)
def test_a_state_that_is_no_outcome_is_no_default_outcome(
    peer: Client, address: str, state: bytes
) -> None:
    where = composite(SOURCE, [string(address), *[NULL] * 7, state])
    refused(peer, attach_frame("r", 0, True, source=where), "amqp:invalid-field")
    # The session goes on.
    peer.sender(address, handle=1)


@pytest.mark.spec("2.7.3")
def test_a_sender_without_a_source_gets_none(peer: Client, address: str) -> None:
    peer.send(attach_frame("s", 0, target=target(string(address))))
    answer = peer.expect("attach")
    assert answer.field(5) is None and isinstance(answer.field(6), Composite)


EXACTLY_ONCE = mapping(symbol("delivery-mode"), symbol("exactly-once"))
AT_LEAST_ONCE = mapping(symbol("delivery-mode"), symbol("at-least-once"))
AT_MOST_ONCE = mapping(symbol("delivery-mode"), symbol("at-most-once"))


@pytest.mark.spec("broker-2.3.6")
def test_a_control_link_has_at_least_once_or_is_refused(peer: Client) -> None:
    def attach(name: str, handle: int, properties: bytes) -> bytes:
        where = composite(COORDINATOR, [])
        return attach_frame(name, handle, source=source(), target=where, properties=properties)

    peer.send(attach("c", 0, AT_LEAST_ONCE))
    assert peer.expect("attach").field(13) == {"delivery-mode": "at-least-once"}
    peer.expect("flow")
    for handle, mode in enumerate((EXACTLY_ONCE, AT_MOST_ONCE), 1):
        refused(peer, attach(f"c{handle}", handle, mode), "amqp:not-implemented")


@pytest.mark.spec("broker-2.3.6")
@pytest.mark.parametrize("value", [symbol("at-times"), uint(1)], ids=["unknown", "number"])
def test_a_delivery_mode_that_does_not_exist_is_refused_and_no_wish_is(
    peer: Client, address: str, value: bytes
) -> None:
    where = target(string(address))
    wish = mapping(symbol("opt-delivery-mode"), value)
    peer.send(attach_frame("wish", 0, source=source(), target=where, properties=wish))
    assert peer.expect("attach").field(13) in (None, {})
    peer.expect("flow")
    condition = mapping(symbol("delivery-mode"), value)
    attach = attach_frame("must", 1, source=source(), target=where, properties=condition)
    refused(peer, attach, "amqp:invalid-field")


def refused(peer: Client, attach: bytes, condition: str) -> None:
    """Expect an attach with a null terminus and a closing detach with this condition."""
    peer.send(attach)
    answer = peer.expect("attach", "flow")
    assert answer.field(5 if answer.field(2) is False else 6) is None
    detach = peer.expect("detach")
    assert detach.field(1) is True and detach.condition == condition


BAD_SELECTOR = mapping(
    symbol("selector"), described(symbol("apache.org:selector-filter:string"), string("a = = b"))
)
PAIRED = mapping(symbol("paired"), TRUE)


@pytest.mark.spec("2.6.3")
@pytest.mark.parametrize(
    ("where", "more", "condition"),
    [
        ({"mode": symbol("sideways")}, NULL, "amqp:not-implemented"),
        ({"filters": BAD_SELECTOR}, NULL, "amqp:invalid-field"),
        ({}, PAIRED, "amqp:not-implemented"),
        ({}, EXACTLY_ONCE, "amqp:not-implemented"),
        ({}, mapping(symbol("priority"), string("high")), "amqp:invalid-field"),
    ],
    ids=["distribution-mode", "selector", "pair", "delivery-mode", "priority"],
)
def test_a_refused_receiver_leaves_no_node(
    broker: Broker, peer: Client, address: str, where: dict[str, bytes], more: bytes, condition: str
) -> None:
    refused(
        peer,
        attach_frame("r", 0, True, source=source(string(address), **where), properties=more),
        condition,
    )
    assert not is_there(broker, address)


@pytest.mark.spec("2.6.3")
@pytest.mark.parametrize(
    ("capability", "more", "mode", "condition"),
    [
        (NULL, PAIRED, NULL, "amqp:not-implemented"),
        (symbol("stream"), NULL, NULL, "amqp:precondition-failed"),
        (NULL, EXACTLY_ONCE, ubyte(1), "amqp:not-implemented"),
    ],
    ids=["pair", "kind", "delivery-mode"],
)
def test_a_refused_sender_leaves_no_node(
    broker: Broker,
    peer: Client,
    address: str,
    capability: bytes,
    more: bytes,
    mode: bytes,
    condition: str,
) -> None:
    where = target(string(address), capabilities=capability)
    refused(
        peer,
        attach_frame("s", 0, target=where, properties=more, snd_settle_mode=mode),
        condition,
    )
    assert not is_there(broker, address)


def is_there(broker: Broker, address: str) -> bool:
    """Whether management knows a queue of this address."""
    with Client(broker.port) as asker:
        where = string("$management")
        asker.begin().send(
            attach_frame("pair", 0, source=source(), target=target(where), properties=PAIRED),
            attach_frame("pair", 1, True, source=source(where), target=target(), properties=PAIRED),
            flow_frame(uint(1), uint(1), uint(0)),
        )
        asker.expect("attach", "flow")
        asker.expect("attach", "flow")
        asked = mapping(
            *(string(text) for text in ("operation", "READ", "type", "queue", "name", address))
        )
        reply = composite(0x73, [NULL, NULL, NULL, NULL, string("$me")])
        asker.send(transfer_frame(reply + described(0x74, asked), 0, uint(0), binary(b"t")))
        (response,) = asker.arrivals(1)
        return b"OK" in response.payload


@pytest.mark.spec("1.4")
def test_several_values_of_a_field_are_one_array(peer: Client, address: str) -> None:
    outcomes = symbols("amqp:accepted:list", "amqp:released:list")
    where = source(string(address), outcomes=outcomes)
    peer.send(attach_frame("r", 0, True, source=where, target=target()))
    size = struct.unpack(">I", peer.take(4))[0]
    attach = peer.take(size - 4)
    assert re.search(rb"\xe0.\x02\xa3\x12amqp:accepted:list\x12amqp:released:list", attach)


def symbols(*names: str) -> bytes:
    """Encode an array of symbols."""
    content = b"".join(bytes((len(name),)) + name.encode() for name in names)
    return array(b"\xa3", len(names), content)
