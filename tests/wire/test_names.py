"""How long names and keys may be, where they come from, and what else the pages say of them."""

from __future__ import annotations

import pytest

from tests.raw.client import Client
from tests.raw.frames import attach_frame, source, target, transfer_frame
from tests.raw.process import Broker
from tests.raw.values import (
    NULL,
    binary,
    composite,
    data_section,
    described,
    mapping,
    string,
    symbol,
    uint,
)
from tests.wire.control import exchange, outcomes_by_id, refusal

INVALID = "amqp:invalid-field"
LONGEST = "k" * 2048


@pytest.fixture(scope="module")
def config() -> str:
    kinds = ("direct", "topic", "fanout", "headers")
    exchanges = [f"""
[[exchange]]
name = "{kind}"
routing = "{kind}"
[[exchange.binding]]
to = "all"
key = "{'#' if kind == 'topic' else LONGEST if kind == 'direct' else ''}"
""" for kind in kinds]
    return '[[queue]]\nname = "all"\n[[topic]]\nname = "news"\n' + "".join(exchanges)


def sending(address: str) -> bytes:
    """Encode an attach of a sender."""
    return attach_frame("s", 0, source=source(), target=target(string(address)))


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers"])
def test_a_key_in_an_address(peer: Client, kind: str) -> None:
    assert refusal(peer, sending(f"{kind}::{LONGEST}k")) == INVALID


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers"])
def test_the_longest_key_in_an_address(peer: Client, broker: Broker, kind: str) -> None:
    assert refusal(peer, sending(f"{kind}::{LONGEST}")) == ""
    outcomes = outcomes_by_id(
        exchange(peer, transfer_frame(data_section(), 0, uint(0), binary(b"t")))
    )
    assert outcomes[0].name == "accepted"


@pytest.mark.parametrize(
    ("kind", "arrives"), [("direct", False), ("topic", True), ("fanout", True), ("headers", True)]
)
@pytest.mark.parametrize("how", ["subject", "annotation"])
def test_a_longer_key_that_a_message_brings_is_one_that_no_binding_names(
    peer: Client, kind: str, how: str, arrives: bool
) -> None:
    assert refusal(peer, sending(kind)) == ""
    key = f"{LONGEST}k"
    message = (
        composite(0x73, [*[NULL] * 3, string(key)])
        if how == "subject"
        else described(0x72, mapping(symbol("x-opt-routing-key"), string(key)))
    )
    answers = exchange(peer, transfer_frame(message + data_section(), 0, uint(0), binary(b"t")))
    assert outcomes_by_id(answers)[0].name == ("accepted" if arrives else "released")


@pytest.mark.parametrize("encode", [string, symbol])
def test_an_annotated_key_is_a_string_or_a_symbol(peer: Client, encode: type[bytes]) -> None:
    assert refusal(peer, sending("direct")) == ""
    message = described(0x72, mapping(symbol("x-opt-routing-key"), encode(LONGEST)))
    answers = exchange(peer, transfer_frame(message + data_section(), 0, uint(0), binary(b"t")))
    assert outcomes_by_id(answers)[0].name == "accepted"


@pytest.mark.parametrize(("length", "refused"), [(1024, ""), (1025, INVALID)])
def test_the_name_of_a_node(peer: Client, length: int, refused: str) -> None:
    assert refusal(peer, sending("n" * length)) == refused


@pytest.mark.parametrize(("length", "refused"), [(1024, ""), (1025, INVALID)])
def test_the_name_of_a_subscription(peer: Client, length: int, refused: str) -> None:
    # USER@CONTAINER/LINK, of a client without a name.
    where = source(string("news"), durable=uint(2), expiry=symbol("never"))
    name = "n" * (length - len("attacker/"))
    assert refusal(peer, attach_frame(name, 1, True, where, target())) == refused


@pytest.mark.parametrize(("count", "refused"), [(115, ""), (128, "amqp:resource-limit-exceeded")])
def test_a_filter_of_many_entries_has_to_find_room_in_its_attach(
    peer: Client, count: int, refused: str
) -> None:
    entries = [part for n in range(count) for part in (string(f"p{n}"), string("v"))]
    filter = described(symbol("amqp:application-properties-filter"), mapping(*entries))
    where = source(string("all"), filters=mapping(symbol("f"), filter))
    assert refusal(peer, attach_frame("r", 1, True, where, target())) == refused


@pytest.mark.spec("2.6.1")
def test_what_a_stolen_link_held_has_failed_once(broker: Broker) -> None:
    with Client(broker.port) as first, Client(broker.port) as second:
        first.begin().sender("all").publish([data_section(b"x")])
        first.receiver("all", 1)
        (delivered,) = first.arrivals(1)
        assert delivered.payload == data_section(b"x")
        second.begin().receiver("all", 1)
        (again,) = second.arrivals(1)
        # The delivery-count of its header is 1.
        assert again.payload.endswith(b"\x40\x52\x01" + data_section(b"x"))
    broker.check()
