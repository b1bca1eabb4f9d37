"""Clients that say nothing, or far too little, or say it far too slowly."""

from __future__ import annotations

import threading
import time

import pytest

from tests.hostile.crowd import connect, sockets, wait_for_ends
from tests.hostile.site import Site
from tests.raw.client import Client
from tests.raw.frames import AMQP_HEADER, SASL_HEADER, begin_frame, open_frame, sasl_init
from tests.raw.process import MIB

HANDSHAKE = 1.0
# What a busy machine may add.
SLACK = 8.0


CONFIG = f"[limits]\nhandshake-timeout = {HANDSHAKE}\nconnections-per-address = 0\n"


def test_sockets_that_say_nothing(site: Site) -> None:
    """Five hundred of them, and who talks to the broker notices nothing."""

    def attack() -> None:
        with sockets() as crowd:
            crowd.extend(connect(site.port) for _ in range(500))
            assert wait_for_ends(crowd, HANDSHAKE + SLACK) > 0.1

    attack()
    before = site.broker.memory()
    site.witness.is_served(attack)
    site.broker.memory_is_back(before)


@pytest.mark.parametrize(
    "beginning",
    [b"", SASL_HEADER, SASL_HEADER + sasl_init()],
    ids=["nothing", "a security layer", "a login"],
)
def test_one_byte_at_a_time(site: Site, beginning: bytes) -> None:
    """However far they came: every byte in time is not all of it in time."""
    rest = (SASL_HEADER + sasl_init() + AMQP_HEADER + open_frame())[len(beginning) :]
    with sockets() as crowd:
        crowd.extend(connect(site.port) for _ in range(50))
        for one in crowd:
            one.sendall(beginning)
        over = threading.Event()

        def drip() -> None:
            for byte in rest:
                for one in crowd:
                    try:
                        one.send(bytes((byte,)))
                    except OSError:
                        continue
                if over.wait(0.1):
                    return

        thread = threading.Thread(target=drip)
        began = time.monotonic()
        thread.start()
        try:
            wait_for_ends(crowd, HANDSHAKE + SLACK)
            assert time.monotonic() - began > 0.5 * HANDSHAKE
        finally:
            over.set()
            thread.join()


def test_what_is_small_is_joined(site: Site) -> None:
    """A frame in pieces of two bytes takes the memory of a frame."""
    client = site.client().begin()
    with client:
        before = site.broker.memory()
        frame = begin_frame(properties=b"\xd1" + (60_000).to_bytes(4) + bytes(60_000))
        for at in range(0, len(frame) - 2, 2):
            client.socket.setblocking(True)
            client.socket.send(frame[at : at + 2])
        site.broker.memory_is_back(before, 2 * MIB)


def test_who_is_in_may_be_silent(site: Site) -> None:
    with Client(site.port) as client:
        client.authenticate().begin()
        time.sleep(HANDSHAKE + 0.5)
        client.sender("silence")
        client.close()
