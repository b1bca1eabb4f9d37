"""Hostile messages: the broker reads as little of them as it needs, and others read the rest.

There is a consumer with a selector at the queue, for whom properties and application-properties are
read, one that wants to see all, and a policy that reads annotations.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.hostile.poison import DEEP, HEAVY, MALFORMED, colliding_uuids
from tests.hostile.site import Site
from tests.raw.answers import Answer, Composite, condition_of
from tests.raw.client import Client
from tests.raw.frames import attach_frame, flow_frame, source, target, transfer_frame
from tests.raw.process import MIB
from tests.raw.values import (
    EMPTY_LIST,
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

HEADER, DELIVERY, MESSAGE, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER = range(
    0x70, 0x79
)
BODY = data_section()
# Those of `DEEP` that are made in time that follows their depth.
LINEAR = ("lists", "maps", "descriptors", "described", "array-descriptors")

SECTIONS: dict[str, Callable[[bytes], bytes]] = {
    "header": lambda value: composite(HEADER, [value]) + BODY,
    "header-whole": lambda value: described(HEADER, value) + BODY,
    "delivery-annotations": lambda value: (
        described(DELIVERY, mapping(symbol("x-opt-a"), value)) + BODY
    ),
    "delivery-annotations-whole": lambda value: described(DELIVERY, value) + BODY,
    "message-annotations": lambda value: (
        described(MESSAGE, mapping(symbol("x-opt-partition-key"), value)) + BODY
    ),
    "message-annotations-whole": lambda value: described(MESSAGE, value) + BODY,
    "properties": lambda value: composite(PROPERTIES, [value, value, string("to"), value]) + BODY,
    "properties-of-an-expiry": lambda value: (
        composite(PROPERTIES, [NULL] * 8 + [value, value, value, value]) + BODY
    ),
    "properties-whole": lambda value: described(PROPERTIES, value) + BODY,
    "application-properties": lambda value: (
        described(APPLICATION, mapping(string("a"), value)) + BODY
    ),
    "application-properties-key": lambda value: (
        described(APPLICATION, mapping(value, string("x"))) + BODY
    ),
    "application-properties-whole": lambda value: described(APPLICATION, value) + BODY,
    "data": lambda value: described(DATA, value),
    "sequence": lambda value: described(SEQUENCE, value),
    "value": lambda value: described(VALUE, value),
    "footer": lambda value: BODY + described(FOOTER, value),
    "section-code": lambda value: described(value, EMPTY_LIST) + BODY,
    "not-a-section": lambda value: value,
}
# The broker needs all of the header, reads all annotations and the footer, and does not look into
# the bare message.
READ = ("header", "header-whole")
UNREAD = ("data", "sequence", "value", "properties", "properties-whole",
          "application-properties", "application-properties-key",
          "application-properties-whole")  # fmt: skip


def selector(text: str) -> bytes:
    return mapping(
        symbol("s"), described(symbol("apache.org:selector-filter:string"), string(text))
    )


class Exchange:
    """A client with a queue of its own, two browsers there, of what a selector finds and of
    everything, and what these have got: the payloads of both."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.found: list[bytes] = []
        self.seen: list[bytes] = []
        self._parts: dict[object, bytes] = {}
        self._number = 0
        client.begin()
        client.send(attach_frame("s", 0, target=target(dynamic=TRUE), source=source()))
        where = client.expect("attach").field(6)
        assert isinstance(where, Composite)
        address = str(where.field(0))
        client.expect("flow")
        copy = symbol("copy")
        chosen = source(string(address), mode=copy, filters=selector("a = 'x'"))
        for handle, place in ((1, chosen), (2, source(string(address), mode=copy))):
            client.send(
                attach_frame(f"r{handle}", handle, receiver=True, source=place, target=target()),
                flow_frame(uint(handle), uint(100_000), uint(0)),
            )
            client.expect("attach", "flow")

    def take(self, name: str) -> Answer:
        """The next frame of this name; deliveries are kept on the way."""
        while True:
            answer = self.client.read()
            assert answer is not None
            if answer.name == "transfer":
                handle = answer.field(0)
                whole = self._parts.pop(handle, b"") + answer.payload
                if answer.field(5):
                    self._parts[handle] = whole
                else:
                    (self.found if handle == 0x01 else self.seen).append(whole)
                if name == "transfer":
                    return answer
            elif answer.name == name:
                return answer
            else:
                assert answer.name in ("flow", "empty"), answer

    def send(self, payload: bytes) -> tuple[str, str]:
        """What becomes of a message: accepted, or rejected and why."""
        number = self._number
        self._number += 1
        pieces = [payload[at : at + 60_000] for at in range(0, len(payload), 60_000)] or [b""]
        for at, piece in enumerate(pieces):
            more = TRUE if at + 1 < len(pieces) else FALSE
            first = (uint(number), binary(b"%d" % number)) if at == 0 else (NULL, NULL)
            self.client.send(transfer_frame(piece, 0, *first, more=more))
        state = self.take("disposition").field(4)
        assert isinstance(state, Composite)
        error = condition_of(state.field(0))
        return state.name, "" if error is None else error[0]


@pytest.mark.spec("3.2")
@pytest.mark.parametrize("section", SECTIONS)
def test_a_hostile_value_in_a_section(site: Site, section: str) -> None:
    """It costs the message at most. What need not be read is passed on, and no selector finds it;
    the links are as good as ever."""
    make = SECTIONS[section]
    good = described(APPLICATION, mapping(string("a"), string("x"))) + BODY

    def attack() -> None:
        with site.client() as client:
            exchange = Exchange(client)
            passed: list[bytes] = []
            for name, value in (MALFORMED | HEAVY).items():
                payload = make(value)
                found = exchange.send(payload)
                if found[0] == "accepted":
                    passed.append(payload)
                else:
                    assert found == ("rejected", "amqp:decode-error"), name
                if section in READ and name in MALFORMED:
                    assert found[0] == "rejected", name
                if section in UNREAD:
                    assert found[0] == "accepted", name
            assert exchange.send(good) == ("accepted", "")
            while not exchange.found or exchange.seen[-1:] != [good]:
                exchange.take("transfer")
            assert exchange.found == [good]
            # Delivery-annotations end here (AMQP 1.0 §3.2.2).
            if not section.startswith("delivery-annotations"):
                assert exchange.seen[:-1] == passed
            client.close()

    site.endures(attack, bound=16 * MIB)


LONG = {
    "10001-data-sections": BODY * 10_001,
    "10001-footers": BODY + described(FOOTER, mapping()) * 10_001,
    "10001-headers": composite(HEADER, [TRUE]) * 10_001 + BODY,
    "properties-after-the-body": BODY + composite(PROPERTIES, [string("id")]),
    "properties-twice": composite(PROPERTIES, [string("id")]) * 2 + BODY,
    "all-in-reverse": (
        BODY
        + described(APPLICATION, mapping(string("a"), string("x")))
        + composite(PROPERTIES, [string("id")])
        + composite(HEADER, [TRUE])
    ),
    "a-symbol-with-a-suffix": (
        described(symbol("amqp:application-properties:map@"), mapping(string("a"), string("x")))
        + BODY
    ),
    "no-body": composite(HEADER, [TRUE]),
    "nothing": b"",
    "not-sections": b"\xff" * 1000,
    **{f"body-of-{name}-to-10^5": described(VALUE, DEEP[name](100_000)) for name in LINEAR},
    **{
        f"application-properties-of-{name}-to-10^5": described(
            APPLICATION, mapping(string("a"), DEEP[name](100_000))
        )
        + BODY
        for name in LINEAR
    },
    "application-properties-of-many": (
        described(APPLICATION, mapping(*[string(f"{n:06}") for n in range(100_000)])) + BODY
    ),
    "application-properties-that-collide": (described(APPLICATION, colliding_uuids(50_000)) + BODY),
    "annotations-of-many": (
        described(MESSAGE, mapping(*[symbol(f"x-opt-{n:05}") for n in range(60_000)])) + BODY
    ),
}


@pytest.mark.spec("3.2")
@pytest.mark.parametrize("name", LONG)
def test_a_message_of_many_parts(site: Site, name: str) -> None:
    """10 001 sections, sections out of their order, values nested to a depth of a hundred thousand:
    they pass as they are, or are rejected, in time that follows their bytes."""
    payload = LONG[name]

    def attack() -> None:
        with site.client() as client:
            exchange = Exchange(client)
            found = exchange.send(payload)
            if found[0] == "accepted":
                while not exchange.seen:
                    exchange.take("transfer")
                assert exchange.seen == [payload] and not exchange.found
            else:
                assert found == ("rejected", "amqp:decode-error")
            client.close()

    site.endures(attack, bound=16 * MIB)
