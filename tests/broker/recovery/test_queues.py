"""What was in queues is in them again: in its order, as often delivered, no longer than it may."""

from __future__ import annotations

import pytest

from ferrymq_broker.store.tables import NODE
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Modified, Properties, Rejected, Released, Source
from tests.broker.harness import Network, decode, header, message_annotations, text
from tests.broker.recovery.kit import bodies, browse, send, stored, take_all


@pytest.mark.spec("3.2.1")
def test_durable_messages_are_there_in_their_order_and_others_are_not(net: Network) -> None:
    sender = net.connect().sender("q")
    send(sender, b"a", b"b")
    send(sender, b"gone", durable=False)
    send(sender, b"c")
    net.restart()
    assert browse(net, "q") == [b"a", b"b", b"c"]
    # New ones come behind them, and those are new to everybody else too.
    send(net.connect().sender("q"), b"d")
    net.restart()
    assert bodies(take_all(net, "q")) == [b"a", b"b", b"c", b"d"]


def test_the_message_is_the_same_byte_for_byte(net: Network) -> None:
    sender = net.connect().sender("q")
    send(
        sender,
        b"a",
        properties=Properties(message_id="one", subject="s"),
        annotations={"x-opt-thing": 5},
        application={"colour": "red"},
    )
    before = net.connect().receiver("q", mode="copy", credit=1).take()[0].payload
    net.restart()
    after = net.connect().receiver("q", mode="copy", credit=1).take()[0].payload
    # But for the header, which says that somebody may have had it.
    assert decode(after)[1:] == decode(before)[1:]


def test_all_messages_of_a_queue_that_persists_are_there(net: Network) -> None:
    net.declare("q", QueuePolicy(persist=True))
    send(net.connect().sender("q"), b"a", durable=False)
    net.restart()
    assert net.queue("q").policy.persist
    assert browse(net, "q") == [b"a"]


def test_nothing_of_a_queue_that_is_not_durable_is_there(net: Network) -> None:
    net.declare("q", QueuePolicy(durable=False))
    send(net.connect().sender("q"), b"a")
    assert stored(net) == set()
    net.restart()
    assert "q" not in net.space.nodes


def test_a_message_that_was_settled_is_gone(net: Network) -> None:
    send(net.connect().sender("q"), b"a", b"b", b"c")
    receiver = net.connect().receiver("q", credit=2)
    first, second = receiver.take()
    receiver.settle(Accepted(), first)
    receiver.settle(Rejected(), second)
    net.restart()
    assert browse(net, "q") == [b"c"]


def test_what_a_consumer_had_is_available_and_not_its_first_delivery(net: Network) -> None:
    send(net.connect().sender("q"), b"a", b"b")
    net.connect().receiver("q", credit=1)
    net.restart()
    again = take_all(net, "q")
    assert bodies(again) == [b"a", b"b"]
    assert not header(again[0].payload).first_acquirer


def test_failed_deliveries_are_counted_on(net: Network) -> None:
    net.declare("q", QueuePolicy(delivery_limit=2, dead_letter="dead"))
    send(net.connect().sender("q"), b"a")
    receiver = net.connect().receiver("q", credit=1)
    receiver.settle(Modified(delivery_failed=True))
    receiver.close()
    net.restart()
    receiver = net.connect().receiver("q", credit=1)
    assert header(receiver.deliveries[0].payload).delivery_count == 1
    receiver.settle(Modified(delivery_failed=True))
    receiver.close()
    net.restart()
    receiver = net.connect().receiver("q", credit=1)
    assert header(receiver.deliveries[0].payload).delivery_count == 2
    receiver.settle(Modified(delivery_failed=True))
    assert browse(net, "q") == []
    assert browse(net, "dead") == [b"a"]


def test_what_a_consumer_has_added_is_there(net: Network) -> None:
    send(net.connect().sender("q"), b"a")
    receiver = net.connect().receiver("q", credit=1)
    receiver.settle(Modified(message_annotations={"x-opt-seen": "yes"}))
    receiver.close()
    net.restart()
    assert message_annotations(take_all(net, "q")[0].payload) == {"x-opt-seen": "yes"}


def test_what_was_given_back_stays_given_back(net: Network) -> None:
    send(net.connect().sender("q"), b"a", b"b")
    receiver = net.connect().receiver("q", credit=1)
    receiver.settle(Released())
    net.restart()
    assert browse(net, "q") == [b"a", b"b"]


def test_priorities_are_kept_as_the_queue_tells_them_apart(net: Network) -> None:
    net.declare("q", QueuePolicy(priorities=3))
    sender = net.connect().sender("q")
    for priority, body in ((4, b"m"), (9, b"h"), (0, b"l"), (8, b"h2"), (1, b"l2")):
        send(sender, body, priority=priority)
    expected = browse(net, "q")
    net.restart()
    assert browse(net, "q") == expected == [b"h", b"h2", b"m", b"l", b"l2"]


def test_bounds_count_what_was_there(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=2))
    send(net.connect().sender("q"), b"a", b"b")
    net.restart()
    assert net.queue("q").policy.max_length == 2
    (refused,) = send(net.connect().sender("q"), b"c")
    assert isinstance(refused.remote_state, Rejected)
    assert net.queue("q").bytes == net.broker.agenda.held > 0


def test_a_group_goes_to_one_consumer_again(net: Network) -> None:
    net.declare("q", QueuePolicy(groups=True))
    sender = net.connect().sender("q")
    for body in (b"a1", b"b1", b"a2", b"b2"):
        send(sender, body, properties=Properties(group_id=body[:1].decode()))
    net.restart()
    one, two = (net.connect().receiver("q") for _ in range(2))
    one.credit(1)
    two.credit(1)
    assert (one.bodies(), two.bodies()) == ([b"a1"], [b"b1"])
    one.credit(5)
    assert one.bodies() == [b"a1", b"a2"]


def test_of_a_key_the_last_value_is_there(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="key"))
    sender = net.connect().sender("q")
    send(sender, b"a1", application={"key": "a"})
    send(sender, b"b1", application={"key": "b"})
    holder = net.connect().receiver("q", credit=1)
    assert holder.bodies() == [b"a1"]
    send(sender, b"a2", application={"key": "a"})
    # Whoever had the older one is gone; both are there, and only the newer one counts.
    net.restart()
    assert browse(net, "q") == [b"b1", b"a2"]
    send(net.connect().sender("q"), b"b2", application={"key": "b"})
    net.restart()
    assert browse(net, "q") == [b"a2", b"b2"]


def test_a_purged_and_a_deleted_queue_leave_nothing(net: Network) -> None:
    send(net.connect().sender("q"), b"a", b"b")
    send(net.connect().sender("p"), b"a", b"b")
    net.queue("p").purge()
    net.space.remove(net.queue("q"))
    net.connect()
    net.restart()
    assert "q" not in net.space.nodes
    assert browse(net, "p") == []
    assert stored(net) == {(NODE, 2)}


def test_a_queue_of_the_same_name_is_another_one(net: Network) -> None:
    send(net.connect().sender("q"), b"a")
    net.space.remove(net.queue("q"))
    send(net.connect().sender("q"), b"b")
    net.restart()
    assert browse(net, "q") == [b"b"]


def test_a_dynamic_queue_is_gone(net: Network) -> None:
    receiver = net.connect().receiver(None, source=Source(dynamic=True))
    address = receiver.remote_source.address
    assert address is not None
    send(net.connect().sender(address), b"a")
    net.restart()
    assert address not in net.space.nodes
    assert stored(net) == set()


def test_no_dynamic_node_is_stored_whatever_its_policy(net: Network) -> None:
    net.space.create_dynamic(QueuePolicy(persist=True))
    net.connect()
    assert stored(net) == set()


def test_the_time_of_a_queue_that_is_not_used_begins_anew(net: Network) -> None:
    net.declare("q", QueuePolicy(auto_delete=60_000))
    net.connect()
    net.advance(50)
    net.now += 3600
    net.restart()
    net.advance(59)
    assert "q" in net.space.nodes
    net.advance(2)
    assert "q" not in net.space.nodes
    net.connect()
    net.restart()
    assert "q" not in net.space.nodes


def test_a_settled_browser_changes_nothing(net: Network) -> None:
    send(net.connect().sender("q"), b"a")
    assert browse(net, "q") == [b"a"]
    net.restart()
    (one,) = take_all(net, "q")
    assert text(one.payload) == b"a"
