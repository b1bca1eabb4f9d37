"""Proton's transactions: declared, worked in, ended in every way it knows (AMQP 1.0, part 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Delivery, Event, Message
from proton.handlers import TransactionHandler
from proton.reactor import Transaction
from proton.utils import BlockingConnection

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import EncodedReceiver, Scenario, connect

pytestmark = pytest.mark.interop

COUNT = 5


@pytest.fixture(scope="module")
def connection(broker: BrokerProcess) -> Iterator[BlockingConnection]:
    with connect(broker.url) as connection:
        yield connection


class Worker(Scenario, TransactionHandler):
    """Takes `COUNT` messages, answers each, and ends the transaction as it is told to.

    After an end that is not the last one of `ends` it declares another transaction.
    """

    def __init__(self, url: str, address: str, ends: list[str], settle_early: bool) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url = url
        self.address = address
        self.ends = ends
        self.settle_early = settle_early
        self.transaction: Transaction | None = None
        self.taken: list[Delivery] = []
        self.answered: list[Delivery] = []
        self.provisional: list[list[Any]] = []
        self.settled: list[Delivery] = []
        self.told: list[str] = []
        self.bodies: list[object] = []

    def on_start(self, event: Event) -> None:
        self.container = event.container
        self.connection = event.container.connect(self.url, reconnect=False)
        self.receiver = event.container.create_receiver(self.connection, f"{self.address}/in")
        self.sender = event.container.create_sender(self.connection, f"{self.address}/out")
        self.declare()

    def declare(self) -> None:
        self.taken = []
        self.answered = []
        self.container.declare_transaction(
            self.connection, handler=self, settle_before_discharge=self.settle_early
        )

    def on_transaction_declared(self, event: Event) -> None:
        self.transaction = event.transaction
        self.receiver.flow(COUNT)

    def on_message(self, event: Event) -> None:
        assert self.transaction is not None
        self.bodies.append(event.message.body)
        self.taken.append(event.delivery)
        self.transaction.accept(event.delivery)
        answer = Message(body=f"{event.message.body}!")
        self.answered.append(self.transaction.send(self.sender, answer))

    def on_delivery(self, event: Event) -> None:
        """Proton's event for any news of a delivery; its own handlers come first."""
        delivery = event.delivery
        if delivery not in self.answered or delivery.settled:
            return
        if delivery.updated and delivery.remote_state == 0x34:
            self.provisional.append(delivery.remote.data)
            if len(self.provisional) % COUNT == 0 and len(self.taken) == COUNT:
                assert self.transaction is not None
                if self.ends.pop(0) == "commit":
                    self.transaction.commit()
                else:
                    self.transaction.abort()

    def on_settled(self, event: Event) -> None:
        if event.delivery in self.answered:
            self.settled.append(event.delivery)

    def on_transaction_committed(self, event: Event) -> None:
        self.ended("committed")

    def on_transaction_aborted(self, event: Event) -> None:
        self.ended("aborted")

    def on_transaction_commit_failed(self, event: Event) -> None:
        self.ended("commit failed")

    def on_transaction_declare_failed(self, event: Event) -> None:
        self.ended("declare failed")

    def ended(self, how: str) -> None:
        self.told.append(how)
        if self.ends:
            self.declare()
        else:
            self.connection.close()

    def on_connection_closed(self, event: Event) -> None:
        self.finish()


def fill(connection: BlockingConnection, address: str) -> list[str]:
    bodies = [f"message {i}" for i in range(COUNT)]
    sender = connection.create_sender(f"{address}/in")
    for body in bodies:
        sender.send(Message(body=body))
    sender.close()
    return bodies


def remaining(connection: BlockingConnection, address: str) -> list[object]:
    """The bodies of what is in the queue, which is empty then."""
    receiver = EncodedReceiver(connection, address, credit=0)
    receiver.drain()
    bodies = []
    for _ in range(receiver.waiting):
        message = Message()
        message.decode(receiver.accept())
        bodies.append(message.body)
    receiver.close()
    return bodies


@pytest.mark.spec("4.4.1")
@pytest.mark.spec("4.4.2")
@pytest.mark.parametrize("settle_early", [True, False])
def test_commit(
    broker: BrokerProcess, connection: BlockingConnection, address: str, settle_early: bool
) -> None:
    bodies = fill(connection, address)
    worker = Worker(broker.url, address, ["commit"], settle_early)
    worker.run()
    assert (worker.told, worker.errors) == (["committed"], [])
    assert remaining(connection, f"{address}/in") == []
    assert remaining(connection, f"{address}/out") == [f"{body}!" for body in bodies]


@pytest.mark.spec("4.4.4.2")
@pytest.mark.parametrize("settle_early", [True, False])
def test_abort(
    broker: BrokerProcess, connection: BlockingConnection, address: str, settle_early: bool
) -> None:
    """The messages are there again, whoever settled them, and the answers never were."""
    bodies = fill(connection, address)
    worker = Worker(broker.url, address, ["abort"], settle_early)
    worker.run()
    assert (worker.told, worker.errors) == (["aborted"], [])
    assert remaining(connection, f"{address}/in") == bodies
    assert remaining(connection, f"{address}/out") == []


@pytest.mark.parametrize("settle_early", [True, False])
def test_one_transaction_after_the_other(
    broker: BrokerProcess, connection: BlockingConnection, address: str, settle_early: bool
) -> None:
    bodies = fill(connection, address)
    worker = Worker(broker.url, address, ["abort", "abort", "commit"], settle_early)
    worker.run()
    assert (worker.told, worker.errors) == (["aborted", "aborted", "committed"], [])
    assert worker.bodies == bodies * 3
    assert remaining(connection, f"{address}/in") == []
    assert remaining(connection, f"{address}/out") == [f"{body}!" for body in bodies]


@pytest.mark.spec("4.4.1")
def test_provisional_outcomes_name_the_transaction(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    fill(connection, address)
    worker = Worker(broker.url, address, ["commit"], False)
    worker.run()
    assert worker.transaction is not None
    assert len(worker.provisional) == COUNT
    for id, outcome in worker.provisional:
        assert id == worker.transaction.id
        # amqp:accepted:list
        assert outcome.descriptor == 0x24
    # The settlements come with the commit.
    assert all(delivery.remote_state == Delivery.ACCEPTED for delivery in worker.settled)


def test_a_connection_that_goes_takes_its_transactions_along(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    class Quitter(Worker):
        def on_delivery(self, event: Event) -> None:
            if event.delivery in self.answered and len(self.answered) == COUNT:
                self.connection.close()

    bodies = fill(connection, address)
    worker = Quitter(broker.url, address, ["commit"], True)
    worker.run()
    assert worker.told == []
    assert remaining(connection, f"{address}/in") == bodies
    assert remaining(connection, f"{address}/out") == []
