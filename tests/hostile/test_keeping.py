"""What a client says of its connection, sessions and links, and the broker need not keep."""

from __future__ import annotations

import pytest

from tests.hostile.site import Site
from tests.raw.frames import (
    attach_frame,
    begin_frame,
    close_frame,
    open_frame,
    source,
    target,
)
from tests.raw.process import MIB
from tests.raw.values import EMPTY_LIST, NULL, binary, mapping, sequence, string, symbol

EXCEEDED = "amqp:resource-limit-exceeded"


def lists(count: int) -> bytes:
    """A map with a list of empty ones: a byte each, sixty once they are read."""
    return mapping(symbol("x"), sequence(*[EMPTY_LIST] * count))


def test_properties_of_sessions_are_not_kept(site: Site) -> None:
    """Each of these begins would take four megabytes."""
    before = site.broker.memory()
    with site.client() as client:
        client.begin()
        for channel in range(1, 41):
            client.send(begin_frame(channel, properties=lists(60_000)))
            client.expect("begin")
        site.broker.memory_is_back(before, 16 * MIB)
        client.close()


def test_properties_of_connections_are_not_kept_when_they_are_many(site: Site) -> None:
    before = site.broker.memory()
    clients = [site.client().open(open_frame(properties=lists(7_500))) for _ in range(100)]
    try:
        # Of each of them there is what a connection takes, and not half a megabyte.
        site.broker.memory_is_back(before, 16 * MIB)
    finally:
        for client in clients:
            client.close()
            client.socket.close()


TOO_MUCH = {
    "name": attach_frame("n" * 20_000, target=target(string("q"))),
    "address": attach_frame("n", target=target(string("q" * 20_000))),
    "properties": attach_frame("n", target=target(string("q")), properties=lists(300)),
    "filters": attach_frame(
        "n", receiver=True, source=source(string("q"), filters=lists(300)), target=target()
    ),
    "source-properties": attach_frame(
        "n", receiver=True, source=source(string("q"), properties=lists(300)), target=target()
    ),
    "properties-beside-an-unsettled-map": attach_frame(
        "n",
        target=target(string("q")),
        properties=lists(300),
        unsettled=mapping(binary(b"t"), NULL),
    ),
}


@pytest.mark.parametrize("said", TOO_MUCH.values(), ids=TOO_MUCH)
def test_an_attach_that_would_take_much_costs_the_link(site: Site, said: bytes) -> None:
    """By what it takes once it is read, not by its bytes."""

    def attack() -> None:
        with site.client() as client:
            client.begin().send(said)
            assert client.verdict()[:2] == ("link", EXCEEDED)
            client.send(close_frame())
            while client.read() is not None:
                pass

    site.endures(attack)


@pytest.mark.spec("2.7.3")
def test_an_unsettled_map_of_any_size(site: Site, address: str) -> None:
    """Of deliveries that nobody knows."""

    def attack() -> None:
        with site.client() as client:
            pairs = (item for n in range(6_000) for item in (binary(b"%05d" % n), NULL))
            client.begin().send(
                attach_frame(
                    "s", source=source(), target=target(string(address)), unsettled=mapping(*pairs)
                )
            )
            answer = client.expect("attach")
            # None of them is ours.
            assert not answer.field(7)
            client.close()

    site.endures(attack)


def test_links_that_come_and_go_leave_nothing(site: Site) -> None:
    """Big names, whose links are closed again, and connections that are dropped."""

    def attack() -> None:
        with site.client() as client:
            client.begin()
            for number in range(30):
                name = f"{number}" + "n" * 15_000
                client.send(attach_frame(name, number, target=target(string("q"))))
            for _ in range(30):
                client.expect("attach", "flow")

    site.endures(attack)
