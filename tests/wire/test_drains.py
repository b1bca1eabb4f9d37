"""Drains and credit taken back while a session's window is shut (AMQP 1.0 §2.5.6, §2.6.7)."""

from __future__ import annotations

import pytest

from tests.raw.answers import Answer
from tests.raw.client import Client
from tests.raw.frames import attach_frame, begin_frame, flow_frame, open_frame, source, target
from tests.raw.process import Broker
from tests.raw.values import NULL, TRUE, data_section, string, uint
from tests.wire.control import waiting

CONFIG = """
[[topic]]
pattern = "*-topic"

[[stream]]
pattern = "*-stream"
"""


class Consumer:
    """A raw receiver that opens its window frame by frame."""

    def __init__(self, port: int, address: str, window: int, frame_size: int = 0) -> None:
        self.client = Client(port)
        self.frames = 0
        opening = open_frame(max_frame_size=frame_size) if frame_size else b""
        self.client.open(opening).send(begin_frame(incoming_window=window))
        self.client.expect("begin")
        where = source(string(address))
        self.client.send(attach_frame("consumer", 0, receiver=True, source=where, target=target()))
        self.client.expect("attach", "flow")

    def flow(self, window: int, credit: int = -1, count: int = 0, drain: bytes = NULL) -> None:
        """Send a flow, of the link if there is a credit."""
        link = (uint(0), uint(credit), uint(count)) if credit >= 0 else (NULL, NULL, NULL)
        self.client.send(
            flow_frame(
                *link, next_incoming_id=uint(self.frames), incoming_window=window, drain=drain
            )
        )

    def transfers(self, count: int) -> list[Answer]:
        """Take so many transfer frames; flows of the session may come in between."""
        found = []
        while len(found) < count:
            answer = self.client.expect("transfer", "empty", "flow")
            self.frames += 1
            found.append(answer)
        return found

    def drained(self) -> Answer:
        """Wait for the flow that ends the drain, with no transfer before it."""
        while True:
            flow = self.client.expect("flow", "empty")
            if flow.field(4) is not None:
                return flow

    def echo(self) -> Answer:
        """Ask for the state of the link."""
        self.client.send(
            flow_frame(uint(0), next_incoming_id=uint(self.frames), incoming_window=0, echo=TRUE)
        )
        return self.drained()


def publish(port: int, address: str, payloads: list[bytes]) -> None:
    """Send these messages."""
    with Client(port) as client:
        client.begin().sender(address).publish(payloads)


@pytest.mark.spec("2.6.7")
@pytest.mark.parametrize("opened", [1, 2, 7])
@pytest.mark.parametrize("kind", ["queue", "topic", "stream"])
def test_a_drain_ends_when_the_last_message_waited_for_the_window(
    broker: Broker, address: str, kind: str, opened: int
) -> None:
    address = f"{address}-{kind}"
    messages = [data_section(b"%d" % n) for n in range(3)]
    if kind == "queue":
        publish(broker.port, address, messages)
    consumer = Consumer(broker.port, address, 2)
    if kind != "queue":
        publish(broker.port, address, messages)
    consumer.flow(2, 10, drain=TRUE)
    consumer.transfers(2)
    consumer.flow(opened)
    (third,) = consumer.transfers(1)
    assert third.payload.endswith(b"2")
    flow = consumer.drained()
    # The rest of the credit is given back: 10 deliveries are accounted for.
    assert (flow.field(5), flow.field(6), flow.field(8)) == (10, 0, True)
    consumer.client.close()


@pytest.mark.spec("2.6.7")
@pytest.mark.parametrize("kind", ["queue", "topic", "stream"])
def test_a_drain_ends_behind_a_message_larger_than_the_window(
    broker: Broker, address: str, kind: str
) -> None:
    address = f"{address}-{kind}"
    # Five frames of 512 bytes, and a window of two.
    message = data_section(bytes(2000))
    if kind == "queue":
        publish(broker.port, address, [message])
    consumer = Consumer(broker.port, address, 2, 512)
    if kind != "queue":
        publish(broker.port, address, [message])
    consumer.flow(2, 10, drain=TRUE)
    pieces = consumer.transfers(2)
    while pieces[-1].field(5) is True:
        # Never more than the message needs: the window is shut behind its last frame.
        consumer.flow(1)
        pieces += consumer.transfers(1)
    assert len(b"".join(piece.payload for piece in pieces)) >= 2000
    flow = consumer.drained()
    assert (flow.field(5), flow.field(6), flow.field(8)) == (10, 0, True)
    consumer.client.close()


@pytest.mark.spec("2.6.7")
def test_a_message_that_waits_for_the_window_is_not_sent_once_its_credit_is_taken_back(
    broker: Broker, address: str
) -> None:
    publish(broker.port, address, [data_section(b"%d" % n) for n in range(3)])
    consumer = Consumer(broker.port, address, 2)
    consumer.flow(2, 10)
    consumer.transfers(2)
    # Two have come, and no more may.
    consumer.flow(0, 0, 2)
    state = consumer.echo()
    assert (state.field(5), state.field(6)) == (2, 0)
    consumer.flow(10)
    state = consumer.echo()
    assert (state.field(5), state.field(6)) == (2, 0)
    # What was not sent is there for others.
    assert [message[-1:] for message in waiting(broker.port, address)] == [b"2"]
    consumer.client.close()


@pytest.mark.spec("2.6.7")
def test_credit_and_window_in_one_flow_count_together(broker: Broker, address: str) -> None:
    publish(broker.port, address, [data_section(b"%d" % n) for n in range(4)])
    consumer = Consumer(broker.port, address, 1)
    consumer.flow(1, 10)
    consumer.transfers(1)
    # The window opens, and two messages more may come: three of four.
    consumer.flow(10, 2, 1)
    consumer.transfers(2)
    state = consumer.echo()
    assert (state.field(5), state.field(6)) == (3, 0)
    consumer.client.close()


@pytest.mark.spec("2.6.7")
def test_a_message_that_has_begun_is_finished_when_its_credit_is_taken_back(
    broker: Broker, address: str
) -> None:
    publish(broker.port, address, [data_section(bytes(2000)), data_section()])
    consumer = Consumer(broker.port, address, 1, 512)
    consumer.flow(1, 10)
    pieces = consumer.transfers(1)
    consumer.flow(0, 0, 0)
    # No credit is claimed that there is not.
    assert consumer.echo().field(6) == 0
    consumer.flow(10)
    while pieces[-1].field(5) is True:
        pieces += consumer.transfers(1)
    state = consumer.echo()
    assert (state.field(5), state.field(6)) == (1, 0)
    consumer.client.close()


@pytest.mark.spec("2.6.7")
def test_a_drain_behind_a_shut_window_ends_when_another_takes_the_message(
    broker: Broker, address: str
) -> None:
    publish(broker.port, address, [data_section(b"one")])
    consumer = Consumer(broker.port, address, 0)
    consumer.flow(0, credit=10, drain=TRUE)
    assert consumer.echo().field(6) == 10
    assert len(waiting(broker.port, address)) == 1
    assert consumer.drained().field(6) == 0
