"""Messages that the broker takes, and those that it refuses, byte for byte (AMQP 1.0 §3.2)."""

from __future__ import annotations

import itertools

import pytest

from tests.raw.answers import condition_of
from tests.raw.client import Client
from tests.raw.frames import disposition_frame, flow_frame, transfer_frame
from tests.raw.process import Broker
from tests.raw.values import (
    FALSE,
    NULL,
    TRUE,
    binary,
    composite,
    data_section,
    described,
    mapping,
    sequence,
    string,
    symbol,
    uint,
    ulong,
)
from tests.wire.control import exchange, named, outcomes_by_id, waiting

HEADER, DELIVERY, MESSAGE, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER = range(
    0x70, 0x79
)
BODY = data_section(b"body")
SECTIONS = {
    "header": composite(HEADER, [TRUE]),
    "delivery-annotations": described(DELIVERY, mapping(symbol("a"), NULL)),
    "message-annotations": described(MESSAGE, mapping(symbol("a"), NULL)),
    "properties": composite(PROPERTIES, [string("id")]),
    "application-properties": described(APPLICATION, mapping(string("a"), NULL)),
    "data": BODY,
    "footer": described(FOOTER, mapping(symbol("a"), NULL)),
}
STREAM = "records"


# A stream beside the queues that are made when they are named.
CONFIG = f'[[stream]]\nname = "{STREAM}"\n'


def outcome(peer: Client, address: str, payload: bytes) -> tuple[str, str, str]:
    """Send a message on a link of its own; its outcome, and the error in it."""
    peer.sender(address)
    (answer,) = outcomes_by_id(
        exchange(peer, transfer_frame(payload, 0, uint(0), binary(b"t")))
    ).values()
    error = condition_of(answer.field(0)) or ("", "")
    return answer.name, *error


@pytest.mark.spec("3.2")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (first, second)
        for (at, first), (other, second) in itertools.product(enumerate(SECTIONS), repeat=2)
        if at >= other and first != "data" and (first, second) != ("footer", "data")
    ],
)
def test_sections_twice_or_out_of_order_are_refused(
    peer: Client, address: str, first: str, second: str
) -> None:
    whole = BODY if "footer" not in (first, second) else b""
    found = outcome(peer, address, SECTIONS[first] + SECTIONS[second] + whole)
    assert found[:2] == ("rejected", "amqp:decode-error")
    assert second in found[2], found


@pytest.mark.spec("3.2")
@pytest.mark.parametrize(
    "payload",
    [
        BODY + SECTIONS["message-annotations"],
        BODY + SECTIONS["properties"],
        BODY + described(VALUE, NULL),
        described(VALUE, NULL) * 2,
        described(SEQUENCE, sequence()) + BODY,
    ],
    ids=["annotations", "properties", "value", "values", "sequence"],
)
def test_what_must_not_be_behind_a_body_is_refused(
    peer: Client, address: str, payload: bytes
) -> None:
    assert outcome(peer, address, payload)[:2] == ("rejected", "amqp:decode-error")


@pytest.mark.spec("3.2")
@pytest.mark.parametrize(
    ("again", "expected"), [(b"", "accepted"), (SECTIONS["footer"], "rejected")]
)
def test_a_footer_in_front_of_the_body_is_taken_once(
    peer: Client, address: str, again: bytes, expected: str
) -> None:
    """rhea encodes it there."""
    assert outcome(peer, address, SECTIONS["footer"] + BODY + again)[0] == expected


@pytest.mark.spec("3.2")
def test_sections_in_their_order_are_taken(peer: Client, address: str) -> None:
    assert outcome(peer, address, b"".join(SECTIONS.values()))[0] == "accepted"


MALFORMED = {
    "not-a-map": sequence(symbol("a"), NULL),
    "null": NULL,
    "odd": mapping(symbol("a"), NULL, symbol("b")),
    "twice": mapping(symbol("a"), NULL, symbol("a"), NULL),
    "twice-as-a-string": mapping(symbol("a"), NULL, string("a"), NULL),
    "null-key": mapping(NULL, NULL),
    "number-key": mapping(uint(1), NULL),
    "binary-key": mapping(binary(b"a"), NULL),
    "not-ascii": mapping(string("é"), NULL),
    "value": mapping(symbol("a"), string(b"\xff")),
}


@pytest.mark.spec("3.2.10", "1.6.23")
@pytest.mark.parametrize("section", [DELIVERY, MESSAGE, FOOTER])
@pytest.mark.parametrize("to_stream", [False, True], ids=["queue", "stream"])
@pytest.mark.parametrize("annotations", MALFORMED.values(), ids=MALFORMED)
def test_malformed_annotations_are_refused(
    peer: Client, address: str, section: int, to_stream: bool, annotations: bytes
) -> None:
    part = described(section, annotations)
    payload = BODY + part if section == FOOTER else part + BODY
    found = outcome(peer, STREAM if to_stream else address, payload)
    assert found[:2] == ("rejected", "amqp:decode-error")


@pytest.mark.spec("3.2.10")
def test_string_keys_of_annotations_come_out_as_symbols(
    peer: Client, broker: Broker, address: str
) -> None:
    def message(key: bytes) -> bytes:
        annotations = mapping(key, string("v"), ulong(7), NULL)
        return described(MESSAGE, annotations) + BODY + described(FOOTER, mapping(key, NULL))

    assert outcome(peer, address, message(string("k")))[0] == "accepted"
    (found,) = waiting(broker.port, address)
    # The broker writes the shortest encoding.
    assert b"\xa3\x01k\xa1\x01v\x53\x07\x40" in found and b"\xa3\x01k\x40" in found
    assert b"\xa1\x01k" not in found


@pytest.mark.spec("2.8.13", "3.4.5")
@pytest.mark.parametrize("make", ["rejected", "modified"])
def test_string_keys_of_an_outcome_cost_nothing(
    peer: Client, broker: Broker, address: str, make: str
) -> None:
    fields = mapping(string("why"), string("x"))
    state = (
        composite(0x25, [composite(0x1D, [symbol("app:wrong"), NULL, fields])])
        if make == "rejected"
        else composite(0x27, [FALSE, FALSE, fields])
    )
    outcome(peer, address, BODY)
    peer.receiver(address, credit=1)
    peer.arrivals(1)
    again = exchange(
        peer,
        disposition_frame(0, settled=TRUE, state=state),
        flow_frame(uint(1), uint(1), uint(1), drain=TRUE),
    )
    if make == "modified":
        (redelivered,) = named(again, "transfer")
        assert b"\xa3\x03why\xa1\x01x" in redelivered.payload


@pytest.mark.spec("2.8.13")
def test_string_keys_of_properties_cost_nothing(peer: Client, address: str) -> None:
    properties = mapping(string("a"), NULL)
    peer.send(flow_frame(properties=properties, echo=TRUE))
    peer.expect("flow")


ERROR = composite(0x1D, [symbol("app:wrong")])


@pytest.mark.spec("3.2.2")
@pytest.mark.parametrize(
    ("value", "verdict"),
    [(ERROR, "accepted"), (string("no"), "rejected"), (NULL, "rejected"), (BODY, "rejected")],
    ids=["error", "string", "null", "data"],
)
def test_the_delivery_annotation_rejected_is_an_error(
    peer: Client, address: str, value: bytes, verdict: str
) -> None:
    payload = described(DELIVERY, mapping(symbol("rejected"), value)) + BODY
    assert outcome(peer, address, payload)[0] == verdict
