"""A broker in the test's own process: nodes, contents of queues, its clock, virtual hosts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

import ferrymq
from ferrymq import Message, blocking
from ferrymq.errors import AmqpError, ConnectionClosed, TransactionError
from ferrymq.testing import LocalBroker


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    nodes = [
        "orders",
        {"name": "late", "message-ttl": "30s", "dead-letter": "dead", "expired": "expired"},
        {"name": "expired", "message-ttl": "30s", "expired": "gone"},
        "gone",
        "dead",
        {"pattern": "brief.*", "auto-delete": "1m"},
    ]
    with LocalBroker(queues=nodes) as broker:
        yield broker


def test_blocking_code_sends_and_the_test_sees_what_is_in_the_queue(broker: LocalBroker) -> None:
    orders = broker.queue("orders")
    orders.assert_empty()
    with blocking.connect(broker.url) as connection:
        connection.sender("orders").send(Message(body="one", subject="new"))
        connection.sender("orders").send(Message(body="two"))
        orders.assert_bodies("one", "two")
        assert [each.message.subject for each in orders] == ["new", None]
        delivery = connection.receiver("orders", credit=1).receive(timeout=5)
        orders.assert_bodies("one", state="acquired")
        delivery.accept()
    orders.wait_count(1)
    assert orders.bodies() == ["two"]
    with pytest.raises(AssertionError, match=r"'orders' has not 3 messages, but 1"):
        orders.assert_count(3)
    with pytest.raises(AssertionError, match="available 'two'"):
        orders.assert_empty()


async def test_asyncio_code_shares_the_same_broker_and_waits_without_blocking(
    broker: LocalBroker,
) -> None:
    broker.put("orders", "one", Message(body=b"two"))
    async with ferrymq.connect(broker.url) as connection:
        receiver = await connection.receiver("orders")
        async for delivery in receiver:
            await delivery.accept()
            if delivery.message.body == b"two":
                break
    await broker.queue("orders").until_count(0)


def test_a_queue_that_does_not_exist_is_named(broker: LocalBroker) -> None:
    with pytest.raises(LookupError, match="no queue 'nothing', but no node"):
        broker.queue("nothing").count()


def test_messages_expire_when_the_clock_has_advanced_and_not_before(broker: LocalBroker) -> None:
    before = broker.clock.now
    broker.put("late", "milk")
    broker.clock.advance(29.999)
    broker.queue("late").assert_bodies("milk")
    broker.clock.advance(0.001)
    broker.queue("late").assert_empty()
    broker.queue("expired").assert_bodies("milk")
    assert (broker.clock.now - before).total_seconds() == pytest.approx(30)
    assert broker.clock.advanced == 30


def test_one_long_step_runs_each_timer_at_its_own_time(broker: LocalBroker) -> None:
    broker.put("late", "milk")
    # It expires here after 30 seconds, and in the next queue 30 seconds after that.
    broker.clock.advance(59)
    broker.queue("expired").assert_bodies("milk")
    broker.clock.advance(1)
    broker.queue("expired").assert_empty()
    broker.queue("gone").assert_bodies("milk")


def test_scheduled_messages_are_due_by_the_clock(broker: LocalBroker) -> None:
    orders = broker.queue("orders")
    at = int(broker.clock.now.timestamp() * 1000) + 3_600_000
    message = Message(body="later")
    message.message_annotations = {"x-opt-delivery-time": at}
    broker.put("orders", message)
    orders.assert_bodies("later", state="scheduled")
    broker.clock.advance(3_599)
    assert orders.count("available") == 0
    broker.clock.advance(1)
    orders.assert_bodies("later", state="available")


def test_a_queue_without_clients_is_deleted_by_the_clock(broker: LocalBroker) -> None:
    with blocking.connect(broker.url) as connection:
        connection.sender("brief.1").close()
        broker.clock.advance(59)
        assert broker.queue("brief.1").count() == 0
        broker.clock.advance(1)
        with pytest.raises(LookupError):
            broker.queue("brief.1").count()


def test_a_transaction_times_out_by_the_clock(broker: LocalBroker) -> None:
    with (
        blocking.connect(broker.url) as connection,
        pytest.raises(TransactionError),
        connection.transaction() as transaction,
    ):
        connection.sender("orders").send(Message(body="one"), transaction=transaction)
        broker.clock.advance(301)
    broker.queue("orders").assert_empty()


def test_connections_stay_however_far_the_clock_goes(broker: LocalBroker) -> None:
    with blocking.connect(broker.url, idle_time_out=2) as connection:
        sender = connection.sender("orders")
        broker.clock.advance(1_000_000)
        sender.send(Message(body="still here"))
    broker.queue("orders").assert_bodies("still here")


def test_an_idle_time_out_comes_by_the_clock() -> None:
    limits = {"idle-time-out": "1m"}
    with (
        LocalBroker(queues=["orders"], config={"limits": limits}) as broker,
        blocking.connect(broker.url) as connection,
    ):
        sender = connection.sender("orders")
        broker.clock.advance(59)
        sender.send(Message(body="in time"))
        broker.clock.advance(60)
        with pytest.raises(ConnectionClosed, match="nothing received for the idle time-out"):
            sender.send(Message(body="too late"))


def test_the_clock_never_goes_back(broker: LocalBroker) -> None:
    with pytest.raises(ValueError, match="never goes back"):
        broker.clock.advance(-1)


def test_virtual_hosts_have_nodes_of_their_own(broker: LocalBroker) -> None:
    one = broker.add_host(queues=["orders"])
    two = broker.add_host(queues=["orders"], name="two")
    with blocking.connect(one.url) as connection:
        connection.sender("orders").send(Message(body="one"))
        one.queue("orders").assert_bodies("one")
        two.queue("orders").assert_empty()
        broker.queue("orders").assert_empty()
        broker.remove_host(one)
        with pytest.raises(AmqpError):
            connection.sender("orders").send(Message(body="lost"))
    with pytest.raises(LookupError, match="no virtual host"):
        one.queue("orders").count()
    with pytest.raises(ValueError, match="already"):
        broker.add_host(name="two")


def test_a_mistake_in_the_nodes_is_told_at_once() -> None:
    with pytest.raises(ValueError, match="Extra inputs"):
        LocalBroker(queues=[{"name": "orders", "message-tll": "1s"}])


def test_a_closed_broker_says_so(broker: LocalBroker) -> None:
    broker.close()
    broker.close()
    with pytest.raises(RuntimeError, match="does not run"):
        broker.url  # noqa: B018


def test_a_port_that_is_taken_is_an_error_of_start(broker: LocalBroker) -> None:
    with pytest.raises(OSError), LocalBroker(port=broker.port):
        pass


def test_a_second_broker_imports_nothing_and_starts_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LocalBroker():
        pass
    monkeypatch.setattr(subprocess, "Popen", None)
    before = set(sys.modules)
    with LocalBroker(queues=["orders"]):
        assert set(sys.modules) == before


def test_without_the_broker_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["structlog"] = None
from ferrymq.testing import LocalBroker
try:
    LocalBroker()
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install 'ferrymq[broker]'" in done.stdout
