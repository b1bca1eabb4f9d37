"""Faults of a broker for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ferrymq import Message, blocking
from ferrymq.errors import AmqpError, DeliveryRejected
from ferrymq.testing import LocalBroker
from ferrymq.testing.frame_splitter import FrameSplitter, performative_of


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(queues=["orders", "other"]) as broker:
        yield broker


def send(broker: LocalBroker, *bodies: str) -> None:
    with blocking.connect(broker.url) as connection:
        sender = connection.sender("orders")
        for body in bodies:
            sender.send(Message(body=body), timeout=5)


def test_the_connection_drops_at_the_nth_transfer(broker: LocalBroker) -> None:
    fault = broker.faults.drop("transfer", nth=2)
    with pytest.raises(AmqpError):
        send(broker, "one", "two", "three")
    broker.queue("orders").assert_bodies("one")
    assert fault.fired == 1 and fault.over
    send(broker, "four")
    broker.queue("orders").assert_bodies("one", "four")


def test_the_connection_drops_at_the_nth_frame_of_any_kind(broker: LocalBroker) -> None:
    # open, begin, attach.
    broker.faults.drop(nth=3)
    with pytest.raises(AmqpError):
        send(broker, "one")
    broker.queue("orders").assert_empty()


def test_before_the_outcome_the_broker_has_the_message_and_the_sender_does_not_know(
    broker: LocalBroker,
) -> None:
    broker.faults.drop_before_outcome()
    with pytest.raises(AmqpError):
        send(broker, "one")
    broker.queue("orders").assert_bodies("one")


def test_after_the_outcome_the_sender_knows(broker: LocalBroker) -> None:
    fault = broker.faults.drop_after_outcome()
    with pytest.raises(AmqpError):
        send(broker, "one", "two")
    assert fault.fired == 1
    broker.queue("orders").assert_bodies("one")


def test_a_frame_that_is_delivered_takes_effect_without_an_answer(broker: LocalBroker) -> None:
    broker.faults.drop("transfer", deliver=True)
    with pytest.raises(AmqpError):
        send(broker, "one")
    broker.queue("orders").assert_bodies("one")


def test_outcomes_of_the_client_are_lost_with_their_frame(broker: LocalBroker) -> None:
    broker.put("orders", "one")
    broker.faults.drop("disposition", sent_by="client")
    with pytest.raises(AmqpError), blocking.connect(broker.url) as connection:
        connection.receiver("orders").receive(timeout=5).accept()
        connection.receiver("other").receive(timeout=5)
    broker.queue("orders").wait_count(1, "available")


def test_delayed_outcomes_come_when_the_clock_has_advanced(broker: LocalBroker) -> None:
    fault = broker.faults.delay("disposition", seconds=10)
    ended = threading.Event()

    def run() -> None:
        send(broker, "one")
        ended.set()

    with blocking.connect(broker.url):
        thread = threading.Thread(target=run)
        thread.start()
        broker.queue("orders").wait_count(1)
        broker.clock.advance(9)
        assert not ended.wait(0.05)
        fault.cancel()
        broker.clock.advance(1)
        assert ended.wait(5)
        thread.join()


def test_messages_are_rejected_with_the_condition_and_go_nowhere(broker: LocalBroker) -> None:
    fault = broker.faults.reject("orders", condition="shop:closed", description="until nine")
    with blocking.connect(broker.url) as connection:
        connection.sender("other").send(Message(body="fine"))
        sender = connection.sender("orders")
        with pytest.raises(DeliveryRejected, match="until nine") as found:
            sender.send(Message(body="one"))
        assert found.value.error is not None
        assert found.value.error.condition == "shop:closed"
        sender.send(Message(body="two"))
    broker.queue("orders").assert_bodies("two")
    broker.queue("other").assert_bodies("fine")
    assert fault.fired == 1


@pytest.mark.parametrize("name", ["throttle", "fill_disk"])
def test_producers_get_no_credit_until_the_fault_is_cancelled(
    broker: LocalBroker, name: str
) -> None:
    fault = getattr(broker.faults, name)()
    with blocking.connect(broker.url) as connection:
        sender = connection.sender("orders")
        with pytest.raises(TimeoutError):
            sender.send(Message(body="one"), timeout=0.05)
        fault.cancel()
        sender.send(Message(body="two"), timeout=5)
    assert "two" in broker.queue("orders").bodies()


def test_clear_ends_all_faults(broker: LocalBroker) -> None:
    broker.faults.drop("transfer")
    broker.faults.reject()
    broker.faults.throttle()
    broker.faults.clear()
    send(broker, "one")
    broker.queue("orders").assert_bodies("one")


def test_mistakes_are_told(broker: LocalBroker) -> None:
    with pytest.raises(ValueError, match="there is no frame 'transfre'"):
        broker.faults.drop("transfre")
    with pytest.raises(ValueError, match="nth is at least 1"):
        broker.faults.drop(nth=0)
    with pytest.raises(ValueError, match="more than 0"):
        broker.faults.delay(seconds=0)


def test_frames_are_split_wherever_the_bytes_are_cut() -> None:
    header = b"AMQP\x00\x01\x00\x00"
    frame = b"\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x53\x18\x45"
    stream = header + frame + frame
    for cut in range(len(stream)):
        splitter = FrameSplitter()
        assert splitter.feed(stream[:cut]) + splitter.feed(stream[cut:]) == [header, frame, frame]
    assert performative_of(frame) == "close"
    assert performative_of(header) == ""
    assert FrameSplitter().feed(b"\x00\x00\x00\x01nonsense") == [b"\x00\x00\x00\x01nonsense"]
