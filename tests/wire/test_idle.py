"""The idle time-out of the broker (AMQP 1.0 §2.4.5)."""

from __future__ import annotations

import select

import pytest

from tests.raw.client import Client
from tests.raw.frames import frame
from tests.raw.process import Broker


@pytest.fixture(scope="module")
def config() -> str:
    return """
[limits]
idle-time-out = "1s"
"""


@pytest.mark.spec("2.4.5")
def test_part_of_a_frame_is_no_sign_of_life(broker: Broker) -> None:
    with Client(broker.port) as peer:
        peer.begin()
        readable = False
        for byte in frame(b"", size=200) + bytes(192):
            peer.send(bytes((byte,)))
            readable, _, _ = select.select([peer.socket], [], [], 0.2)
            if readable and any(answer.name == "close" for answer in peer.come()):
                return
        raise AssertionError("the broker takes single bytes for a sign of life")
