"""The blocking client, against a peer in another thread's event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ferrymq
from ferrymq import Message, blocking
from ferrymq.blocking import portal
from ferrymq.blocking.portal import Portal
from ferrymq.engine import SenderLink, events
from ferrymq_types.messaging import Accepted, Released
from ferrymq_types.transport import Error
from tests.client.peer import Peer


class ThreadedPeer:
    """A `Peer` in a thread; `run` does something in its loop."""

    def __init__(self) -> None:
        self.portal = Portal("peer")
        self.peer = self.portal.run(self.start)
        self.url = self.peer.url

    async def start(self) -> Peer:
        return await Peer().__aenter__()

    def run(self, function: Callable[[], Any]) -> Any:
        return self.portal.call(function)

    def seen(self, kind: type[events.Event], count: int = 1) -> Any:
        return self.portal.run(lambda: self.peer.seen(kind, count))

    def stop(self) -> None:
        self.portal.run(self.peer.__aexit__)
        self.portal.stop()


@pytest.fixture
def threaded() -> Iterator[ThreadedPeer]:
    peer = ThreadedPeer()
    yield peer
    peer.stop()


@pytest.fixture
def connection(threaded: ThreadedPeer) -> Iterator[blocking.Connection]:
    with blocking.connect(threaded.url) as connected:
        yield connected


def ferrymq_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("ferrymq-")]


def test_send_and_receive(threaded: ThreadedPeer, connection: blocking.Connection) -> None:
    assert connection.remote_container_id == "peer"
    assert not connection.closed
    with connection.sender("orders") as sender:
        sender.send(Message(b"one"), timeout=5)
        sender.send_many([Message(i) for i in range(10)], timeout=5)
    bodies = [message.body for message in threaded.peer.received["orders"]]
    assert bodies == [b"one", *range(10)]
    threaded.run(lambda: threaded.peer.put("work", *range(20)))
    received = []
    with connection.receiver("work") as receiver:
        for delivery in receiver:
            received.append(delivery.message.body)
            delivery.accept()
            if len(received) == 20:
                break
    assert received == list(range(20))
    assert sender.closed
    assert receiver.closed


def test_all_outcomes(threaded: ThreadedPeer, connection: blocking.Connection) -> None:
    threaded.run(lambda: threaded.peer.put("work", *range(4)))
    receiver = connection.receiver("work")
    deliveries = [receiver.receive(timeout=5)]
    while len(deliveries) < 4:
        deliveries += receiver.receive_many(4, timeout=5)
    deliveries[0].accept()
    deliveries[1].reject("x:bad", "no")
    deliveries[2].release()
    deliveries[3].modify(delivery_failed=True)
    threaded.seen(events.OutcomeReceived, 4)
    states = [
        type(event.delivery.remote_state).__name__
        for event in threaded.peer.events
        if isinstance(event, events.OutcomeReceived)
    ]
    assert states == ["Accepted", "Rejected", "Released", "Modified"]
    with pytest.raises(ferrymq.LocalProtocolError):
        deliveries[0].accept()


def test_outcomes_are_sent_without_a_further_call(
    threaded: ThreadedPeer, connection: blocking.Connection
) -> None:
    threaded.run(lambda: threaded.peer.put("work", *range(4)))
    receiver = connection.receiver("work")
    deliveries = [receiver.receive(timeout=5) for _ in range(4)]
    for number, delivery in enumerate(deliveries, 1):
        delivery.accept()
        assert delivery.settled
        threaded.seen(events.OutcomeReceived, number)
    with pytest.raises(ferrymq.LocalProtocolError, match="accepted"):
        deliveries[0].release()
    for delivery in deliveries:
        with delivery:
            pass


def test_an_outcome_that_was_not_sent_in_time_is_logged(
    threaded: ThreadedPeer, connection: blocking.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    threaded.run(lambda: threaded.peer.put("work", 1))
    receiver = connection.receiver("work")
    delivery = receiver.receive(timeout=5)
    busy = threading.Event()
    connection._portal.soon(busy.wait)
    connection._portal.soon(lambda: connection._behind.transport.connection_lost(None))
    # The loop has not handled the loss yet.
    delivery.accept()
    busy.set()
    with pytest.raises(ferrymq.ConnectionClosed):
        receiver.receive(timeout=5)
    assert delivery.gone and not delivery.settled
    assert "1 outcome of deliveries from 'work' dropped" in caplog.text
    with pytest.raises(ferrymq.ConnectionClosed):
        delivery.release()


def test_what_was_accepted_is_sent_before_the_receiver_closes(
    threaded: ThreadedPeer, connection: blocking.Connection
) -> None:
    threaded.run(lambda: threaded.peer.put("work", *range(20)))
    with connection.receiver("work") as receiver:
        for _ in range(10):
            receiver.receive(timeout=5).accept()
    threaded.seen(events.OutcomeReceived, 20)
    states = [
        event.delivery.remote_state
        for event in threaded.peer.events
        if isinstance(event, events.OutcomeReceived)
    ]
    assert sum(isinstance(state, Accepted) for state in states) == 10
    assert sum(isinstance(state, Released) for state in states) == 10


def test_threads_that_share_a_receiver_get_each_message_once(
    threaded: ThreadedPeer, connection: blocking.Connection
) -> None:
    threaded.run(lambda: threaded.peer.put("work", *range(400)))
    receiver = connection.receiver("work", credit=20)
    got: list[list[int]] = [[] for _ in range(4)]
    enough = threading.Semaphore(0)

    def work(mine: list[int]) -> None:
        for delivery in receiver:
            body = delivery.message.body
            assert isinstance(body, int)
            mine.append(body)
            delivery.accept()
            enough.release()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in got]
    for thread in threads:
        thread.start()
    for _ in range(400):
        assert enough.acquire(timeout=20)
    receiver.close()
    for thread in threads:
        thread.join(20)
    assert sorted(body for mine in got for body in mine) == list(range(400))
    # Each thread gets its messages in order.
    assert all(mine == sorted(mine) for mine in got)


def test_sessions_credit_and_drain(threaded: ThreadedPeer, connection: blocking.Connection) -> None:
    threaded.run(lambda: threaded.peer.put("work", 1, 2))
    with connection.session() as session:
        receiver = session.receiver("work", credit=0)
        with pytest.raises(TimeoutError):
            receiver.receive(timeout=0.01)
        receiver.add_credit(5)
        receiver.drain(timeout=5)
        assert [receiver.receive().message.body for _ in range(2)] == [1, 2]
        sender = session.sender("other")
        sender.send(Message(b""))
    assert session.closed
    assert receiver.closed
    dynamic = connection.receiver(None, dynamic=True)
    assert dynamic.address == "made-up"


def test_many_messages_in_flight_without_a_loop(
    threaded: ThreadedPeer, connection: blocking.Connection
) -> None:
    held: list[Any] = []
    threaded.peer.credit = 3
    threaded.peer.on[events.DeliveryReceived] = lambda _, event: held.append(event.delivery)
    sender = connection.sender("orders")
    futures = []
    for number in range(3):
        sender.ready(timeout=5)
        futures.append(sender.send_nowait(Message(number)))
    assert (sender.unsettled, sender.credit) == (3, 0)
    with pytest.raises(ferrymq.LocalProtocolError, match="credit"):
        sender.send_nowait(Message(b""))
    with pytest.raises(TimeoutError):
        sender.ready(timeout=0.01)
    assert not futures[0].cancel()
    threaded.seen(events.DeliveryReceived, 3)

    def settle() -> None:
        held[0].settle(Accepted())
        held[1].settle(Released())
        threaded.peer.connection.process()

    threaded.run(settle)
    assert futures[0].result(timeout=5) is None
    with pytest.raises(ferrymq.DeliveryReleased):
        futures[1].result(timeout=5)
    # What has no outcome when the link ends fails with that.
    sender.close()
    with pytest.raises(ferrymq.LinkDetached):
        futures[2].result(timeout=5)


def test_what_the_peer_says_of_itself_and_of_links(
    threaded: ThreadedPeer, connection: blocking.Connection
) -> None:
    threaded.peer.on[events.AttachReceived] = lambda peer, event: threaded.peer.attach(
        peer, event, properties={"priority": 5}, offered_capabilities=["shared"]
    )
    threaded.run(lambda: threaded.peer.put("work", 1, 2))
    receiver = connection.receiver("work", credit=10)
    assert (receiver.properties, receiver.offered_capabilities) == ({"priority": 5}, ["shared"])
    receiver.receive(timeout=5).accept()
    assert receiver.credit + receiver.queued <= 10
    assert connection.remote_offered_capabilities == []
    assert connection.url.port == threaded.peer.port
    assert connection.options.timeout == 30.0


def test_the_end_of_a_connection_can_be_waited_for(threaded: ThreadedPeer) -> None:
    with blocking.connect(threaded.url) as connection:
        with pytest.raises(TimeoutError):
            connection.wait_closed(timeout=0.01)
        threaded.run(lambda: threaded.peer.connection.transport.abort())
        with pytest.raises(ferrymq.ConnectionClosed):
            connection.wait_closed(timeout=5)
    connection.wait_closed()
    closed = blocking.connect(threaded.url)
    thread = threading.Thread(target=closed.close)
    thread.start()
    closed.wait_closed(timeout=5)
    thread.join()
    closed.wait_closed()


def test_errors_reach_the_caller(threaded: ThreadedPeer, connection: blocking.Connection) -> None:
    threaded.peer.on[events.DeliveryReceived] = lambda _, event: event.delivery.settle(Released())
    sender = connection.sender("orders")
    with pytest.raises(ferrymq.DeliveryReleased):
        sender.send(Message(b""))
    threaded.peer.on[events.AttachReceived] = lambda _, event: event.link.refuse(
        Error(condition="amqp:not-found")
    )
    with pytest.raises(ferrymq.LinkDetached, match="not-found"):
        connection.sender("nowhere")


def test_failures_of_many_messages_tell_which(
    threaded: ThreadedPeer, connection: blocking.Connection
) -> None:
    accept = iter([Accepted(), Released(), Accepted(), Released()])
    threaded.peer.on[events.DeliveryReceived] = lambda _, event: event.delivery.settle(next(accept))
    sender = connection.sender("orders")
    with pytest.raises(ExceptionGroup, match="2 of 4 were not accepted") as caught:
        sender.send_many((Message(number) for number in range(4)), timeout=5)
    notes = [error.__notes__ for error in caught.value.exceptions]
    assert notes == [["message 1 of 4, counted from 0"], ["message 3 of 4, counted from 0"]]
    with pytest.raises(TypeError, match="send_many takes a Message"):
        sender.send_many([1])  # type: ignore[list-item]
    sender.send_many([], timeout=5)


def test_detaching(threaded: ThreadedPeer, connection: blocking.Connection) -> None:
    sender = connection.sender("orders")
    receiver = connection.receiver("orders")
    sender.detach()
    receiver.detach()
    receiver.detach()
    with pytest.raises(ferrymq.LinkDetached, match="was detached"):
        receiver.receive()
    found = [e for e in threaded.peer.events if isinstance(e, events.DetachReceived)]
    assert [event.closed for event in found] == [False, False]


def test_a_connection_that_cannot_be_made_leaves_no_thread() -> None:
    before = ferrymq_threads()
    with pytest.raises(ferrymq.TransportError):
        blocking.connect("amqp://localhost:1", timeout=5)
    with pytest.raises(ValueError, match="amqp://"):
        blocking.connect("http://localhost")
    assert ferrymq_threads() == before


def test_closing_ends_the_thread_and_every_wait(threaded: ThreadedPeer) -> None:
    others = ferrymq_threads()
    connection = blocking.connect(threaded.url)
    receiver = connection.receiver("orders")
    caught: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            receiver.receive()
        except ferrymq.AmqpError as error:
            caught.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    waiting.wait()
    connection.close()
    for thread in threads:
        thread.join(10)
    assert len(caught) == 3
    assert all(isinstance(error, ferrymq.PeerError) for error in caught)
    assert set(ferrymq_threads()) <= set(others)
    connection.close()
    assert connection.closed
    with pytest.raises(ferrymq.ConnectionClosed):
        connection.sender("orders")


def test_iteration_ends_when_another_thread_closes_the_receiver(
    threaded: ThreadedPeer, connection: blocking.Connection
) -> None:
    receiver = connection.receiver("orders")
    ended = threading.Event()

    def consume() -> None:
        for _ in receiver:
            pass
        ended.set()

    thread = threading.Thread(target=consume)
    thread.start()
    threaded.seen(events.CreditReceived)
    receiver.close()
    thread.join(10)
    assert ended.is_set()


def test_many_threads_share_a_connection(
    threaded: ThreadedPeer, connection: blocking.Connection
) -> None:
    sender = connection.sender("orders")

    def send(number: int) -> None:
        for i in range(20):
            sender.send(Message(number * 100 + i))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    bodies = [message.body for message in threaded.peer.received["orders"]]
    assert sorted(bodies) == sorted(n * 100 + i for n in range(5) for i in range(20))
    for n in range(5):
        assert [b for b in bodies if b // 100 == n] == [n * 100 + i for i in range(20)]


def test_an_interrupted_wait_leaves_the_connection_usable(
    threaded: ThreadedPeer,
    connection: blocking.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = connection.receiver("orders")
    main = threading.main_thread().ident
    assert threading.get_ident() == main and main is not None
    waiting = threading.Event()

    wait = portal._Call.wait

    def watched(call: Any) -> Any:
        waiting.set()
        return wait(call)

    def interrupt() -> None:
        waiting.wait()
        signal.pthread_kill(main, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patched:
        trigger = threading.Thread(target=interrupt)
        trigger.start()
        patched.setattr(portal._Call, "wait", watched)
        receiver.receive(timeout=20)
    trigger.join()

    def send() -> None:
        threaded.peer.put("orders", "later")
        link = threaded.peer.connection.links[receiver.name]
        assert isinstance(link, SenderLink)
        threaded.peer.feed(link)
        threaded.peer.connection.process()

    threaded.run(send)
    assert receiver.receive(timeout=10).message.body == "later"


def test_a_child_process_is_told_to_make_its_own(
    threaded: ThreadedPeer, connection: blocking.Connection
) -> None:
    sender = connection.sender("orders")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            sender.send(Message(b""))
        except RuntimeError as error:
            connection.close()
            status = 0 if "fork" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sender.send(Message(b"still alive"), timeout=5)


def test_a_call_from_the_loops_own_thread_is_refused() -> None:
    portal = Portal("ferrymq-own")

    async def nested() -> None:
        portal.call(lambda: None)

    with pytest.raises(RuntimeError, match="never return"):
        portal.run(nested)
    portal.stop()
    portal.stop()
    with pytest.raises(ferrymq.ConnectionClosed):
        portal.run(nested)


def test_a_failure_that_nobody_waits_for_stops_no_other_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    portal = Portal("ferrymq-batch")
    made: list[int] = []

    def make(number: int) -> None:
        made.append(number)
        assert number != 1

    for number in range(3):
        portal.batch.add(make, number)
    portal.call(lambda: made.append(3))
    assert made == [0, 1, 2, 3]
    assert "failed, for which no thread waits" in caplog.text
    portal.stop()


def test_stopping_ends_what_still_runs() -> None:
    portal = Portal("ferrymq-stop")
    started = threading.Event()
    cancelled = threading.Event()

    async def forever() -> None:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()

    def wait() -> None:
        with pytest.raises(BaseException):  # noqa: B017 - cancelled, whichever way
            portal.run(forever)

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    portal.stop()
    thread.join(10)
    assert cancelled.is_set()
    assert not thread.is_alive()
