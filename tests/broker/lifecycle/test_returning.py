"""Queues that return rejected messages to their publishers, and what becomes of the others."""

from __future__ import annotations

import pytest

from ferrymq_broker.management.setup import install
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Data, Modified, Properties, Rejected
from tests.broker.harness import Client, Network
from tests.broker.management.asker import Asker


def publish(client: Client, address: str, reply_to: str) -> None:
    """Send a message with a reply-to."""
    client.sender(address).send_sections(Properties(reply_to=reply_to), Data(value=b"a"))


def counted(net: Network, *names: str) -> list[int]:
    """How many messages each of the queues has."""
    return [net.queue(name).message_count() for name in names]


@pytest.fixture
def queues(net: Network) -> Network:
    net.declare("q", QueuePolicy(return_rejected=True, dead_letter="dead", delivery_limit=1))
    net.declare("dead")
    net.declare("box", QueuePolicy(max_length=1))
    return net


@pytest.mark.spec("broker-2.3.7")
def test_without_rules_a_message_returns_after_its_publisher_is_gone(queues: Network) -> None:
    publisher = queues.connect()
    publish(publisher, "q", "box")
    publisher.close()
    queues.connect().receiver("q", credit=1).settle(Rejected())
    assert counted(queues, "q", "box", "dead") == [0, 1, 0]
    assert queues.queue("q").describe()["returned"] == 1


@pytest.mark.spec("broker-2.3.7")
def test_what_is_left_unsettled_returns_by_the_default_outcome(queues: Network) -> None:
    publish(queues.connect(), "q", "box")
    client = queues.connect()
    client.receiver("q", credit=1, default_outcome=Rejected())
    client.lose()
    assert counted(queues, "q", "box", "dead") == [0, 1, 0]


@pytest.mark.spec("broker-2.3.7")
def test_what_fails_too_often_returns(queues: Network) -> None:
    publish(queues.connect(), "q", "box")
    receiver = queues.connect().receiver("q", credit=2)
    for _ in range(2):
        receiver.settle(Modified(delivery_failed=True))
    assert counted(queues, "q", "box", "dead") == [0, 1, 0]


def test_where_there_is_no_room_the_dead_letters_get_it(queues: Network) -> None:
    client = queues.connect()
    for _ in range(2):
        publish(client, "q", "box")
    receiver = queues.connect().receiver("q", credit=2)
    for _ in range(2):
        receiver.settle(Rejected())
    assert counted(queues, "q", "box", "dead") == [0, 1, 1]


def test_two_queues_that_return_to_each_other_end(net: Network) -> None:
    for name in ("a", "b"):
        net.declare(name, QueuePolicy(return_rejected=True))
    publish(net.connect(), "a", "b")
    client = net.connect()
    client.receiver("a", credit=1).settle(Rejected())
    client.receiver("b", credit=1).settle(Rejected())
    assert counted(net, "a", "b") == [0, 0]
    assert net.queue("b").describe()["dropped"] == 1


def test_management_declares_and_changes_it(net: Network) -> None:
    install(net.space, net.broker)
    asker = Asker(net)
    assert asker.ask("CREATE", "queue", "q", {"return-rejected": True}).status == 201
    assert asker.ask("READ", "queue", "q").map()["return-rejected"] is True
    assert asker.ask("UPDATE", "queue", "q", {"return-rejected": False}).status == 200
    assert net.queue("q").policy == QueuePolicy()
