"""Proton: messages whose time is over, or has not come; dead letters and what they tell.

Times are real here and short. Every test waits for the message that must come in the end.
"""

from __future__ import annotations

import time

import pytest
from proton import Condition, Delivery, Message, Terminus, int32, symbol, timestamp, ulong
from proton.utils import BlockingConnection

from tests.interop.proton_client import send_encoded
from tests.interop.proton_nodes import Asking, Inbox, fence, left, send, settle

pytestmark = pytest.mark.interop

CONFIG = """
[[queue]]
name = "dead"

[[queue]]
pattern = "mortal-*"
dead-letter = "dead"
delivery-limit = 2

[[queue]]
pattern = "brief-*"
dead-letter = "dead"
message-ttl = "20ms"

[[queue]]
pattern = "two-ways-*"
dead-letter = "dead"
expired = "late"

[[queue]]
name = "late"

[[queue]]
name = "ring-a"
message-ttl = "5ms"
dead-letter = "ring-b"

[[queue]]
name = "ring-b"
message-ttl = "5ms"
dead-letter = "ring-a"

[[queue]]
name = "work"
dead-letter = "work-wait"

[[queue]]
name = "work-wait"
message-ttl = "30ms"
dead-letter = "work"
"""


def now() -> int:
    """The time of day in milliseconds, of the same clock as the broker's."""
    return time.time_ns() // 1_000_000


def why(message: Message) -> tuple[object, object]:
    """The reason and the source of a dead letter."""
    annotations = message.annotations
    return annotations["x-opt-deadletter-reason"], annotations["x-opt-deadletter-source"]


# -- expiry ---------------------------------------------------------------------------------


def test_ttl(connection: BlockingConnection, address: str) -> None:
    address = f"mortal-{address}"
    begun = now()
    send(connection, address, Message(body="short", ttl=0.05), Message(body="long", ttl=1000))
    message = Inbox(connection, "dead").next()
    assert (message.body, *why(message)) == ("short", "expired", address)
    died = message.annotations["x-opt-deadletter-time"]
    assert type(died) is timestamp
    assert begun + 50 <= died <= now()
    assert message.ttl == 0
    assert message.annotations["x-opt-original-ttl"] == 50
    (survivor,) = [Inbox(connection, address).next()]
    assert survivor.body == "long"
    assert 900 < survivor.ttl <= 1000


def test_absolute_expiry(connection: BlockingConnection, address: str) -> None:
    address = f"two-ways-{address}"
    # Proton counts these in seconds.
    past, soon, never = now() / 1000 - 10, now() / 1000 + 0.1, now() / 1000 + 1000
    for body, expiry in (("past", past), ("soon", soon), ("never", never)):
        send(connection, address, Message(body=body, expiry_time=expiry))
    late = Inbox(connection, "late")
    assert late.bodies(2) == ["past", "soon"]
    assert now() >= int(soon * 1000)
    assert left(connection, address) == ["never"]


def test_ttl_of_the_queue(connection: BlockingConnection, address: str) -> None:
    address = f"brief-{address}"
    browsed = Inbox(connection, address, options=Asking(mode=Terminus.DIST_MODE_COPY))
    send(connection, address, "x")
    message = Inbox(connection, "dead").next()
    assert (message.body, *why(message)) == ("x", "expired", address)
    # A queue gives no ttl to a message that has none.
    assert browsed.next().ttl == 0
    assert left(connection, address) == []


def test_what_a_consumer_holds_does_not_expire(
    connection: BlockingConnection, address: str
) -> None:
    address = f"mortal-{address}"
    inbox = Inbox(connection, address)
    dead = Inbox(connection, "dead")
    send(connection, address, Message(body="held", ttl=0.05), Message(body="given back", ttl=0.05))
    _, held = inbox.get()
    _, given_back = inbox.get()
    # What was sent after it, without a consumer, has expired: so its own time is over as well.
    other = f"mortal-other-{address}"
    send(connection, other, Message(body="other", ttl=0.06))
    assert dead.next().body == "other"
    settle(held, Delivery.ACCEPTED)
    settle(given_back, Delivery.RELEASED)
    assert dead.next().body == "given back"


# -- dead letters ---------------------------------------------------------------------------


def test_too_many_failed_deliveries(connection: BlockingConnection, address: str) -> None:
    address = f"mortal-{address}"
    send(connection, address, "poison")
    inbox = Inbox(connection, address)
    for count in range(3):
        message, delivery = inbox.get()
        assert message.delivery_count == count
        settle(delivery, Delivery.MODIFIED, failed=True)
    message = Inbox(connection, "dead").next()
    assert (message.body, *why(message)) == ("poison", "delivery-limit", address)
    assert message.annotations["x-opt-deadletter-count"] == 1
    assert left(connection, address) == []


def test_releasing_is_not_failing(connection: BlockingConnection, address: str) -> None:
    address = f"mortal-{address}"
    send(connection, address, "patient")
    inbox = Inbox(connection, address)
    for _ in range(5):
        settle(inbox.get()[1], Delivery.RELEASED)
    assert inbox.next().body == "patient"


def test_rejected_with_a_reason(connection: BlockingConnection, address: str) -> None:
    address = f"mortal-{address}"
    send(connection, address, Message(body="bad", annotations={"x-opt-mine": 1}))
    _, delivery = Inbox(connection, address).get()
    reason = Condition("example:broken", "a wheel is missing", {symbol("wheel"): 3})
    settle(delivery, Delivery.REJECTED, condition=reason)
    message = Inbox(connection, "dead").next()
    assert (message.body, *why(message)) == ("bad", "rejected", address)
    annotations = message.annotations
    assert annotations["x-opt-deadletter-condition"] == symbol("example:broken")
    assert type(annotations["x-opt-deadletter-condition"]) is symbol
    assert annotations["x-opt-deadletter-description"] == "a wheel is missing"
    assert annotations["x-opt-deadletter-first-reason"] == "rejected"
    # A consumer had a say, so nothing of the way to it counts.
    assert "x-opt-deadletter-path" not in annotations
    assert annotations["x-opt-mine"] == 1


def test_a_circle_is_cut(connection: BlockingConnection, address: str) -> None:
    """Two queues that expire into each other: nobody ever has a say, so it ends."""
    browsed = Inbox(connection, "ring-b", options=Asking(mode=Terminus.DIST_MODE_COPY))
    send(connection, "ring-a", "round")
    assert browsed.next().annotations["x-opt-deadletter-path"] == ["ring-a"]
    # What was sent later and lives longer than two rounds has come: the other would be here.
    address = f"mortal-{address}"
    send(connection, address, Message(body="later", ttl=0.1))
    assert Inbox(connection, "dead").next().body == "later"
    assert left(connection, "ring-a") == left(connection, "ring-b") == []
    assert browsed.waiting == 0


def test_trying_again_later(connection: BlockingConnection) -> None:
    """A consumer that rejects has a say: the message comes back each time."""
    send(connection, "work", "hard")
    inbox = Inbox(connection, "work")
    begun = now()
    for turn in range(3):
        message, delivery = inbox.get()
        count = message.annotations.get("x-opt-deadletter-count") if message.annotations else None
        assert count == (2 * turn if turn else None)
        settle(delivery, Delivery.REJECTED)
    assert inbox.next().body == "hard"
    assert now() >= begun + 3 * 30


# -- schedules ------------------------------------------------------------------------------


def test_delivery_delay_and_times_keep_their_order(
    connection: BlockingConnection, address: str
) -> None:
    inbox = Inbox(connection, address)
    begun = now()
    messages = [
        Message(body=700, annotations={symbol("x-opt-delivery-delay"): ulong(700)}),
        Message(body=500, annotations={symbol("x-opt-delivery-time"): begun + 500}),
        Message(
            body=600,
            annotations={symbol("x-opt-scheduled-enqueue-time"): timestamp(begun + 600)},
        ),
        Message(body=0, annotations={symbol("x-opt-delivery-time"): int32(1)}),
    ]
    # All at once, so that the last is here before the first is due.
    send_encoded(connection, address, *[message.encode() for message in messages])
    for due in (0, 500, 600, 700):
        assert inbox.next().body == due
        assert now() >= begun + due


def test_a_scheduled_message_is_not_shown_before_its_time(
    connection: BlockingConnection, address: str
) -> None:
    delayed = {symbol("x-opt-delivery-delay"): ulong(3_600_000)}
    send(connection, address, Message(body="in an hour", annotations=delayed), "now")
    browser = Inbox(connection, address, credit=0, options=Asking(mode=Terminus.DIST_MODE_COPY))
    assert browser.rest() == ["now"]
    assert left(connection, address) == ["now"]


def test_the_ttl_of_a_scheduled_message_begins_when_it_is_due(
    connection: BlockingConnection, address: str
) -> None:
    """The broker's own times tell."""
    address = f"mortal-{address}"
    begun = now()
    delayed = {symbol("x-opt-delivery-delay"): ulong(80)}
    send(connection, address, Message(body="later", ttl=0.02, annotations=delayed))
    message = Inbox(connection, "dead").next()
    assert message.annotations["x-opt-deadletter-time"] >= begun + 100
    assert symbol("x-opt-delivery-delay") not in message.annotations


@pytest.mark.parametrize("value", [-1, "soon", 1.5])
def test_a_schedule_that_makes_no_sense(
    connection: BlockingConnection, address: str, value: object
) -> None:
    wrong = Message(body="x", annotations={symbol("x-opt-delivery-delay"): value})
    sender = connection.create_sender(address)
    delivery = sender.link.send(wrong)
    connection.wait(lambda: delivery.settled)
    assert delivery.remote_state == Delivery.REJECTED
    assert delivery.remote.condition.name == "amqp:invalid-field"
    assert "x-opt-delivery-delay" in delivery.remote.condition.description
    delivery.settle()
    fence(connection)
