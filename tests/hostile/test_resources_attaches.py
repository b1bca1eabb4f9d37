"""What all the attaches of one connection take, with limits as they are by default."""

from __future__ import annotations

import pytest

from tests.hostile.site import Site
from tests.raw.frames import (
    ATTACH,
    SOURCE,
    attach_frame,
    composite,
    flow_frame,
    frame,
    source,
    target,
)
from tests.raw.process import MIB
from tests.raw.values import (
    EMPTY_LIST,
    NULL,
    TRUE,
    array,
    described,
    mapping,
    sequence,
    string,
    symbol,
    uint,
)

LINKS = 200
# What selectors are made into weighs ten times what they are charged for, at worst.
CONDITIONS = 40 * MIB
SELECTORS = ("sums", "patterns")
EXCEEDED = "amqp:resource-limit-exceeded"
# Symbols without a character: a byte each.
SYMBOLS = array(b"\xa3", 15_000, bytes(15_000))
LISTS = mapping(symbol("x"), sequence(*[EMPTY_LIST] * 15_000))
MODIFIED = composite(0x27, [NULL, NULL, LISTS])


def _attach(number: int, where: bytes, offered: bytes = NULL, desired: bytes = NULL) -> bytes:
    fields = [
        string(f"a{number}"), uint(number), TRUE, NULL, NULL, where, target(), NULL, NULL, NULL,
        NULL, offered, desired,
    ]  # fmt: skip
    return frame(composite(ATTACH, fields))


def _selector(number: int, text: str) -> bytes:
    """Another one each time: nobody makes it into conditions once for all."""
    value = described(
        symbol("apache.org:selector-filter:string"), string(f"{text} AND b = {number}")
    )
    return source(string("q"), filters=mapping(symbol("s"), value))


# The selectors are as long as they may be; their text alone would be 2 MiB for all of them.
KINDS = {
    "capabilities": lambda n: _attach(n, source(string("q"), capabilities=SYMBOLS)),
    "offered": lambda n: _attach(n, source(string("q")), offered=SYMBOLS),
    "desired": lambda n: _attach(n, source(string("q")), desired=SYMBOLS),
    "default-outcome": lambda n: _attach(
        n, composite(SOURCE, [string("q"), *[NULL] * 7, MODIFIED])
    ),
    "target": lambda n: attach_frame(
        f"a{n}", n, target=target(string("q"), capabilities=SYMBOLS), source=source()
    ),
    "sums": lambda n: _attach(n, _selector(n, "a = " + "+".join(["a"] * 4000))),
    "patterns": lambda n: _attach(n, _selector(n, "a LIKE '" + "%_" * 4000 + "'")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_all_attaches_take(site: Site, kind: str) -> None:
    """Of most kinds tens of megabytes and more, if what it is made into were not counted."""
    attach = KINDS[kind]
    bound = CONDITIONS if kind in SELECTORS else 12 * MIB

    def attack(links: int) -> None:
        with site.client() as client:
            client.begin()
            refused = 0
            for number in range(links):
                client.send(attach(number))
            while refused < links and (answer := client.read()) is not None:
                if answer.name == "detach":
                    assert (answer.error() or ("",))[0] == EXCEEDED
                    refused += 1
                elif answer.name == "attach" and answer.field(1) == links - 1:
                    break
            client.send(flow_frame(echo=TRUE))
            client.expect("flow", "detach")
            # They are attached, or refused and not detached from the other side: as it will be.
            site.broker.memory_is_back(before, bound)
            client.close()

    before = site.broker.memory()
    attack(LINKS)
    site.broker.memory_is_back(before, bound)
