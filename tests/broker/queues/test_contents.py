"""What can be seen of a queue from outside, and done to it: figures, peek, move, purge."""

from __future__ import annotations

import pytest

from ferrymq_broker.management.sliced_query import finish
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import (
    Accepted,
    Data,
    Header,
    MessageAnnotations,
    Modified,
    Rejected,
    Released,
)
from tests.broker.harness import Network, header, text
from tests.broker.queues.links import consume, numbered, publish


def test_figures_and_settings_have_public_names(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(single_active=True, max_consumers=7))
    client = net.connect()
    client.sender("q").send(*numbered(0, 6))
    receiver = consume(client, "q", 5)
    for outcome in (
        Accepted(),
        Rejected(),
        Released(),
        Modified(delivery_failed=True),
        None,
    ):
        delivery = receiver.deliveries.pop(0)
        receiver.link.set_credit(0)
        if outcome is not None:
            receiver.settle(outcome, delivery)
    described = queue.describe()
    expected = {
        "name": "q",
        "type": "queue",
        "single-active": True,
        "max-consumers": 7,
        "dead-letter": "",
        "messages": 4,
        "available": 3,
        "acquired": 1,
        "consumers": 1,
        "producers": 1,
        "published": 6,
        "delivered": 5,
        "accepted": 1,
        "rejected": 1,
        "released": 1,
        "modified": 1,
    }
    assert {name: described.get(name) for name in expected} == expected
    size = sum(len(entry.message.payload) for entry in queue.peek(100))
    assert described["bytes"] == size > 0


def test_peek_shows_what_would_come_next(net: Network) -> None:
    queue = net.declare("q")
    client = net.connect()
    sender = client.sender("q")
    publish(sender, b"1", b"2", b"3")
    publish(sender, b"urgent", priority=9)
    consume(client, "q", 1)
    shown = queue.peek(3)
    assert [text(entry.message.payload) for entry in shown] == [b"urgent", b"1", b"2"]
    later = queue.peek(10, shown[2].sequence)
    assert [text(entry.message.payload) for entry in later] == [b"urgent", b"2", b"3"]
    assert (queue.available, queue.acquired) == (3, 1)


def test_messages_are_moved_in_order(net: Network) -> None:
    queue, other = net.declare("q"), net.declare("other")
    client = net.connect()
    client.sender("q").send(*numbered(0, 6))
    holder = consume(client, "q", 1)
    assert finish(queue.move(other, 3)) == (3, None)
    assert consume(client, "other", 10).bodies() == [b"1", b"2", b"3"]
    assert holder.bodies() == [b"0"]
    assert consume(client, "q", 10).bodies() == [b"4", b"5"]


@pytest.mark.spec("3.2.1")
def test_what_is_moved_goes_on_counting_its_deliveries(net: Network) -> None:
    queue, other = net.declare("q"), net.declare("other")
    client = net.connect()
    fresh = Header(first_acquirer=True, delivery_count=3)
    for body in (b"tried", b"fresh"):
        client.sender("q").send_sections(fresh, Data(value=body))
    receiver = consume(client, "q", 1)
    receiver.settle(Modified(delivery_failed=True))
    receiver.close()
    assert finish(queue.move(other, 10)) == (2, None)
    moved = consume(client, "other", 10)
    assert moved.bodies() == [b"tried", b"fresh"]
    headers = [header(delivery.payload) for delivery in moved.deliveries]
    assert headers == [Header(first_acquirer=False, delivery_count=4), fresh]


@pytest.mark.parametrize("ttl", [None, 60_000, 1_000])
def test_what_is_moved_has_the_time_that_it_has_left(net: Network, ttl: int | None) -> None:
    queue = net.declare("q", QueuePolicy(message_ttl=5_000))
    other = net.declare("other", QueuePolicy(dead_letter="late"))
    net.connect().sender("q").send_sections(Header(ttl=ttl), Data(value=b"x"))
    left = 1 if ttl == 1_000 else 5
    net.advance(0.5)
    assert finish(queue.move(other, 10)) == (1, None)
    net.advance(left - 0.6)
    assert other.available == 1
    net.advance(0.2)
    assert other.available == 0 and net.queue("late").available == 1


def test_a_move_ends_where_the_target_wants_no_more(net: Network) -> None:
    queue = net.declare("q")
    small = net.declare("small", QueuePolicy(max_length=2))
    net.connect().sender("q").send(*numbered(0, 5))
    moved, refusal = finish(queue.move(small, 100))
    assert moved == 2
    assert refusal is not None
    assert (queue.available, small.available) == (3, 2)


def test_a_move_to_itself_ends(net: Network) -> None:
    queue = net.declare("q")
    net.connect().sender("q").send(*numbered(0, 5))
    assert finish(queue.move(queue, 100)) == (5, None)
    assert consume(net.connect(), "q", 10).bodies() == numbered(0, 5)


def test_a_purge_leaves_what_is_held(net: Network) -> None:
    queue = net.declare("q")
    client = net.connect()
    publish(client.sender("q"), *numbered(0, 5))
    publish(client.sender("q"), b"urgent", priority=9)
    receiver = consume(client, "q", 2)
    assert queue.purge().count == 4
    assert (queue.available, queue.acquired) == (0, 2)
    receiver.settle(Released())
    assert consume(client, "q", 10).bodies() == [b"urgent", b"0"]


def test_a_message_in_several_queues_counts_once(net: Network) -> None:
    agenda = net.broker.agenda
    first, second = net.declare("a"), net.declare("b")
    net.connect().sender("a").send(b"x" * 1000)
    entry = first.peek(1)[0]
    held = agenda.held
    assert held > 1000
    second.publish(entry.message)
    assert (agenda.held, first.bytes, second.bytes) == (held, held, held)
    first.purge()
    assert (agenda.held, first.bytes) == (held, 0)
    second.purge()
    assert agenda.held == 0


def test_added_annotations_are_counted(net: Network) -> None:
    queue = net.declare("q")
    client = net.connect()
    client.sender("q").send(b"a")
    receiver = consume(client, "q", 1)
    before = queue.bytes
    receiver.settle(Modified(message_annotations={"x-opt-note": "y" * 500}))
    assert queue.bytes == net.broker.agenda.held > before + 500
    again = consume(client, "q", 1)
    again.settle(Accepted())
    assert queue.bytes == net.broker.agenda.held == 0


def test_a_deleted_queue_holds_nothing(net: Network) -> None:
    net.declare("q")
    client = net.connect()
    sender = client.sender("q")
    sender.send(*numbered(0, 5))
    sender.send_sections(MessageAnnotations(value={"x-opt-a": 1}))
    consume(client, "q", 3)
    consume(client, "q", 3, mode="copy")
    net.space.remove(net.queue("q"))
    assert net.broker.agenda.held == 0
    net.run()


def test_another_policy_is_followed_from_now_on(net: Network) -> None:
    queue = net.declare("q", QueuePolicy())
    client = net.connect()
    first, second = consume(client, "q", 100), consume(client, "q", 100)
    queue.change_policy(QueuePolicy(single_active=True, priorities=1))
    sender = client.sender("q")
    publish(sender, b"low", priority=0)
    publish(sender, b"high", priority=9)
    assert (first.bodies(), second.bodies()) == ([b"low", b"high"], [])
    queue.change_policy(QueuePolicy())
    publish(sender, *numbered(0, 10))
    assert len(second.deliveries) == 5
