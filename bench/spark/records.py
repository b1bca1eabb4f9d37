"""The records to measure with: 1 KiB of body and common properties, and their publishing."""

from __future__ import annotations

from typing import Final

from bench.client import Peer
from ferrymq.message import Message

SIZE: Final = 1024
PARTITIONS: Final = 2
# The number of different messages, which are repeated.
DIFFERENT: Final = 1_000
# The number of messages written at a time.
ONCE: Final = 500

CONFIGURATION: Final = f"""
[[stream]]
name = "records"
partitions = {PARTITIONS}

[[stream]]
name = "out"
partitions = {PARTITIONS}
max-bytes = "64MiB"
"""


def messages() -> list[bytes]:
    """Return encoded messages with 1 KiB of body, properties, and three application-properties."""
    return [
        Message(
            number.to_bytes(8, "big") + bytes(SIZE - 8),
            message_id=f"order-{number:08}",
            subject="order.placed",
            content_type="application/octet-stream",
            creation_time=1_767_225_600_000 + number,
            application_properties={
                "region": ("north", "south", "east", "west")[number % 4],
                "attempt": number % 3,
                "kind": "order",
            },
        ).encode()
        for number in range(DIFFERENT)
    ]


def publish(port: int, stream: str, count: int) -> None:
    """Append `count` records evenly to a stream's partitions, and wait until each is accepted."""
    some = messages()
    for partition in range(PARTITIONS):
        own = count // PARTITIONS + (count % PARTITIONS if partition == 0 else 0)
        _publish(Peer(port, f"publisher-{partition}"), f"{stream}::{partition}", some, own)


def _publish(peer: Peer, address: str, some: list[bytes], count: int) -> None:
    session = peer.session()
    link = peer.sender(session, address)
    sent = 0
    while sent < count:
        peer.until(lambda: link.credit > 0)
        for _ in range(min(link.credit, count - sent, ONCE)):
            link.send(some[sent % DIFFERENT])
            sent += 1
    peer.until(lambda: not session.outgoing.unsettled)
    peer.end()
