"""What a source and a target say, and what becomes of it (AMQP 1.0 §3.5)."""

from __future__ import annotations

import pytest

from tests.raw.client import Client
from tests.raw.frames import (
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
    uint,
)
from tests.wire.control import exchange, named, waiting

ACCEPTED, REJECTED, RELEASED = (composite(code, []) for code in (0x24, 0x25, 0x26))
EMPTY_SYMBOLS = array(b"\xa3", 0)


def default_source(address: str, outcome: bytes, outcomes: bytes) -> bytes:
    """Encode a source with a default-outcome and with these outcomes."""
    return composite(SOURCE, [string(address), *[NULL] * 7, outcome, outcomes])


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize("outcomes", [EMPTY_SYMBOLS, NULL], ids=["empty", "null"])
@pytest.mark.parametrize(
    ("default", "stated", "left"),
    [(RELEASED, ACCEPTED, 1), (ACCEPTED, RELEASED, 0), (ACCEPTED, ACCEPTED, 0)],
    ids=["released", "accepted", "same"],
)
def test_without_outcomes_the_default_is_what_happens(
    peer: Client,
    broker: Broker,
    address: str,
    outcomes: bytes,
    default: bytes,
    stated: bytes,
    left: int,
) -> None:
    peer.sender(address)
    exchange(peer, transfer_frame(data_section(), 0, uint(0), binary(b"t")))
    where = default_source(address, default, outcomes)
    peer.send(attach_frame("r", 1, receiver=True, source=where, target=target()))
    granted = peer.expect("attach", "flow").field(5)
    assert granted.field(9) is None and granted.field(8) is not None  # type: ignore[attr-defined]
    peer.send(flow_frame(uint(1), uint(1), uint(0)))
    peer.arrivals(1)
    (answer,) = named(exchange(peer, disposition_frame(0, state=stated)), "disposition")
    # The source says what it has done.
    state = answer.field(4)
    assert state.name == ("released" if default == RELEASED else "accepted")  # type: ignore[attr-defined]
    assert len(waiting(broker.port, address)) == left


@pytest.mark.spec("3.5.3")
def test_an_outcome_that_was_not_agreed_ends_the_link(peer: Client, address: str) -> None:
    peer.sender(address)
    exchange(peer, transfer_frame(data_section(), 0, uint(0), binary(b"t")))
    where = source(string(address), outcomes=symbol("amqp:accepted:list"))
    peer.send(attach_frame("r", 1, receiver=True, source=where, target=target()))
    peer.expect("attach", "flow")
    peer.send(flow_frame(uint(1), uint(1), uint(0)))
    peer.arrivals(1)
    (detach,) = named(exchange(peer, disposition_frame(0, state=REJECTED)), "detach")
    assert detach.condition == "amqp:not-allowed"


@pytest.mark.spec("3.5.3")
def test_outcomes_that_do_not_exist_refuse_the_link(peer: Client, address: str) -> None:
    where = source(string(address), outcomes=symbol("amqp:forgotten:list"))
    peer.send(attach_frame("r", 1, receiver=True, source=where, target=target()))
    peer.expect("attach", "flow")
    assert peer.expect("detach").condition == "amqp:not-implemented"


@pytest.mark.spec("3.5.8")
def test_a_null_filter_lets_everything_through(peer: Client, address: str) -> None:
    peer.sender(address)
    exchange(peer, transfer_frame(data_section(), 0, uint(0), binary(b"t")))
    filters = mapping(symbol("apache.org:selector-filter:string"), NULL)
    peer.receiver(address, filters=filters)
    peer.arrivals(1)


LIFETIME, MODES = symbol("lifetime-policy"), symbol("supported-dist-modes")
WRONG = {
    "lifetime-symbol": mapping(LIFETIME, symbol("delete-on-close")),
    "lifetime-null": mapping(LIFETIME, NULL),
    "lifetime-of-another-type": mapping(LIFETIME, ACCEPTED),
    "mode-string": mapping(MODES, string("move")),
    "mode-unknown": mapping(MODES, symbol("throw")),
    "modes-of-strings": mapping(MODES, array(b"\xa1", 1, b"\x04move")),
}


@pytest.mark.spec("3.5.9")
@pytest.mark.parametrize("receiver", [False, True], ids=["target", "source"])
@pytest.mark.parametrize("properties", WRONG.values(), ids=WRONG)
def test_node_properties_of_other_types_are_refused(
    peer: Client, receiver: bool, properties: bytes
) -> None:
    where, other = source(), target(dynamic=TRUE, properties=properties)
    if receiver:
        where, other = source(dynamic=TRUE, properties=properties), target()
    peer.send(attach_frame("l", 0, receiver=receiver, source=where, target=other))
    peer.expect("attach")
    assert peer.expect("detach", "flow").condition == "amqp:invalid-field"


@pytest.mark.spec("3.5.9")
def test_node_properties_may_have_strings_for_keys(peer: Client) -> None:
    close = described(0x2B, b"\x45")
    properties = mapping(string("lifetime-policy"), close, string("supported-dist-modes"),
                         array(b"\xa3", 1, b"\x04copy"))  # fmt: skip
    where = target(dynamic=TRUE, properties=properties)
    peer.send(attach_frame("l", 0, source=source(), target=where))
    answer = peer.expect("attach")
    assert answer.field(6).field(0)  # type: ignore[attr-defined]
    peer.expect("flow")


@pytest.mark.spec("3.5.3", "3.5.4")
@pytest.mark.parametrize("receiver", [False, True], ids=["target", "source"])
def test_empty_node_properties_are_none(peer: Client, address: str, receiver: bool) -> None:
    where = source(string(address), properties=mapping())
    other = target(string(address), properties=mapping())
    peer.send(attach_frame("l", 0, receiver=receiver, source=where, target=other))
    peer.expect("attach", "flow")
    assert not named(exchange(peer), "detach")


@pytest.mark.spec("3.5.3", "3.5.4")
@pytest.mark.parametrize("receiver", [False, True], ids=["target", "source"])
def test_node_properties_without_a_dynamic_node_are_refused(
    peer: Client, address: str, receiver: bool
) -> None:
    properties = mapping(LIFETIME, described(0x2B, b"\x45"))
    where, other = source(), target(string(address), properties=properties)
    if receiver:
        where, other = source(string(address), properties=properties), target()
    peer.send(attach_frame("l", 0, receiver=receiver, source=where, target=other))
    assert peer.expect("attach").field(5 if receiver else 6) is None
    assert peer.expect("detach").condition == "amqp:invalid-field"


@pytest.mark.spec("3.5.3", "broker-2.3.11.3")
def test_a_source_that_names_no_outcomes_has_them_all(
    peer: Client, broker: Broker, address: str
) -> None:
    peer.sender(address).publish([data_section()])
    peer.send(attach_frame("r", 1, True, source(string(address)), target()))
    granted = peer.expect("attach", "flow").field(5)
    names = ("accepted", "rejected", "released", "modified")
    assert granted.field(9) == [f"amqp:{name}:list" for name in names]  # type: ignore[attr-defined]
    peer.send(flow_frame(uint(1), uint(1), uint(0)))
    peer.arrivals(1)
    exchange(peer, disposition_frame(0, settled=TRUE, state=ACCEPTED))
    assert waiting(broker.port, address) == []


@pytest.mark.spec("3.5.4")
def test_the_answer_has_the_capabilities_that_the_target_has(peer: Client, address: str) -> None:
    asked = array(b"\xa3", 2, b"\x05queue\x0bimaginative")
    where = target(string(address), capabilities=asked)
    peer.send(attach_frame("s", 0, source=source(), target=where))
    assert peer.expect("attach").field(6).field(6) == ["queue"]  # type: ignore[attr-defined]


SELECTOR = "apache.org:selector-filter:string"


@pytest.mark.spec("3.5.8")
@pytest.mark.parametrize("key", [uint(5), NULL, binary(b"f")], ids=["uint", "null", "binary"])
def test_a_filter_without_a_name_is_malformed(peer: Client, address: str, key: bytes) -> None:
    filters = mapping(key, described(symbol(SELECTOR), string("a = 1")))
    where = source(string(address), filters=filters)
    peer.send(attach_frame("r", 0, True, where, target()))
    assert peer.verdict()[:2] == ("connection", "amqp:decode-error")


@pytest.mark.spec("3.5.8")
@pytest.mark.parametrize("value", [string("a = 1"), mapping(), TRUE], ids=["text", "map", "true"])
def test_a_filter_that_is_not_described_is_refused(
    peer: Client, address: str, value: bytes
) -> None:
    # Under the name that JMS clients give a selector, plain text is taken.
    where = source(string(address), filters=mapping(symbol("selector"), value))
    peer.send(attach_frame("r", 0, True, where, target()))
    assert peer.expect("attach").field(5) is None
    assert peer.expect("detach").condition == "amqp:invalid-field"


@pytest.mark.spec("3.5.1", "3.5.8")
def test_a_filter_decides_alike_each_time(peer: Client, broker: Broker, address: str) -> None:
    def numbered(number: int) -> bytes:
        return described(0x74, mapping(string("n"), uint(number))) + data_section(b"%d" % number)

    peer.sender(address).publish([numbered(number) for number in range(6)])
    both = mapping(
        symbol("selector"), described(symbol(SELECTOR), string("n > 2")),
        symbol("nothing"), NULL,
    )  # fmt: skip
    peer.receiver(address, 100, name="filtered", filters=both)
    for at in range(3):
        transfers = named(exchange(peer), "transfer")
        first = transfers[0].field(1)
        assert isinstance(first, int) and len(transfers) == 3
        # They come again, in their order, and no other does.
        bodies = [one.payload[-1:] for one in transfers]
        assert bodies == [b"3", b"4", b"5"], at
        peer.send(disposition_frame(first, uint(first + 2), settled=TRUE, state=RELEASED))
    assert len(waiting(broker.port, address)) == 3
