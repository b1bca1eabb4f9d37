"""Times go on while the broker is not there."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Modified, Properties
from tests.broker.harness import Network, header, message_annotations
from tests.broker.recovery.kit import bodies, browse, send, store_of, take_all


@pytest.mark.spec("3.2.1")
def test_a_ttl_counts_while_the_broker_is_away(net: Network) -> None:
    sender = net.connect().sender("q")
    send(sender, b"short", ttl=10_000)
    send(sender, b"long", ttl=100_000)
    net.now += 60
    net.restart()
    (long,) = take_all(net, "q")
    assert header(long.payload).ttl == 40_000
    assert net.queue("q").message_count() == 1


def test_what_has_expired_meanwhile_is_a_dead_letter(net: Network) -> None:
    net.declare("q", QueuePolicy(expired="late", message_ttl=20_000))
    sender = net.connect().sender("q")
    send(sender, b"a", b"b")
    net.now += 60
    net.restart()
    assert browse(net, "q") == []
    late = take_all(net, "late")
    assert bodies(late) == [b"a", b"b"]
    assert message_annotations(late[0].payload)["x-opt-deadletter-reason"] == "expired"
    net.restart()
    assert browse(net, "late") == [b"a", b"b"]


@pytest.mark.spec("3.2.4")
def test_an_absolute_time_is_one(net: Network) -> None:
    sender = net.connect().sender("q")
    send(sender, b"a", properties=Properties(absolute_expiry_time=net.wall + 30_000))
    net.restart()
    assert browse(net, "q") == [b"a"]
    net.now += 31
    net.restart()
    assert browse(net, "q") == []


def test_a_message_that_was_changed_expires_when_it_would_have(net: Network) -> None:
    send(net.connect().sender("q"), b"a", ttl=60_000)
    net.advance(30)
    receiver = net.connect().receiver("q", credit=1)
    receiver.settle(Modified(message_annotations={"x-opt-seen": 1}))
    receiver.close()
    net.restart()
    net.advance(29)
    assert browse(net, "q") == [b"a"]
    net.advance(2)
    assert browse(net, "q") == []


def test_an_opaque_message_that_expires_is_sent_on(net: Network) -> None:
    net.declare("q", QueuePolicy(persist=True, message_ttl=10_000, dead_letter="dead"))
    net.declare("dead", QueuePolicy(persist=True))
    net.connect().sender("q").send_encoded(b"whatever", message_format=0x4242_4200)
    net.restart()
    net.advance(11)
    net.restart()
    (one,) = take_all(net, "dead")
    assert one.payload == b"whatever"
    assert one.message_format == 0x4242_4200


def test_another_message_ttl_is_for_messages_to_come_ever_after(net: Network) -> None:
    queue = net.declare("q")
    sender = net.connect().sender("q")
    send(sender, b"a")
    queue.change_policy(QueuePolicy(message_ttl=10_000))
    net.space.changed(queue)
    send(sender, b"b")
    queue.change_policy(QueuePolicy(message_ttl=1_000_000))
    net.space.changed(queue)
    send(sender, b"c")
    net.restart()
    net.restart()
    net.advance(11)
    assert browse(net, "q") == [b"a", b"c"]
    net.advance(1000)
    assert browse(net, "q") == [b"a"]
    send(net.connect().sender("q"), b"d")
    net.restart()
    net.advance(1001)
    assert browse(net, "q") == [b"a"]


def test_an_earlier_ttl_is_for_no_message_that_comes_after_it(net: Network) -> None:
    queue = net.declare("q")
    send(net.connect().sender("q"), b"a", b"b", b"c")
    queue.change_policy(QueuePolicy(message_ttl=10_000))
    net.space.changed(queue)
    receiver = net.connect().receiver("q", credit=10)
    receiver.settle(Accepted())
    # Nothing is left of that era; numbers go on behind it all the same.
    net.restart()
    send(net.connect().sender("q"), b"d")
    net.restart()
    net.advance(11)
    assert browse(net, "q") == []


def test_another_key_is_for_messages_to_come_ever_after(net: Network) -> None:
    queue = net.declare("q")
    sender = net.connect().sender("q")
    send(sender, b"1", b"2", application={"key": "a"})
    queue.change_policy(QueuePolicy(last_value_key="key"))
    net.space.changed(queue)
    send(sender, b"3", application={"key": "a"})
    net.restart()
    assert browse(net, "q") == [b"1", b"2", b"3"]
    send(net.connect().sender("q"), b"4", application={"key": "a"})
    net.restart()
    assert browse(net, "q") == [b"1", b"2", b"4"]


def test_a_message_that_is_to_come_comes(net: Network) -> None:
    sender = net.connect().sender("q")
    send(sender, b"late", annotations={"x-opt-delivery-delay": 60_000})
    send(sender, b"soon", annotations={"x-opt-delivery-delay": 30_000})
    send(sender, b"gone", durable=False, annotations={"x-opt-delivery-delay": 30_000})
    net.restart()
    assert browse(net, "q") == []
    assert net.queue("q").lifecycle.scheduled() == 2
    net.now += 40
    net.restart()
    assert browse(net, "q") == [b"soon"]
    net.advance(30)
    assert browse(net, "q") == [b"soon", b"late"]
    net.restart()
    assert browse(net, "q") == [b"soon", b"late"]


def test_scheduled_messages_keep_their_numbers(net: Network) -> None:
    sender = net.connect().sender("q")
    send(sender, b"a", b"b", b"c", annotations={"x-opt-delivery-delay": 60_000})
    assert net.queue("q").lifecycle.cancel_scheduled(2)
    net.connect()
    net.restart()
    lifecycle = net.queue("q").lifecycle
    assert [one.sequence for one in lifecycle.list_scheduled()] == [1, 3]
    send(net.connect().sender("q"), b"d", annotations={"x-opt-delivery-delay": 60_000})
    assert lifecycle.cancel_scheduled(1)
    net.connect()
    net.restart()
    net.advance(61)
    assert browse(net, "q") == [b"c", b"d"]


def test_a_message_that_came_before_is_a_duplicate(net: Network) -> None:
    net.declare("q", QueuePolicy(duplicate_window=60_000))
    sender = net.connect().sender("q")
    ids: list[object] = ["one", b"two", 3, "x" * 100, b"y" * 100]
    for id in ids:
        send(sender, b"a", properties=Properties(message_id=id))  # type: ignore[arg-type]
    receiver = net.connect().receiver("q", credit=10)
    receiver.settle(Accepted())
    net.now += 30
    net.restart()
    sender = net.connect().sender("q")
    for id in ids:
        send(sender, b"again", properties=Properties(message_id=id))  # type: ignore[arg-type]
    assert browse(net, "q") == []
    net.advance(31)
    send(sender, b"new", properties=Properties(message_id="one"))
    assert browse(net, "q") == [b"new"]


def test_a_window_that_is_closed_leaves_nothing_behind(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(duplicate_window=60_000))
    send(net.connect().sender("q"), b"a", properties=Properties(message_id="one"))
    assert store_of(net).count(9) == 1
    queue.change_policy(QueuePolicy())
    net.space.changed(queue)
    net.connect()
    assert store_of(net).count(9) == 0
