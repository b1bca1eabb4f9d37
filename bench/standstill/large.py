"""Scenarios with large messages: small requests that move many bytes."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Final

from bench.client import Peer
from bench.standstill.ground import Ground, drop
from ferrymq import Message
from ferrymq.engine.receiver import ReceiverLink
from ferrymq_types.messaging import Source

MIB: Final = 1 << 20
# Seconds within which readers must be done.
_PATIENCE: Final = 120.0
# Seconds within which the broker has written everything to clients that do not read.
_SETTLED: Final = 3.0

CONFIGURATION: Final = """
max-message-size = "200MiB"

[[topic]]
name = "large-topic"

[[stream]]
name = "large-stream"
partitions = 1
"""


def unread(size: int, readers: int) -> Callable[[Ground], None]:
    """Send a message of `size` MiB to browsers that do not read."""

    def run(ground: Ground) -> None:
        _put(ground, "large", size)
        peers = _readers(ground, "large", readers, mode="copy")
        ground.begin()
        _ask(peers)
        time.sleep(_SETTLED)

    return run


def fanned_out(size: int, readers: int) -> Callable[[Ground], None]:
    """Send a message of `size` MiB to all subscribers of a topic, which read it."""

    def run(ground: Ground) -> None:
        peers = _readers(ground, "large-topic", readers, capability="topic")
        _ask(peers)
        ground.begin()
        _put(ground, "large-topic", size)
        _read_all(peers)

    return run


def passed_on(
    size: int, durable: bool = False, failures: int = 0, ttl: int = 0
) -> Callable[[Ground], None]:
    """Send a message of `size` MiB, and receive it after `failures` failed deliveries."""

    def run(ground: Ground) -> None:
        ground.begin()
        _put(ground, "large", size, durable, ttl)
        for _ in range(failures):
            [peer] = _readers(ground, "large", 1)
            _ask([peer], 1)
            peer.read()
            drop([peer])
        [peer] = _readers(ground, "large", 1)
        _ask([peer], 1)
        _read_all([peer])

    return run


def recorded(size: int, readers: int) -> Callable[[Ground], None]:
    """Send a record of `size` MiB of a stream to readers that have all requested it."""

    def run(ground: Ground) -> None:
        peers = _readers(ground, "large-stream", readers, mode="copy")
        _ask(peers)
        ground.begin()
        _put(ground, "large-stream", size)
        _read_all(peers)

    return run


def _put(ground: Ground, address: str, size: int, durable: bool = False, ttl: int = 0) -> None:
    """Send a message of `size` MiB, and wait until it is accepted."""
    peer = ground.peer(f"publisher-{address}")
    link = peer.sender(peer.session(), address)
    peer.supplied([link])
    message = Message(bytes(ground.size(size * MIB)), durable=durable)
    if ttl:
        message.ttl = ttl
    delivery = link.send(message.encode())
    peer.until(lambda: delivery.remote_state is not None)


def _readers(
    ground: Ground, address: str, count: int, mode: str = "move", capability: str = ""
) -> list[Peer]:
    """Return clients with a link from the address, without credit."""
    peers = []
    for number in range(count):
        peer = ground.peer(f"reader-{address}-{number}")
        source = Source(
            address=address,
            distribution_mode=None if capability else mode,
            capabilities=[capability] if capability else None,
        )
        link = peer.session().attach_receiver("reader", source=source)
        peer.until(lambda link=link: link.usable)  # type: ignore[misc]
        peers.append(peer)
    return peers


def _ask(peers: list[Peer], credit: int = 10) -> None:
    for peer in peers:
        for link in peer.engine.channels.links.values():
            if isinstance(link, ReceiverLink):
                link.set_credit(credit)
        peer.flush()


def _read_all(peers: list[Peer]) -> None:
    """Read until each client has a message. Raises `TimeoutError`."""
    poll = select.poll()
    by_file = {}
    for peer in peers:
        poll.register(peer.socket, select.POLLIN)
        by_file[peer.socket.fileno()] = peer
    end = time.monotonic() + _PATIENCE
    while not all(peer.received for peer in peers):
        if time.monotonic() > end:
            raise TimeoutError("the readers have not got their message")
        for file, _ in poll.poll(1000):
            by_file[file].read()
            by_file[file].flush()
