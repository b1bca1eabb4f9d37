"""Readers of streams that ask for the largest chunks there are, and do not take them; that look for
what is not there; that come and go."""

from __future__ import annotations

import contextlib
import itertools
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrymq.chunks import CHUNKS, MAX_CHUNK_BYTES
from tests.hostile.site import Site
from tests.raw.client import Client
from tests.raw.frames import attach_frame, begin_frame, detach_frame, flow_frame, source, target
from tests.raw.process import MIB, PATIENCE, Broker
from tests.raw.values import (
    data_section,
    described,
    mapping,
    sequence,
    string,
    symbol,
    uint,
    ulong,
)

# A stream of 40 MB, most of which is on disk alone.
MESSAGES, SIZE = 10_000, 4_000
LARGEST = mapping(
    symbol(CHUNKS),
    mapping(symbol("bytes"), ulong(MAX_CHUNK_BYTES), symbol("records"), uint(65_536)),
)
# What chunks may have of the memory: those that are being made, those in which they are gathered,
# and one for each of a few connections on its way.
ROOM = 160 * MIB

_names = itertools.count()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("store")
    return f'[store]\npath = "{folder / "store"}"\n[[stream]]\nname = "s"\n'


@pytest.fixture(scope="module")
def broker(config: str) -> Iterator[Broker]:
    with Broker(config) as process:
        with Client(process.port) as client:
            client.begin().sender("s").publish([data_section(bytes(SIZE))] * MESSAGES)
            client.close()
        yield process


def reader(handle: int, offset: int = 0, selector: str = "", channel: int = 0) -> bytes:
    """The attach of a reader of the stream from an offset on, which wants the largest chunks."""
    filters = [symbol("p"), described(symbol("ferrymq:position"), ulong(offset))]
    if selector:
        name = symbol("apache.org:selector-filter:string")
        filters += [symbol("f"), described(name, string(selector))]
    return attach_frame(
        # All of them are of one container, and links with one name would take each other's place.
        f"r{next(_names)}",
        handle,
        receiver=True,
        source=source(string("s::0"), filters=mapping(*filters)),
        target=target(),
        properties=LARGEST,
        channel=channel,
    )


def credit(handle: int, count: int = 1, channel: int = 0, window: int = 0x7FFFFFFF) -> bytes:
    return flow_frame(uint(handle), uint(count), uint(0), channel=channel, incoming_window=window)


def test_readers_that_take_nothing(site: Site) -> None:
    """Twenty links on each of ten connections, which begin at different places and never read."""
    peaks: list[int] = []

    def attack() -> None:
        site.broker.forget_peak()
        before = site.broker.memory()
        clients = [Client(site.port).begin() for _ in range(10)]
        try:
            for number, client in enumerate(clients):
                places = [(handle, 20 * handle + number) for handle in range(20)]
                client.send(*(reader(handle, offset) for handle, offset in places))
                client.send(*(credit(handle) for handle, _ in places))
            time.sleep(0.5)
        finally:
            for client in clients:
                client.socket.close()
        peaks.append(site.broker.peak() - before)

    site.endures(attack, bound=32 * MIB, attackers=10)
    assert max(peaks) < ROOM


def test_sessions_that_take_one_frame(site: Site) -> None:
    """The rest of each chunk waits for a window that nobody opens."""
    peaks: list[int] = []

    def attack() -> None:
        site.broker.forget_peak()
        before = site.broker.memory()
        with site.client() as client:
            client.begin()
            for channel in range(1, 30):
                client.send(begin_frame(channel, incoming_window=1))
                client.send(reader(0, 10 * channel, channel=channel))
                client.send(credit(0, channel=channel, window=1))
            time.sleep(0.5)
            client.socket.close()
        peaks.append(site.broker.peak() - before)

    site.endures(attack, bound=32 * MIB)
    assert max(peaks) < ROOM


def test_readers_that_look_for_what_is_not_there(site: Site) -> None:
    """All of the stream, for selectors that cost much and match nothing."""
    selector = " OR ".join(f"a = '{n}'" for n in range(200))

    def attack() -> None:
        with site.client() as client:
            client.begin()
            for handle in range(4):
                client.send(reader(handle, selector=selector), credit(handle, 1))
            client.arrivals(1)
            client.socket.close()

    site.endures(attack, bound=32 * MIB)


def test_readers_of_large_chunks_keep_nobody_waiting(site: Site) -> None:
    """Four of them read all of the stream from the disk."""

    def attack() -> None:
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(site.client()).begin() for _ in range(4)]
            for client in clients:
                client.send(reader(0), credit(0, 50))
            left = dict.fromkeys(clients, MESSAGES * SIZE)
            while left:
                ready, _, _ = select.select([client.socket for client in left], [], [], PATIENCE)
                assert ready
                for client in list(left):
                    if client.socket in ready:
                        left[client] -= len(client.socket.recv(1 << 20))
                        if left[client] <= 0:
                            del left[client]
            for client in clients:
                client.socket.close()

    site.endures(attack, bound=64 * MIB, attackers=4)


def test_readers_that_come_and_go_in_the_middle_of_a_chunk(site: Site) -> None:
    with site.client() as client:
        client.begin()

        def attack() -> None:
            for handle in range(20):
                client.send(reader(handle, 10 * handle), credit(handle))
                client.send(detach_frame(handle))
            ends = 0
            while ends < 20:
                answer = client.read()
                assert answer is not None
                ends += answer.name == "detach"

        site.endures(attack, bound=32 * MIB)
        client.close()


def test_properties_that_ask_for_nonsense(site: Site) -> None:
    """Chunks of nothing, of more than there is in the world, of something else."""
    chosen = [
        mapping(symbol(CHUNKS), sequence()),
        mapping(symbol(CHUNKS), mapping(symbol("bytes"), ulong(0))),
        mapping(symbol(CHUNKS), mapping(symbol("records"), string("x" * 10_000))),
        mapping(symbol(CHUNKS), mapping(), symbol("ferrymq:until"), ulong(2**64 - 1)),
    ]

    def attack() -> None:
        for properties in chosen:
            with site.client() as client:
                where = source(string("s::0"))
                client.begin().send(
                    attach_frame(
                        "r",
                        0,
                        receiver=True,
                        source=where,
                        target=target(),
                        properties=properties,
                    )
                )
                assert client.verdict().condition == "amqp:invalid-field"

    site.endures(attack)
