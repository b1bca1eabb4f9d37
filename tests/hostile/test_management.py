"""Requests to `$management` that are none, or more than one would ask for."""

from __future__ import annotations

import pytest

from tests.hostile.poison import HEAVY, MALFORMED
from tests.hostile.site import Site
from tests.raw.client import Client
from tests.raw.frames import transfer_frame
from tests.raw.values import (
    EMPTY_LIST,
    NULL,
    array,
    binary,
    composite,
    data_section,
    described,
    mapping,
    sequence,
    string,
    uint,
)

PROPERTIES, APPLICATION, VALUE = 0x73, 0x74, 0x77


def ask(client: Client) -> None:
    client.begin().sender("$management").receiver("$management", 1000)


def request(body: bytes, **said: str) -> bytes:
    """A request with this body; application-properties are `said`."""
    items = [string(part) for pair in said.items() for part in pair]
    return (
        composite(PROPERTIES, [string("1")])
        + described(APPLICATION, mapping(*items))
        + described(VALUE, body)
    )


def answer_to(client: Client, number: int, payload: bytes) -> str:
    """What becomes of a request: its outcome. The response may come before or after that."""
    client.send(transfer_frame(payload, 0, uint(number), binary(b"%d" % number)))
    while True:
        answer = client.expect("disposition", "flow", "transfer", "empty")
        if answer.field(0) is True:
            return str(getattr(answer.field(4), "name", ""))


PLACES = {
    "body": lambda value: request(value, operation="CREATE", type="queue", name="m"),
    "attribute": lambda value: request(
        mapping(string("max-length"), value), operation="CREATE", type="queue", name="m"
    ),
    "attribute-name": lambda value: request(
        mapping(value, uint(1)), operation="CREATE", type="queue", name="m"
    ),
    "arguments": lambda value: request(
        mapping(string("count"), value),
        operation="PEEK",
        type="queue",
        name="m",
    ),
    "names": lambda value: request(
        mapping(string("attributeNames"), value), operation="QUERY", type="queue"
    ),
    "application-properties": lambda value: (
        described(APPLICATION, mapping(string("operation"), value)) + described(VALUE, NULL)
    ),
    "message-id": lambda value: (
        composite(PROPERTIES, [value])
        + described(APPLICATION, mapping(string("operation"), string("READ")))
        + described(VALUE, NULL)
    ),
    "section": lambda value: described(value, EMPTY_LIST),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_hostile_value_in_a_request(site: Site, place: str) -> None:
    """It is answered with an error, or rejected; the broker makes no mistake over it."""
    values = MALFORMED | HEAVY

    def attack() -> None:
        with site.client() as client:
            ask(client)
            for number, (name, value) in enumerate(values.items()):
                found = answer_to(client, number, PLACES[place](value))
                assert found in ("rejected", "accepted"), name
            client.close()

    site.endures(attack)


STRANGE = {
    "nothing": b"",
    "no-body": request(NULL)[:-1],
    "data": data_section(),
    "operation-of-60-kb": request(NULL, operation="x" * 60_000),
    "name-of-50-kb": request(NULL, operation="READ", type="queue", name="x" * 50_000),
    "type-of-control-characters": request(NULL, operation="READ", type="\0\n\x1b[2J"),
    "peek-of-2^32-1": request(
        mapping(string("count"), uint(0xFFFFFFFF)), operation="PEEK", type="queue", name="m"
    ),
    "names-of-nulls": request(
        mapping(string("attributeNames"), array(b"\x40", 0xFFFFFFFF)), operation="QUERY"
    ),
    "names-of-many": request(
        mapping(string("attributeNames"), sequence(*[string("name")] * 8_000)), operation="QUERY"
    ),
}


@pytest.mark.parametrize("payload", STRANGE.values(), ids=STRANGE)
def test_a_request_that_makes_no_sense(site: Site, payload: bytes) -> None:
    def attack() -> None:
        with site.client() as client:
            ask(client)
            for number in range(20):
                assert answer_to(client, number, payload) in ("rejected", "accepted")
            client.close()

    site.endures(attack)
