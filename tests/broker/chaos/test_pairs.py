"""Features two at a time, where the one could spoil the other."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy, TopicPolicy
from ferrymq_types.filters import SelectorFilter
from ferrymq_types.messaging import (
    Accepted,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    TerminusExpiryPolicy,
)
from ferrymq_types.unions import Outcome
from tests.broker.harness import Network, message_annotations
from tests.broker.lifecycle.letters import bodies, browse, death, figure, refused, send
from tests.broker.queues.links import consume, publish


def test_the_one_that_takes_over_begins_with_the_most_urgent(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(single_active=True))
    sender = net.connect().sender("q")
    one, two = net.connect(), net.connect()
    first = one.receiver("q", credit=2)
    second = two.receiver("q", credit=10)
    publish(sender, b"low", priority=1)
    publish(sender, b"middle")
    publish(sender, b"high", priority=9)
    assert first.bodies() == [b"low", b"middle"] and second.bodies() == []
    one.lose()
    assert second.bodies() == [b"high", b"middle", b"low"]
    assert queue.registry.active is next(iter(queue.consumers))


def test_a_stolen_link_of_the_active_one_is_served_again(net: Network) -> None:
    net.declare("q", QueuePolicy(single_active=True, delivery_limit=1, dead_letter="dead"))
    net.declare("dead")
    clients = [net.connect(container_id="worker") for _ in range(3)]
    standby = net.connect(container_id="other").receiver("q")
    net.connect().sender("q").send(b"a")
    first = clients[0].receiver("q", credit=1, name="link")
    standby.close()
    second = clients[1].receiver("q", credit=1, name="link")
    assert first.detached and second.bodies() == [b"a"]
    again = clients[0].receiver("q", credit=1, name="own")
    second.close()
    # Lost with the stolen link once: that counts.
    assert again.bodies() == [b"a"]
    again.settle(Modified(delivery_failed=True))
    assert bodies(net, "dead") == [b"a"]


def test_a_group_goes_on_behind_what_its_consumer_does_not_want(net: Network) -> None:
    net.declare("q", QueuePolicy(groups=True))
    sender = net.connect().sender("q")
    red = consume(net.connect(), "q", 10, selector="colour = 'red'")
    publish(sender, b"r1", group="g", colour="red")
    publish(sender, b"b1", group="g", colour="blue")
    publish(sender, b"r2", group="g", colour="red")
    assert red.bodies() == [b"r1", b"r2"]
    anything = net.connect().receiver("q", credit=10)
    assert anything.bodies() == [b"b1"]
    # What one of them cannot process is for the other, and the group with it.
    red.settle(Modified(undeliverable_here=True), red.deliveries[0])
    publish(sender, b"r3", group="g", colour="red")
    assert anything.bodies() == [b"b1", b"r1", b"r3"]


def test_a_replaced_value_that_is_rejected_is_a_dead_letter_once(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="key", dead_letter="dead", message_ttl=5000))
    net.declare("dead")
    sender = net.connect().sender("q")
    receiver = net.connect().receiver("q", credit=1)
    for body in (b"old", b"middle", b"new"):
        send(sender, body, application={"key": 1})
    assert browse(net, "q") == [b"new"]
    net.advance(3)
    receiver.settle(Rejected())
    assert browse(net, "dead") == [b"old"]
    assert browse(net, "q") == [b"new"]
    net.advance(3)
    assert browse(net, "q") == [] and browse(net, "dead") == [b"old", b"new"]


def test_a_value_that_comes_back_late_is_gone(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(last_value_key="key", dead_letter="dead"))
    net.declare("dead")
    sender = net.connect().sender("q")
    receiver = net.connect().receiver("q", credit=1)
    send(sender, b"old", ttl=1000, application={"key": 1})
    send(sender, b"new", application={"key": 1})
    net.advance(2)
    receiver.settle(Released())
    # Its time was over, whatever came after it.
    assert browse(net, "q") == [b"new"] and browse(net, "dead") == [b"old"]
    assert queue.message_count() == 1


def test_a_scheduled_duplicate_takes_no_room(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=2, duplicate_window=60_000))
    sender = net.connect().sender("q")
    later: dict[str | int, object] = {"x-opt-delivery-delay": 1000}
    for _ in range(3):
        sent = send(sender, b"a", properties=Properties(message_id="a"), annotations=later)
        assert isinstance(sent.remote_state, Accepted)
    send(sender, b"b", properties=Properties(message_id="b"))
    full = send(sender, b"c", properties=Properties(message_id="c"))
    assert refused(full)[0] == "amqp:resource-limit-exceeded"
    net.advance(2)
    receiver = net.connect().receiver("q", credit=9)
    assert receiver.bodies() == [b"b", b"a"]
    receiver.settle(Accepted())
    # It was refused, not seen: sent again it is no duplicate.
    again = send(sender, b"c", properties=Properties(message_id="c"))
    assert isinstance(again.remote_state, Accepted) and receiver.bodies() == [b"c"]


def test_a_dead_subscriber_makes_the_others_senders_wait_until_it_expires(net: Network) -> None:
    policy = QueuePolicy(max_length=2, overflow="block")
    net.space.create("t", TopicPolicy(subscription=policy))
    client = net.connect()
    kept = Source(address="t", timeout=10, expiry_policy=TerminusExpiryPolicy.LINK_DETACH)
    gone = client.receiver("t", source=kept, name="gone")
    reader = client.receiver("t", credit=100)
    sender = client.sender("t")
    gone.close(closed=False)
    sent = 0
    while sender.link.credit > 0:
        sender.send(b"x")
        reader.settle(Accepted())
        sent += 1
    assert sent == 2
    net.advance(11)
    assert sender.link.credit > 0
    sender.send(b"y")
    assert reader.bodies() == [b"y"]


def test_a_good_queue_keeps_what_a_full_one_refused(net: Network) -> None:
    net.declare("full", QueuePolicy(max_length=1))
    net.declare("good")
    exchange = net.space.create("x", ExchangePolicy(type="fanout"))
    assert isinstance(exchange, Exchange)
    for name in ("full", "good"):
        exchange.bind(name)
    sender = net.connect().sender("x")
    assert isinstance(sender.send(b"a")[0].remote_state, Accepted)
    condition, description = refused(sender.send(b"b")[0])
    assert condition == "amqp:resource-limit-exceeded" and "'full'" in description
    assert (browse(net, "full"), browse(net, "good")) == ([b"a"], [b"a", b"b"])


@pytest.mark.parametrize(
    ("default", "left", "dead"),
    [
        (None, [b"a"], []),
        (Modified(delivery_failed=True), [b"a"], []),
        (Released(), [b"a"], []),
        (Rejected(), [], [b"a"]),
        (Accepted(), [], []),
    ],
)
@pytest.mark.parametrize("how", ["lose", "close"])
def test_the_default_outcome_of_a_lost_link_counts_towards_the_limit(
    net: Network, how: str, default: Outcome | None, left: list[bytes], dead: list[bytes]
) -> None:
    net.declare("q", QueuePolicy(delivery_limit=1, dead_letter="dead"))
    net.declare("dead")
    net.connect().sender("q").send(b"a")
    for turn in range(2):
        client = net.connect()
        receiver = client.receiver("q", credit=1, default_outcome=default)
        if how == "lose":
            client.lose()
        else:
            receiver.close()
        if turn == 0:
            assert (browse(net, "q"), browse(net, "dead")) == (left, dead)
    counted = isinstance(default, Modified) or (default is None and how == "lose")
    if counted:
        assert (browse(net, "q"), browse(net, "dead")) == ([], [b"a"])


def test_a_drain_is_answered_when_nothing_passes_the_filter(net: Network) -> None:
    sender = net.connect().sender("q")
    for _ in range(100):
        publish(sender, b"x", colour="blue")
    red = consume(net.connect(), "q", 10, selector="colour = 'red'")
    red.drain()
    assert red.drained == 1 and red.link.credit == 0 and not red.deliveries
    publish(sender, b"y", colour="red")
    assert not red.deliveries
    red.credit(1)
    assert red.bodies() == [b"y"]


def test_a_browser_sees_neither_what_expired_nor_what_was_pushed_out(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=3, overflow="drop-head"))
    sender = net.connect().sender("q")
    send(sender, b"a")
    send(sender, b"mortal", ttl=1000)
    browser = net.connect().receiver("q", mode="copy", credit=1)
    assert browser.bodies() == [b"a"]
    send(sender, b"b")
    send(sender, b"c")
    net.advance(2)
    browser.credit(10)
    assert browser.bodies() == [b"a", b"b", b"c"]


def test_messages_that_are_held_survive_a_purge_and_a_deletion_forgets_them(net: Network) -> None:
    queue = net.declare("q")
    sender = net.connect().sender("q")
    client = net.connect()
    receiver = client.receiver("q", credit=1)
    sender.send(b"held", b"waits")
    send(sender, b"later", annotations={"x-opt-delivery-delay": 1000})
    net.broker.begin_pass(net.now)
    assert queue.purge().count == 1
    assert queue.message_count() == 2
    # The client does not hear of the end before it has said what it thinks.
    client.pause()
    net.space.remove(queue)
    net.broker.finish_pass()
    assert net.broker.agenda.held == 0
    net.declare("q")
    receiver.settle(Released(), receiver.deliveries[0])
    client.resume()
    assert receiver.detached and client.closed_with is None and client.terminated is None
    net.advance(5)
    assert net.queue("q").message_count() == 0 and net.broker.agenda.held == 0
    assert net.queue("q").describe()["released"] == 0 and queue.acquired == 0


@pytest.mark.parametrize(
    ("overflow", "left", "dead"),
    [
        ("reject", [b"1", b"2", b"3", b"4"], []),
        ("block", [b"1", b"2", b"3", b"4"], []),
        ("drop-head", [b"3", b"4"], []),
        ("dead-letter", [b"3", b"4"], [b"1", b"2"]),
    ],
)
def test_a_bound_that_is_lowered_holds_for_what_is_there(
    net: Network, overflow: str, left: list[bytes], dead: list[bytes]
) -> None:
    queue = net.declare("q", QueuePolicy(max_length=10, overflow=overflow, dead_letter="dead"))
    net.declare("dead")
    sender = net.connect().sender("q")
    receiver = net.connect().receiver("q", credit=1)
    sender.send(b"0", b"1", b"2", b"3", b"4")
    net.broker.begin_pass(net.now)
    queue.change_policy(QueuePolicy(max_length=3, overflow=overflow, dead_letter="dead"))
    net.finish()
    assert (browse(net, "q"), browse(net, "dead")) == (left, dead)
    receiver.credit(1)
    receiver.settle(Accepted())
    assert figure(net, "q", "overflowed") == (2 if len(left) == 2 else 0)
    for delivery in net.connect().receiver("dead", credit=9).deliveries:
        assert death(delivery)["reason"] == "max-length"
        assert "x-opt-deadletter-source" in message_annotations(delivery.payload)


def test_an_alarm_stops_the_anonymous_terminus_too(net: Network) -> None:
    net.declare("q")
    net.broker.set_alarm("disk", True)
    relay = net.connect().sender(None)
    assert relay.attached and relay.link.credit == 0
    net.broker.set_alarm("disk", False)
    net.finish()
    assert relay.link.credit > 0


def test_a_filter_and_a_group_of_a_consumer_that_comes_later(net: Network) -> None:
    net.declare("q", QueuePolicy(groups=True))
    sender = net.connect().sender("q")
    for number in range(4):
        publish(sender, b"%d" % number, group="g", colour="red" if number % 2 else "blue")
    picky = net.connect().receiver(
        "q",
        source=Source(address="q", filter={"s": SelectorFilter("colour = 'red'")}),
        credit=10,
    )
    assert picky.bodies() == [b"1", b"3"]
    rest = net.connect().receiver("q", credit=10)
    assert rest.bodies() == [b"0", b"2"]
