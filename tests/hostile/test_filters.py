"""Filters that a naive matcher would take for ever over, or not survive: selectors, patterns of
topics, and values that are no filters (AMQP 1.0 §3.5.3, §3.5.8)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.site import Site
from tests.raw.frames import attach_frame, close_frame, flow_frame, source, target
from tests.raw.process import Broker
from tests.raw.values import (
    TRUE,
    data_section,
    described,
    mapping,
    sequence,
    string,
    symbol,
    uint,
)

# Messages at the queue that the filters are tried on, each with a property of so many letters.
MESSAGES = 2_000
LETTERS = 500


def filters(name: str, value: bytes) -> bytes:
    return mapping(symbol("f"), described(symbol(f"apache.org:{name}"), value))


def selector(text: str) -> bytes:
    return filters("selector-filter:string", string(text))


def topic(text: str) -> bytes:
    return filters("legacy-amqp-topic-binding:string", string(text))


SLOW = {
    "like-any-one": selector("a LIKE '" + "%_" * 200 + "y'"),
    "like-any-letter": selector("a LIKE '" + "%x" * 200 + "y'"),
    "like-with-escapes": selector("a LIKE '" + "%!%" * 200 + "' ESCAPE '!'"),
    "like-of-8000": selector("a LIKE '" + "%_" * 4_000 + "'"),
    "many-likes": selector(" OR ".join(["a LIKE '%_%_%y'"] * 50)),
    "in-of-2000": selector("a IN (" + ",".join(f"'{n}'" for n in range(2000)) + ")"),
    "ors-of-500": selector(" OR ".join(f"a = '{n}'" for n in range(500))),
    "arithmetic": selector("b " + "* 9999999999 " * 200 + "> 1"),
    "division-by-zero": selector("1 / 0 = 1 OR 1.0 / 0.0 > 1"),
    "topic-of-hashes": topic(".".join(["#"] * 500) + ".end"),
    "topic-of-hashes-and-stars": topic(".".join(["#", "*"] * 250) + ".end"),
    "topic-of-words": topic(".".join(["x"] * 5_000)),
}

REFUSED = {
    "nested-parentheses": selector("(" * 5_000 + "a = 1" + ")" * 5_000),
    "nots": selector("NOT " * 3_000 + "TRUE"),
    "minuses": selector("- " * 7_000 + "1 = 1"),
    "half-a-selector": selector("a = "),
    "an-endless-string": selector("a = '" + "x" * 10_000),
    "a-huge-number": selector("a = 1" + "0" * 10_000),
    "a-huge-exponent": selector("a = 1e999999999"),
    "not-utf-16": selector("a = '\U0010ffff\0'  \x07"),
    "no-string": filters("selector-filter:string", sequence(TRUE)),
    "no-text": filters("selector-filter:string", uint(7)),
    "no-map": filters("legacy-amqp-headers-binding:map", string("x-match")),
    "no-value": mapping(symbol("f"), symbol("apache.org:selector-filter:string")),
}


@pytest.fixture(scope="module")
def broker(config: str) -> Iterator[Broker]:
    """With a queue full of messages."""
    with Broker(config) as process:
        with Site(process, None).client() as client:  # type: ignore[arg-type]
            words = ".".join(["x"] * (LETTERS // 2))
            section = described(
                0x74, mapping(string("a"), string("x" * LETTERS), string("b"), uint(7))
            )
            subject = described(0x73, sequence(*[b"\x40"] * 3, string(words)))
            client.begin().sender("q").publish([subject + section + data_section()] * MESSAGES)
            client.close()
        yield process


def attach_with(site: Site, chosen: bytes) -> tuple[bool, str]:
    """Whether the filter is granted, and what the link is refused with."""
    with site.client() as client:
        where = source(string("q"), filters=chosen, mode=symbol("copy"))
        client.begin().send(attach_frame("r", 1, receiver=True, source=where, target=target()))
        attach = client.expect("attach")
        condition = ""
        if attach.field(5) is None:
            condition = client.verdict().condition
        else:
            client.send(flow_frame(uint(1), uint(1), uint(0)), flow_frame(echo=TRUE))
            while (answer := client.read()) is not None and answer.name != "flow":
                assert answer.name in ("transfer", "empty")
        client.send(close_frame())
        while client.read() is not None:
            pass
        granted = getattr(attach.field(5), "fields", [])
        return len(granted) > 7 and bool(granted[7]), condition


@pytest.mark.parametrize("chosen", SLOW.values(), ids=SLOW)
def test_a_filter_costs_what_its_length_and_that_of_the_messages_say(
    site: Site, chosen: bytes
) -> None:
    """It is tried on two thousand messages, and others are served in between."""

    def attack() -> None:
        attach_with(site, chosen)

    site.endures(attack)


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize("chosen", REFUSED.values(), ids=REFUSED)
def test_what_is_no_filter(site: Site, chosen: bytes) -> None:
    """It is not granted, or costs the link, and nothing else."""

    def attack() -> None:
        granted, condition = attach_with(site, chosen)
        assert not granted
        assert condition in ("", "amqp:invalid-field", "amqp:not-implemented")

    site.endures(attack)
