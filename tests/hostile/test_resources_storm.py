"""A thousand clients that come back at once, as after a network has failed: all get in."""

from __future__ import annotations

import time

from tests.hostile.crowd import connect, greeting, is_let_in, sockets
from tests.hostile.site import Site
from tests.raw.process import MIB

CLIENTS = 1000


def test_a_thousand_come_back(site: Site) -> None:
    def storm() -> float:
        with sockets() as crowd:
            began = time.monotonic()
            for _ in range(CLIENTS):
                one = connect(site.port)
                one.sendall(greeting())
                crowd.append(one)
            assert all(is_let_in(one) for one in crowd)
            return time.monotonic() - began

    storm()
    before = site.broker.memory()
    assert storm() < 30
    # What a thousand connections took is free again.
    site.broker.memory_is_back(before, 16 * MIB)
    site.witness.settle()


def test_who_comes_and_goes_leaves_nothing(site: Site) -> None:
    """At every stage of its beginning."""
    beginning = greeting()

    def come_and_go() -> None:
        for length in range(0, len(beginning), 3):
            with sockets() as crowd:
                one = connect(site.port)
                crowd.append(one)
                one.sendall(beginning[:length])

    come_and_go()
    before = site.broker.memory()
    for _ in range(5):
        come_and_go()
    site.broker.memory_is_back(before)


def test_thousands_come_and_go(site: Site) -> None:
    """More of them than may be there at a time, one after the other: a place that is not given
    back, or a connection that is kept, would show."""

    def some() -> None:
        with sockets() as crowd:
            for _ in range(100):
                one = connect(site.port)
                one.sendall(greeting())
                crowd.append(one)
            assert all(is_let_in(one) for one in crowd)

    some()
    before = site.broker.memory()
    for _ in range(30):
        some()
    site.broker.memory_is_back(before, 12 * MIB)
