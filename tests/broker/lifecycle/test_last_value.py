"""Queues that keep the last message of every value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.scalars import Symbol, UInt
from ferrymq_types.messaging import Accepted, Rejected, Released
from tests.broker.harness import Network, text
from tests.broker.lifecycle.letters import bodies, browse, figure, send


def keyed(value: object) -> dict[str, object]:
    return {"symbol": value}


def test_a_new_value_takes_the_place_at_the_end(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="symbol", dead_letter="dlq"))
    sender = net.connect().sender("q")
    send(sender, b"a1", application=keyed("a"))
    send(sender, b"b1", application=keyed("b"))
    send(sender, b"a2", application=keyed("a"))
    assert browse(net, "q") == [b"b1", b"a2"]
    assert figure(net, "q", "replaced") == 1
    assert "dlq" not in net.space.nodes


def test_the_key_may_be_an_annotation(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="x-opt-key"))
    sender = net.connect().sender("q")
    send(sender, b"1", annotations={"x-opt-key": "a"}, application={"x-opt-key": "c"})
    send(sender, b"2", annotations={"x-opt-key": "b"}, application={"x-opt-key": "c"})
    send(sender, b"3", annotations={"x-opt-key": "a"})
    assert browse(net, "q") == [b"2", b"3"]


def test_messages_without_the_key_are_ordinary_ones(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="symbol"))
    sender = net.connect().sender("q")
    sender.send(b"1", b"2")
    send(sender, b"3", application={"other": "a"})
    send(sender, b"4", application=keyed(None))
    send(sender, b"5", application=keyed(None))
    assert browse(net, "q") == [b"1", b"2", b"3", b"4", b"5"]


def test_what_cannot_be_a_key_is_none(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="x-opt-key"))
    sender = net.connect().sender("q")
    for body in (b"1", b"2"):
        send(sender, body, annotations={"x-opt-key": ["a", "list"]})
        send(sender, body, annotations={"x-opt-key": {"a": "map"}})
    assert browse(net, "q") == [b"1", b"1", b"2", b"2"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, UInt(1), True),
        ("a", Symbol("a"), True),
        (1, "1", False),
        (1, True, False),
        (1, 1.0, False),
        ("a", b"a", False),
        (float("nan"), 0.0, False),
    ],
)
def test_what_is_the_same_value(net: Network, one: object, other: object, same: bool) -> None:
    net.declare("q", QueuePolicy(last_value_key="x-opt-key"))
    sender = net.connect().sender("q")
    send(sender, b"one", annotations={"x-opt-key": one})
    send(sender, b"other", annotations={"x-opt-key": other})
    assert browse(net, "q") == ([b"other"] if same else [b"one", b"other"])


def test_what_a_consumer_holds_is_its_own(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="symbol"))
    client = net.connect()
    sender = client.sender("q")
    send(sender, b"a1", application=keyed("a"))
    receiver = client.receiver("q", credit=1)
    send(sender, b"a2", application=keyed("a"))
    assert net.queue("q").message_count() == 2
    receiver.settle(Accepted())
    assert bodies(net, "q") == [b"a2"]


def test_what_comes_back_too_late_is_dropped(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="symbol"))
    client = net.connect()
    sender = client.sender("q")
    send(sender, b"a1", application=keyed("a"))
    receiver = client.receiver("q", credit=1)
    send(sender, b"a2", application=keyed("a"))
    receiver.settle(Released())
    assert bodies(net, "q") == [b"a2"]
    assert figure(net, "q", "replaced") == 1


def test_what_comes_back_when_the_newer_is_gone_is_the_last_again(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="symbol"))
    client = net.connect()
    sender = client.sender("q")
    send(sender, b"a1", application=keyed("a"))
    receiver = client.receiver("q", credit=1)
    send(sender, b"a2", application=keyed("a"))
    client.receiver("q", credit=1).settle(Rejected())
    receiver.settle(Released())
    assert browse(net, "q") == [b"a1"]
    send(sender, b"a3", application=keyed("a"))
    assert browse(net, "q") == [b"a3"]


def test_of_two_that_come_back_the_newer_stays(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="symbol"))
    client = net.connect()
    sender = client.sender("q")
    receivers = []
    for body in (b"a1", b"a2", b"a3"):
        send(sender, body, application=keyed("a"))
        receivers.append(client.receiver("q", credit=1))
    receivers[2].settle(Accepted())
    receivers[0].settle(Released())
    assert browse(net, "q") == [b"a1"]
    receivers[1].settle(Released())
    assert browse(net, "q") == [b"a2"]


def test_a_full_queue_takes_what_replaces_another(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="symbol", max_length=1))
    sender = net.connect().sender("q")
    send(sender, b"a1", application=keyed("a"))
    assert isinstance(send(sender, b"a2", application=keyed("a")).remote_state, Accepted)
    assert isinstance(send(sender, b"b1", application=keyed("b")).remote_state, Rejected)
    assert browse(net, "q") == [b"a2"]


def test_a_scheduled_value_is_none_before_its_time(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="symbol"))
    sender = net.connect().sender("q")
    later: dict[str | int, object] = {"x-opt-delivery-delay": 1000}
    send(sender, b"later", application=keyed("a"), annotations=later)
    send(sender, b"now", application=keyed("a"))
    assert browse(net, "q") == [b"now"]
    net.advance(1.001)
    assert browse(net, "q") == [b"later"]


def test_what_expired_or_was_purged_is_forgotten(net: Network) -> None:
    net.declare("q", QueuePolicy(last_value_key="symbol"))
    sender = net.connect().sender("q")
    send(sender, b"a1", application=keyed("a"), ttl=1000)
    net.advance(1.001)
    send(sender, b"a2", application=keyed("a"))
    net.queue("q").purge()
    send(sender, b"a3", application=keyed("a"))
    assert browse(net, "q") == [b"a3"]
    assert figure(net, "q", "replaced") == 0


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(0, 3)),
            st.tuples(st.sampled_from(["take", "release", "accept"]), st.just(0)),
        ),
        max_size=40,
    )
)
def test_as_in_a_model(plan: list[tuple[str, int]]) -> None:
    net = Network()
    net.declare("q", QueuePolicy(last_value_key="symbol"))
    client = net.connect()
    sender = client.sender("q")
    receiver = client.receiver("q")
    # The number of a message, and its value: those waiting and those held.
    waiting: dict[int, int] = {}
    held: dict[int, int] = {}
    for n, (action, value) in enumerate(plan):
        if action == "send":
            send(sender, b"%d" % n, application=keyed(value))
            waiting = {i: v for i, v in waiting.items() if v != value}
            waiting[n] = value
        elif action == "take":
            receiver.credit(1)
            receiver.credit(0)
            if waiting:
                first = min(waiting)
                held[first] = waiting.pop(first)
        elif receiver.deliveries:
            delivery = receiver.deliveries.pop(0)
            number = int(text(delivery.payload))
            value = held.pop(number)
            if action == "accept":
                receiver.settle(Accepted(), delivery)
            else:
                receiver.settle(Released(), delivery)
                newer = [i for i, v in (waiting | held).items() if v == value and i > number]
                if not newer:
                    waiting = {i: v for i, v in waiting.items() if v != value}
                    waiting[number] = value
        assert sorted(int(b) for b in browse(net, "q")) == sorted(waiting)
        assert sorted(int(text(d.payload)) for d in receiver.deliveries) == sorted(held)
