"""Messages whose time is over: never delivered too late, never gone too early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.messaging import Accepted, Data, Header, Modified, Properties, Released
from tests.broker.harness import Network, encode, header, text
from tests.broker.lifecycle.letters import bodies, browse, drain, figure, send, ttl_of


@pytest.mark.spec("3.2.1")
def test_a_message_is_there_until_its_ttl_is_over(net: Network) -> None:
    sender = net.connect().sender("q")
    send(sender, b"short", ttl=1000)
    send(sender, b"long", ttl=5000)
    send(sender, b"ever")
    net.advance(0.999)
    assert browse(net, "q") == [b"short", b"long", b"ever"]
    net.advance(0.001)
    assert net.queue("q").message_count() == 2
    assert browse(net, "q") == [b"long", b"ever"]
    net.advance(4)
    assert bodies(net, "q") == [b"ever"]
    assert figure(net, "q", "expirations") == 2
    assert figure(net, "q", "dropped") == 2


@pytest.mark.spec("3.2.1")
def test_what_goes_out_carries_the_time_that_is_left(net: Network) -> None:
    sender = net.connect().sender("q")
    send(sender, b"a", ttl=10_000)
    net.advance(2.5)
    client = net.connect()
    receiver = client.receiver("q", credit=1)
    assert ttl_of(receiver.deliveries[0]) == 7500
    net.advance(1.5)
    receiver.settle(Modified(delivery_failed=True))
    again = drain(net, "q")
    assert ttl_of(again[0]) == 6000
    assert header(again[0].payload).delivery_count == 1
    assert header(again[0].payload).first_acquirer is False


@pytest.mark.spec("3.2.1")
def test_what_goes_out_carries_the_time_that_ends_first(net: Network) -> None:
    net.declare("q", QueuePolicy(message_ttl=3000))
    send(net.connect().sender("q"), b"a", ttl=8000)
    net.advance(1)
    [delivery] = drain(net, "q")
    assert ttl_of(delivery) == 2000


@pytest.mark.spec("3.2.1")
@pytest.mark.parametrize("ttl", [None, 60_000])
def test_what_goes_out_at_once_is_the_very_message(net: Network, ttl: int | None) -> None:
    payload = encode(Header(ttl=ttl, durable=True), Properties(subject="s"), Data(value=b"x"))
    client = net.connect()
    receiver = client.receiver("q", credit=1)
    client.sender("q").send_encoded(payload)
    assert receiver.take()[0].payload == payload


def test_a_message_without_ttl_gets_none_from_the_queue(net: Network) -> None:
    net.declare("q", QueuePolicy(message_ttl=10_000))
    sent = encode(Data(value=b"x"))
    net.connect().sender("q").send_encoded(sent)
    net.advance(3)
    assert drain(net, "q")[0].payload == sent


@pytest.mark.spec("3.2.1")
def test_a_ttl_of_nothing_is_over_on_arrival(net: Network) -> None:
    client = net.connect()
    receiver = client.receiver("q", credit=10)
    delivery = send(client.sender("q"), b"a", ttl=0)
    assert isinstance(delivery.remote_state, Accepted)
    assert receiver.take() == []
    assert net.queue("q").message_count() == 0
    assert figure(net, "q", "expirations") == 1


@pytest.mark.spec("3.2.1")
def test_the_longest_ttl_is_49_days(net: Network) -> None:
    send(net.connect().sender("q"), b"a", ttl=0xFFFFFFFF)
    net.advance(0xFFFFFFFF / 1000 - 1)
    assert browse(net, "q") == [b"a"]
    net.advance(1.001)
    assert browse(net, "q") == []


@pytest.mark.spec("3.2.4")
@pytest.mark.parametrize(("offset", "there"), [(-1, False), (0, False), (1, True), (5000, True)])
def test_absolute_expiry_time_is_kept(net: Network, offset: int, there: bool) -> None:
    properties = Properties(absolute_expiry_time=Timestamp(net.wall + offset))
    delivery = send(net.connect().sender("q"), b"a", properties=properties)
    assert isinstance(delivery.remote_state, Accepted)
    assert browse(net, "q") == ([b"a"] if there else [])
    net.advance(offset / 1000 if offset > 0 else 0)
    assert browse(net, "q") == []


@pytest.mark.spec("3.2.4")
@pytest.mark.parametrize("time", [-(1 << 63), -1, 0, (1 << 63) - 1])
def test_the_most_distant_times(net: Network, time: int) -> None:
    properties = Properties(absolute_expiry_time=Timestamp(time))
    send(net.connect().sender("q"), b"a", properties=properties)
    assert browse(net, "q") == ([b"a"] if time > 0 else [])


def test_the_earliest_of_the_three_times_counts(net: Network) -> None:
    net.declare("q", QueuePolicy(message_ttl=3000))
    sender = net.connect().sender("q")
    far = Properties(absolute_expiry_time=Timestamp(net.wall + 9000))
    near = Properties(absolute_expiry_time=Timestamp(net.wall + 1000))
    send(sender, b"queue", ttl=8000, properties=far)
    send(sender, b"absolute", ttl=8000, properties=near)
    send(sender, b"ttl", ttl=2000, properties=far)
    assert browse(net, "q") == [b"queue", b"absolute", b"ttl"]
    net.advance(1)
    assert browse(net, "q") == [b"queue", b"ttl"]
    net.advance(1)
    assert browse(net, "q") == [b"queue"]
    net.advance(1)
    assert browse(net, "q") == []


@pytest.mark.parametrize("outcome", [Released(), Modified(delivery_failed=True)])
def test_what_a_consumer_holds_expires_when_it_comes_back(
    net: Network, outcome: Released | Modified
) -> None:
    sender = net.connect().sender("q")
    send(sender, b"a", ttl=1000)
    receiver = net.connect().receiver("q", credit=5)
    assert receiver.bodies() == [b"a"]
    net.advance(10)
    assert net.queue("q").message_count() == 1
    receiver.settle(outcome)
    assert net.queue("q").message_count() == 0
    assert receiver.take() == []
    assert figure(net, "q", "expirations") == 1


def test_a_consumer_may_accept_what_has_expired_meanwhile(net: Network) -> None:
    send(net.connect().sender("q"), b"a", ttl=1000)
    receiver = net.connect().receiver("q", credit=5)
    net.advance(10)
    receiver.settle(Accepted())
    assert net.queue("q").message_count() == 0
    assert figure(net, "q", "expirations") == 0


def test_what_came_back_in_time_expires_in_its_place(net: Network) -> None:
    sender = net.connect().sender("q")
    send(sender, b"a", ttl=1000)
    send(sender, b"b")
    receiver = net.connect().receiver("q", credit=1)
    receiver.close()
    net.advance(0.5)
    assert browse(net, "q") == [b"a", b"b"]
    net.advance(0.5)
    assert browse(net, "q") == [b"b"]


def test_ten_thousand_and_more_expire_at_once(net: Network) -> None:
    sender = net.connect().sender("q")
    payload = encode(Header(ttl=1000), Data(value=b"x"))
    for _ in range(25):
        for _ in range(900):
            sender.link.send(payload, settled=True)
        net.run()
    assert net.queue("q").available == 22_500
    # A thousand expire at a time; others are served in between.
    net.advance(1.1)
    assert net.queue("q").available == 0


def test_the_deleted_queue_has_no_timers_left(net: Network) -> None:
    before = len(net.broker.timers)
    send(net.connect().sender("q"), b"a", ttl=1000)
    assert len(net.broker.timers) == before + 1
    net.space.remove(net.queue("q"))
    assert len(net.broker.timers) == before


def test_many_short_lives_leave_no_garbage(net: Network) -> None:
    client = net.connect()
    receiver = client.receiver("q", credit=1000)
    sender = client.sender("q")
    for _ in range(2000):
        send(sender, b"x", ttl=1_000_000)
        receiver.settle(Accepted())
        receiver.credit(1000)
    expiry = net.queue("q").lifecycle._expiry
    assert expiry is not None and len(expiry) < 100


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 5000)),
        st.tuples(st.just("wait"), st.integers(1, 2000)),
        st.tuples(st.just("take"), st.integers(1, 3)),
        st.tuples(st.just("release"), st.integers(1, 3)),
    ),
    max_size=40,
)


@given(ACTIONS)
def test_never_delivered_late_never_lost_early(actions: list[tuple[str, int]]) -> None:
    net = Network()
    client = net.connect()
    sender = client.sender("q")
    receiver = client.receiver("q")
    waiting: dict[bytes, int] = {}
    held: dict[bytes, int] = {}
    number = 0
    # From the middle of one millisecond to the middle of another.
    net.advance(0.0005)
    for action, value in actions:
        if action == "send":
            body = b"%d" % number
            number += 1
            send(sender, body, ttl=value)
            if value:
                waiting[body] = net.wall + value
        elif action == "wait":
            net.advance(value / 1000)
        elif action == "take":
            receiver.credit(value)
            receiver.credit(0)
            fresh = [d for d in receiver.deliveries if text(d.payload) not in held]
            alive = sorted((b for b, end in waiting.items() if end > net.wall), key=int)
            assert [text(d.payload) for d in fresh] == alive[:value]
            for delivery in fresh:
                body = text(delivery.payload)
                end = waiting.pop(body)
                assert ttl_of(delivery) == end - net.wall
                held[body] = end
        else:
            back = receiver.deliveries[:value]
            del receiver.deliveries[:value]
            receiver.settle(Released(), *back)
            for delivery in back:
                body = text(delivery.payload)
                waiting[body] = held.pop(body)
        alive = sorted((b for b, end in waiting.items() if end > net.wall), key=int)
        assert browse(net, "q") == alive
        assert net.queue("q").available == len(alive)


def test_expired_messages_may_be_dropped_where_others_become_dead_letters(net: Network) -> None:
    net.declare("q", QueuePolicy(message_ttl=1000, dead_letter="dlq", drop_expired=True))
    net.connect().sender("q").send(b"a")
    net.advance(2)
    assert "dlq" not in net.space.nodes
    assert figure(net, "q", "expirations") == figure(net, "q", "dropped") == 1
