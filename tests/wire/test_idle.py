"""The idle time-out of the broker (AMQP 1.0 §2.4.5)."""

from __future__ import annotations

import select
import signal

import pytest

from tests.raw.client import Client
from tests.raw.frames import begin_frame, flow_frame, frame, open_frame
from tests.raw.process import Broker
from tests.raw.values import TRUE, uint

CONFIG = """
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


@pytest.mark.spec("2.4.5")
def test_a_broker_that_was_away_too_long_says_so_though_it_had_just_sent(broker: Broker) -> None:
    with Client(broker.port) as peer:
        # It closes after twice as long.
        peer.open(open_frame(idle_time_out=uint(400))).send(begin_frame()).expect("begin", "empty")
        peer.send(flow_frame(echo=TRUE)).expect("flow", "empty")
        broker.signal(signal.SIGSTOP)
        try:
            # What was on its way is read; then nothing comes for longer than that.
            while select.select([peer.socket], [], [], 1.0)[0]:
                peer.come()
        finally:
            broker.signal(signal.SIGCONT)
        error = peer.expect("close", "empty").error()
        assert error is not None and error[0] == "amqp:resource-limit-exceeded"
        assert "busy" in error[1]
