"""Proton: queues that are full, that keep the last value, that know what has come before."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from proton import Delivery, Message, Terminus, int32, symbol, ulong
from proton.utils import BlockingConnection

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import connect
from tests.interop.proton_nodes import Asking, Inbox, fence, left, send, settle

pytestmark = pytest.mark.interop

ACCEPTED, REJECTED = Delivery.ACCEPTED, Delivery.REJECTED

CONFIG = """
[[queue]]
pattern = "reject-*"
max-length = 2

[[queue]]
pattern = "bytes-*"
max-bytes = 1000

[[queue]]
pattern = "drop-head-*"
max-length = 2
overflow = "drop-head"

[[queue]]
pattern = "dead-letter-*"
max-length = 2
overflow = "dead-letter"
dead-letter = "dead"

[[queue]]
pattern = "block-*"
max-length = 2
overflow = "block"

[[queue]]
name = "dead"

[[queue]]
pattern = "last-*"
last-value-key = "symbol"

[[queue]]
pattern = "last-annotated-*"
last-value-key = "x-opt-vehicle"

[[queue]]
pattern = "once-*"
duplicate-window = "10m"

[[queue]]
pattern = "once-of-two-*"
duplicate-window = "10m"
duplicate-limit = 2
"""


# -- full queues ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reject", "bytes"])
def test_a_full_queue_rejects(connection: BlockingConnection, address: str, kind: str) -> None:
    address = f"{kind}-{address}"
    body = "x" * (400 if kind == "bytes" else 1)
    assert send(connection, address, body, body) == [ACCEPTED, ACCEPTED]
    sender = connection.create_sender(address)
    delivery = sender.link.send(Message(body=body))
    connection.wait(lambda: delivery.settled)
    assert delivery.remote_state == REJECTED
    condition = delivery.remote.condition
    assert condition.name == "amqp:resource-limit-exceeded"
    reason = "max-bytes" if kind == "bytes" else "max-length"
    info = dict(condition.info)
    assert bytes(info.pop("delivery-tag")) == str(delivery.tag).encode()
    assert info == {"queue": address, "reason": reason}
    delivery.settle()
    # What a consumer holds counts.
    inbox = Inbox(connection, address, credit=1)
    _, held = inbox.get()
    assert send(connection, address, body) == [REJECTED]
    settle(held, ACCEPTED)
    fence(connection)
    assert send(connection, address, body) == [ACCEPTED]


def test_a_full_queue_drops_its_head(connection: BlockingConnection, address: str) -> None:
    address = f"drop-head-{address}"
    assert send(connection, address, 1, 2, 3, 4) == [ACCEPTED] * 4
    assert left(connection, address) == [3, 4]


def test_a_full_queue_drops_what_is_least_urgent(
    connection: BlockingConnection, address: str
) -> None:
    address = f"drop-head-{address}"
    send(connection, address, Message(body=1, priority=9), Message(body=2), Message(body=3))
    assert left(connection, address) == [1, 3]


def test_a_full_queue_sends_its_head_to_the_dead(
    connection: BlockingConnection, address: str
) -> None:
    address = f"dead-letter-{address}"
    assert send(connection, address, 1, 2, 3) == [ACCEPTED] * 3
    message = Inbox(connection, "dead").next()
    assert message.body == 1
    assert message.annotations["x-opt-deadletter-reason"] == "max-length"
    assert message.annotations["x-opt-deadletter-source"] == address
    assert left(connection, address) == [2, 3]


def test_a_full_queue_gives_no_credit_until_something_is_taken(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    address = f"block-{address}"
    sender = connection.create_sender(address)
    connection.wait(lambda: sender.link.credit > 0)
    assert sender.link.credit <= 2
    sender.send(Message(body=1))
    connection.wait(lambda: sender.link.credit > 0)
    sender.send(Message(body=2))
    fence(connection)
    assert sender.link.credit == 0
    # Another sender has none either.
    other = connection.create_sender(address, name="another")
    fence(connection)
    assert other.link.credit == 0
    with connect(broker.url) as consuming:
        inbox = Inbox(consuming, address, credit=1)
        assert inbox.next().body == 1
        fence(consuming)
        connection.wait(lambda: sender.link.credit + other.link.credit == 1)
        (lucky,) = [link for link in (sender, other) if link.link.credit]
        lucky.send(Message(body=3))
        fence(connection)
        assert sender.link.credit + other.link.credit == 0
        inbox.close()
        assert left(consuming, address) == [2, 3]


def test_a_blocking_queue_carries_everything_in_the_end(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    address = f"block-{address}"
    sender = connection.create_sender(address)
    with connect(broker.url) as consuming:
        inbox = Inbox(consuming, address, credit=1)
        for number in range(20):
            connection.wait(lambda: sender.link.credit > 0)
            sender.send(Message(body=number))
            message, delivery = inbox.get()
            assert message.body == number
            settle(delivery, ACCEPTED)
            inbox.link.flow(1)
            fence(consuming)


# -- last values ----------------------------------------------------------------------------


def test_only_the_last_value_is_kept(connection: BlockingConnection, address: str) -> None:
    address = f"last-{address}"
    prices = [("a", 1), ("b", 2), ("a", 3), (symbol("b"), 4), ("c", 5), ("a", 6)]
    messages = [Message(body=price, properties={"symbol": key}) for key, price in prices]
    send(connection, address, *messages, Message(body="no key"))
    browser = Inbox(connection, address, credit=0, options=Asking(mode=Terminus.DIST_MODE_COPY))
    assert browser.rest() == [4, 5, 6, "no key"]
    assert left(connection, address) == [4, 5, 6, "no key"]


def test_what_is_held_gives_way_to_what_is_newer(
    connection: BlockingConnection, address: str
) -> None:
    address = f"last-annotated-{address}"

    def position(body: int) -> Message:
        return Message(body=body, annotations={symbol("x-opt-vehicle"): int32(7)})

    send(connection, address, position(1))
    inbox = Inbox(connection, address, credit=1)
    _, held = inbox.get()
    send(connection, address, position(2))
    settle(held, Delivery.RELEASED)
    fence(connection)
    inbox.close()
    assert left(connection, address) == [2]


# -- duplicates -----------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["text", ulong(7), uuid.UUID(int=5), b"bytes"])
def test_what_comes_again_is_accepted_and_dropped(
    broker: BrokerProcess, connection: BlockingConnection, address: str, id: Any
) -> None:
    address = f"once-{address}"
    assert send(connection, address, Message(body="first", id=id)) == [ACCEPTED]
    with connect(broker.url) as other:
        assert send(other, address, Message(body="again", id=id)) == [ACCEPTED]
    assert left(connection, address) == ["first"]
    # It does not matter what has become of the first.
    assert send(connection, address, Message(body="again", id=id)) == [ACCEPTED]
    assert left(connection, address) == []


def test_ids_of_other_types_and_none_are_no_duplicates(
    connection: BlockingConnection, address: str
) -> None:
    address = f"once-{address}"
    messages = [Message(body=n, id=id) for n, id in enumerate(["7", ulong(7), b"7", None, None])]
    assert send(connection, address, *messages) == [ACCEPTED] * 5
    assert left(connection, address) == [0, 1, 2, 3, 4]


def test_so_many_ids_are_remembered(connection: BlockingConnection, address: str) -> None:
    address = f"once-of-two-{address}"
    send(connection, address, *[Message(body=id, id=id) for id in ("a", "b", "c", "b", "a")])
    assert left(connection, address) == ["a", "b", "c", "a"]
