"""Hostile values in the fields of performatives (AMQP 1.0 §1.6, §2.7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.hostile.poison import HEAVY, MALFORMED
from tests.hostile.site import Site
from tests.raw.client import Client
from tests.raw.frames import (
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    attach_frame,
    begin_frame,
    disposition_frame,
    flow_frame,
    frame,
    open_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.process import MIB
from tests.raw.values import (
    FALSE,
    NULL,
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


def error_with(value: bytes) -> bytes:
    return composite(0x1D, [symbol("amqp:internal-error"), NULL, mapping(symbol("x"), value)])


def in_open_properties(client: Client, value: bytes) -> None:
    client.send(b"AMQP\x00\x01\x00\x00", open_frame(properties=mapping(symbol("x"), value)))
    assert client.take(8)
    client.expect("open")


def in_begin_properties(client: Client, value: bytes) -> None:
    client.open().send(begin_frame(properties=mapping(symbol("x"), value)))


def in_attach_properties(client: Client, value: bytes) -> None:
    properties = mapping(symbol("x"), value)
    where = target(string("values"))
    client.begin().send(attach_frame("s", target=where, source=source(), properties=properties))


def in_filters(client: Client, value: bytes) -> None:
    where = source(string("values"), filters=mapping(symbol("x"), value))
    client.begin().send(attach_frame("r", receiver=True, source=where, target=target()))


def in_described_filters(client: Client, value: bytes) -> None:
    filters = mapping(symbol("x"), described(symbol("x:unknown"), value))
    where = source(string("values"), filters=filters)
    client.begin().send(attach_frame("r", receiver=True, source=where, target=target()))


def in_dynamic_node_properties(client: Client, value: bytes) -> None:
    where = target(dynamic=TRUE, properties=mapping(symbol("x"), value))
    client.begin().send(attach_frame("s", source=source(), target=where))


def in_unsettled(client: Client, value: bytes) -> None:
    where = target(string("values"))
    unsettled = mapping(binary(b"t"), value)
    client.begin().send(attach_frame("s", source=source(), target=where, unsettled=unsettled))


def in_default_outcome(client: Client, value: bytes) -> None:
    fields = [string("values"), *[NULL] * 7, value]
    where = composite(0x28, fields)
    client.begin().send(attach_frame("r", receiver=True, source=where, target=target()))


def in_flow_properties(client: Client, value: bytes) -> None:
    client.begin().sender("values")
    client.send(flow_frame(uint(0), properties=mapping(symbol("x"), value)))


def in_transfer_state(client: Client, value: bytes) -> None:
    client.begin().sender("values")
    state = composite(0x25, [error_with(value)])
    client.send(transfer_frame(data_section(), 0, uint(0), binary(b"t"), state=state))


def in_disposition(client: Client, value: bytes) -> None:
    client.begin()
    client.send(disposition_frame(0, state=composite(0x25, [error_with(value)])))


def in_modified(client: Client, value: bytes) -> None:
    client.begin()
    state = composite(0x27, [FALSE, FALSE, mapping(symbol("x"), value)])
    client.send(disposition_frame(0, state=state))


def in_an_unknown_field(client: Client, value: bytes) -> None:
    client.begin().send(
        frame(composite(DISPOSITION, [TRUE, uint(0), NULL, NULL, NULL, NULL, value]))
    )


def in_detach(client: Client, value: bytes) -> None:
    client.begin().sender("values")
    client.send(frame(composite(DETACH, [uint(0), TRUE, error_with(value)])))


def in_end(client: Client, value: bytes) -> None:
    client.begin().send(frame(composite(END, [error_with(value)])))


def in_close(client: Client, value: bytes) -> None:
    client.begin().send(frame(composite(CLOSE, [error_with(value)])))


def as_the_performative(client: Client, value: bytes) -> None:
    client.begin().send(frame(value))


def as_the_fields(client: Client, value: bytes) -> None:
    client.begin().send(frame(described(DISPOSITION, value)))


def in_the_descriptor(client: Client, value: bytes) -> None:
    client.begin().send(frame(b"\x00" + value + b"\x45"))


PLACES: dict[str, Callable[[Client, bytes], None]] = {
    "open-properties": in_open_properties,
    "begin-properties": in_begin_properties,
    "attach-properties": in_attach_properties,
    "filters": in_filters,
    "described-filters": in_described_filters,
    "dynamic-node-properties": in_dynamic_node_properties,
    "unsettled": in_unsettled,
    "default-outcome": in_default_outcome,
    "flow-properties": in_flow_properties,
    "transfer-state": in_transfer_state,
    "disposition": in_disposition,
    "modified": in_modified,
    "detach": in_detach,
    "end": in_end,
    "close": in_close,
}
# Where nothing of any value but a certain one is right.
STRICT: dict[str, Callable[[Client, bytes], None]] = {
    "an-unknown-field": in_an_unknown_field,
    "the-performative": as_the_performative,
    "the-fields": as_the_fields,
    "the-descriptor": in_the_descriptor,
}
EVERYWHERE = PLACES | STRICT
# How large a value in an open may be: a frame of 8 KiB has some other fields (AMQP 1.0 §2.7.1).
OPEN_ROOM = 8_000


@pytest.mark.spec("1.6")
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_value_costs_the_connection(site: Site, name: str) -> None:
    """Wherever in a performative it is: nothing that follows it could be understood."""
    for place, put in PLACES.items():
        condition = "amqp:decode-error"
        if place == "open-properties" and len(MALFORMED[name]) > OPEN_ROOM:
            # Before the open nothing that large is looked at.
            condition = "amqp:connection:framing-error"
        with site.client() as client:
            put(client, MALFORMED[name])
            assert client.verdict()[:2] == ("connection", condition), place


@pytest.mark.spec("1.6")
@pytest.mark.parametrize("place", STRICT)
def test_a_value_in_place_of_something_else_costs_the_connection(site: Site, place: str) -> None:
    for name, value in (MALFORMED | HEAVY).items():
        with site.client() as client:
            STRICT[place](client, value)
            assert client.verdict()[:2] == ("connection", "amqp:decode-error"), name


@pytest.mark.parametrize("place", EVERYWHERE)
def test_malformed_values_leave_nothing_behind(site: Site, place: str) -> None:
    def attack() -> None:
        for value in MALFORMED.values():
            with site.client() as client:
                EVERYWHERE[place](client, value)
                client.verdict()

    site.endures(attack)


# What a value that is right costs where it is looked at, and is not what is wanted there.
WANTED = {
    "unsettled": ("session", "amqp:invalid-field"),
    "default-outcome": ("connection", "amqp:decode-error"),
}


@pytest.mark.spec("1.2.4")
@pytest.mark.parametrize("place", PLACES)
def test_a_value_of_many_elements_costs_no_more_than_its_bytes(site: Site, place: str) -> None:
    def attack() -> None:
        for name, value in HEAVY.items():
            if place == "open-properties" and len(value) > OPEN_ROOM:
                continue
            with site.client() as client:
                PLACES[place](client, value)
                if place in WANTED:
                    assert client.verdict()[:2] == WANTED[place], name
                    continue
                # It is alive: it answers a close.
                if place != "close":
                    client.send(frame(composite(CLOSE, [])))
                verdict = client.verdict()
                while verdict.scope not in ("connection", "end"):
                    verdict = client.verdict()
                assert verdict.condition == "", name

    site.endures(attack, bound=16 * MIB)
