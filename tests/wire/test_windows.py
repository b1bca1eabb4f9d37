"""Session windows that shut before a message is sent (AMQP 1.0 §2.5.6, §2.7.4)."""

from __future__ import annotations

import pytest

from tests.raw.client import Client
from tests.raw.frames import attach_frame, begin_frame, flow_frame, source, target
from tests.raw.process import Broker
from tests.raw.values import data_section, string, uint


@pytest.mark.spec("2.7.4")
def test_a_peer_that_opens_its_window_only_when_asked_gets_the_whole_message(
    broker: Broker, address: str
) -> None:
    with Client(broker.port) as sender:
        sender.begin().sender(address).publish([data_section(b"%d" % n) for n in range(5)])
    with Client(broker.port) as client:
        client.begin(begin_frame(incoming_window=2))
        where = source(string(address))
        client.send(attach_frame("r", 0, receiver=True, source=where, target=target()))
        client.expect("attach", "flow")
        client.send(flow_frame(uint(0), uint(5), uint(0), incoming_window=2))
        received = 0
        while received < 5:
            answer = client.read()
            assert answer is not None
            if answer.name == "transfer":
                received += 1
            elif answer.name == "flow" and answer.field(9) is True:
                # Only now: some clients wait for any frame that is no transfer.
                client.send(flow_frame(next_incoming_id=uint(received), incoming_window=2))
        assert received == 5
