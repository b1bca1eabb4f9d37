"""Messages, outcomes and errors in the words of another broker."""

from __future__ import annotations

import pytest

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.entry import Entry
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.personality import MOST_STAMPED, Personality
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import (
    Accepted,
    Data,
    Header,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    TerminusDurability,
)
from ferrymq_types.transport import Error, SenderSettleMode
from ferrymq_types.unions import Outcome
from tests.broker.harness import Client, Network, Receiver, encode, header, message_annotations
from tests.broker.queues.links import consume, publish
from tests.broker.transactions.kit import Controller, acquire, post, retire

LOCKING = QueuePolicy(lock_duration=60_000)
DEFERRING = QueuePolicy(lock_duration=60_000, deferral=True)


class Shop(Personality):
    """Stamps the sequence as the priority, marks messages, and knows "return" and "later"."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, bool]] = []
        self.locked: list[bool] = []

    def admit(self, message: BrokerMessage, node: Node) -> BrokerMessage:
        if b"forbidden" in message.payload:
            raise BrokerError("amqp:not-allowed", f"no such thing in {node.address}")
        return message.annotated({"x-opt-shop": node.address})

    def stamp(self, node: Node, entry: Entry, head: bytes, start: int) -> tuple[bytes, int]:
        self.locked.append(entry.lock is not None)
        head = encode(Header(priority=int(entry.sequence) % 10))
        return head, int(entry.message.header_end)

    def outcome(self, node: Node, entry: Entry, state: Outcome, ending: bool) -> Outcome:
        self.seen.append((type(state).__name__, ending))
        if isinstance(state, Rejected):
            return Modified(delivery_failed=True)
        return state

    def error(self, condition: str, description: str, info: dict[str, object] | None) -> Error:
        condition = condition.replace("ferrymq:", "shop:").replace("amqp:not-", "shop:not-")
        return Error(condition=condition, description=description, info=info)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def net(shop: Shop) -> Network:
    net = Network()
    net.space.personality = shop
    return net


def headers(receiver: Receiver) -> list[int]:
    return [header(delivery.payload).priority for delivery in receiver.deliveries]


def queue_of(net: Network, address: str) -> Queue:
    node = net.space.nodes[address]
    assert isinstance(node, Queue)
    return node


def fill(client: Client, *bodies: bytes) -> None:
    publish(client.sender("q"), *bodies)


# -- what is sent ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [QueuePolicy(), LOCKING], ids=["plain", "locks"])
@pytest.mark.parametrize("mode", [SenderSettleMode.UNSETTLED, SenderSettleMode.SETTLED])
def test_each_delivery_is_stamped(
    net: Network, shop: Shop, policy: QueuePolicy, mode: SenderSettleMode
) -> None:
    net.declare("q", policy)
    client = net.connect()
    fill(client, b"a", b"b")
    receiver = client.receiver("q", credit=2, snd=mode)
    assert receiver.bodies() == [b"a", b"b"]
    assert headers(receiver) == [1, 2]
    locked = policy.lock_duration > 0 and mode is SenderSettleMode.UNSETTLED
    assert shop.locked == [locked, locked]


def test_a_browser_and_a_consumer_in_a_transaction_get_stamped_messages(net: Network) -> None:
    net.declare("q", LOCKING)
    client = net.connect()
    fill(client, b"a")
    assert headers(consume(client, "q", 1, mode="copy")) == [1]
    control = Controller(client)
    txn = control.declare()
    receiver = client.receiver("q")
    acquire(receiver, txn, 1)
    assert headers(receiver) == [1]
    assert len(receiver.deliveries[0].tag) == 16


def test_a_stamped_message_fits_into_the_size_of_the_link(net: Network) -> None:
    client = net.connect()
    fill(client, b"x" * 100)
    assert consume(client, "q", 1, max_message_size=MOST_STAMPED).bodies() == []
    assert len(consume(client, "q", 1, max_message_size=3 * MOST_STAMPED).bodies()) == 1


def test_deliveries_do_not_outlive_a_link(net: Network) -> None:
    durable = Source(address="q", durable=TerminusDurability.UNSETTLED_STATE, timeout=60)
    receiver = net.connect(container_id="me").receiver(None, source=durable, name="kept")
    assert receiver.remote_source.durable is TerminusDurability.NONE


# -- what comes --------------------------------------------------------------------------------


def test_messages_are_changed_as_they_come(net: Network) -> None:
    client = net.connect()
    fill(client, b"a")
    control = Controller(client)
    txn = control.declare()
    post(client.sender("q"), txn, b"b")
    control.commit(txn)
    client.sender(None).send_sections(Properties(to="q"), Data(value=b"c"))
    receiver = client.receiver("q", credit=3)
    annotations = [message_annotations(one.payload) for one in receiver.deliveries]
    assert annotations == [{"x-opt-shop": "q"}] * 3


def test_a_message_that_is_not_admitted_is_rejected(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    (delivery,) = sender.send(b"forbidden")
    state = delivery.remote_state
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == "shop:not-allowed"
    assert client.receiver("q", credit=1).bodies() == []


# -- outcomes ----------------------------------------------------------------------------------


def test_an_outcome_becomes_another_one(net: Network, shop: Shop) -> None:
    client = net.connect()
    fill(client, b"a")
    receiver = client.receiver("q", credit=1)
    delivery = receiver.deliveries[0]
    receiver.settle(Rejected())
    assert shop.seen == [("Rejected", False)]
    again = client.receiver("q", credit=1)
    assert len(again.bodies()) == 1 and delivery.settled
    again.settle(Accepted())
    assert queue_of(net, "q").message_count() == 0


def test_the_confirmation_repeats_the_outcome_of_the_client(net: Network) -> None:
    client = net.connect()
    fill(client, b"a")
    receiver = client.receiver("q", credit=1)
    (delivery,) = receiver.take()
    delivery.update(Rejected(error=Error(condition="shop:broken")))
    net.run()
    assert delivery.remote_settled and delivery.remote_state == Rejected()


def test_an_outcome_while_the_link_is_drained(net: Network, shop: Shop) -> None:
    client = net.connect()
    fill(client, b"a")
    receiver = client.receiver("q", credit=2)
    receiver.drain()
    receiver.settle(Released())
    assert shop.seen == [("Released", True)]


def test_an_outcome_in_a_transaction(net: Network, shop: Shop) -> None:
    client = net.connect()
    fill(client, b"a")
    control = Controller(client)
    receiver = client.receiver("q", credit=1)
    (delivery,) = receiver.take()
    txn = control.declare()
    retire(receiver, txn, delivery, outcome=Rejected())
    assert shop.seen == [("Rejected", False)]
    control.commit(txn)
    assert delivery.remote_state == Rejected()
    assert queue_of(net, "q").message_count() == 1


# -- errors ------------------------------------------------------------------------------------


def test_the_errors_of_links_and_attaches(net: Network) -> None:
    net.space.auto_create = None
    client = net.connect()
    refused = client.receiver("nowhere")
    assert refused.error is not None and refused.error.condition == "shop:not-found"
    answer = refused.link.remote_attach
    assert answer is not None and answer.source is None and answer.target is None


def test_a_lost_lock(net: Network) -> None:
    net.declare("q", DEFERRING)
    client = net.connect()
    fill(client, b"a")
    receiver = client.receiver("q", credit=1)
    (delivery,) = receiver.take()
    receiver.link.set_credit(0)
    net.advance(61)
    delivery.update(Accepted())
    net.run()
    state = delivery.remote_state
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == "shop:lock-lost"


# -- messages that change or leave ---------------------------------------------------------------


class Marker(Personality):
    """Marks messages that an outcome changes, and dead letters."""

    def amended(self, message: BrokerMessage, changes: dict[str, object]) -> BrokerMessage:
        return message.annotated({"x-opt-changed": sorted(changes)})

    def dead_letter(self, entry: Entry, annotations: dict[str | int, object]) -> None:
        annotations["x-opt-number"] = int(entry.sequence)


@pytest.mark.parametrize("commits", [None, True, False])
def test_what_an_outcome_changes_is_changed_when_it_is_applied(commits: bool | None) -> None:
    net = Network()
    net.space.personality = Marker()
    net.declare("q")
    client = net.connect()
    fill(client, b"a")
    receiver = client.receiver("q", credit=1)
    outcome = Modified(message_annotations={"x-opt-b": 1, "x-opt-a": 1})
    if commits is None:
        receiver.settle(outcome)
    else:
        control = Controller(client)
        txn = control.declare()
        retire(receiver, txn, *receiver.take(), outcome=outcome, settled=True)
        (control.commit if commits else control.roll_back)(txn)
    (again,) = net.connect().receiver("q", credit=1).deliveries
    annotations = message_annotations(again.payload)
    assert annotations == ({} if commits is False else {"x-opt-changed": ["x-opt-a", "x-opt-b"]})


def test_a_dead_letter_gets_annotations() -> None:
    net = Network()
    net.space.personality = Marker()
    net.declare("q", QueuePolicy(dead_letter="dead"))
    net.declare("dead")
    client = net.connect()
    fill(client, b"a", b"b")
    receiver = client.receiver("q", credit=2)
    receiver.settle(Rejected(), receiver.take()[1])
    (letter,) = net.connect().receiver("dead", credit=1).deliveries
    assert message_annotations(letter.payload)["x-opt-number"] == 2
