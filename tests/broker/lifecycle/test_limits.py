"""Queues that may become full: what gets in, what goes, and that the bound is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq_broker.management.sliced_query import finish
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_types.messaging import Accepted, Data, Modified, Rejected, Released
from tests.broker.harness import Network, Sender, encode
from tests.broker.lifecycle.letters import bodies, browse, death, drain, figure, refused, send


def size_of(body: bytes) -> int:
    return len(encode(Data(value=body)))


def fill(net: Network, sender: Sender, body: bytes = b"x") -> list[OutgoingDelivery]:
    """Send for as long as there is credit, which is never more than there is room for."""
    sent: list[OutgoingDelivery] = []
    while sender.link.credit > 0:
        assert sender.link.credit <= net.queue("q").room()
        sent += sender.send(body)
    return sent


@pytest.mark.spec("2.8.15")
def test_a_full_queue_rejects_and_says_why(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=2))
    sent = net.connect().sender("q").send(b"a", b"b", b"c")
    assert [type(d.remote_state) for d in sent] == [Accepted, Accepted, Rejected]
    condition, description = refused(sent[2])
    assert condition == "amqp:resource-limit-exceeded"
    assert "max-length of 2 messages" in description
    state = sent[2].remote_state
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.info == {
        "queue": "q",
        "reason": "max-length",
        "delivery-tag": sent[2].tag,
    }
    assert bodies(net, "q") == [b"a", b"b"]
    assert figure(net, "q", "refused") == 1


def test_there_is_room_again_when_a_message_has_left(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=1))
    client = net.connect()
    sender = client.sender("q")
    sender.send(b"a")
    receiver = client.receiver("q", credit=1)
    assert receiver.bodies() == [b"a"]
    assert refused(sender.send(b"b")[0])[0] == "amqp:resource-limit-exceeded"
    receiver.settle(Accepted())
    assert isinstance(sender.send(b"c")[0].remote_state, Accepted)


def test_bytes_are_counted_as_they_are_encoded(net: Network) -> None:
    net.declare("q", QueuePolicy(max_bytes=2 * size_of(b"aaaa")))
    sender = net.connect().sender("q")
    sent = sender.send(b"aaaa", b"bbbb", b"")
    assert [type(d.remote_state) for d in sent] == [Accepted, Accepted, Rejected]
    state = sent[2].remote_state
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.info == {
        "queue": "q",
        "reason": "max-bytes",
        "delivery-tag": sent[2].tag,
    }


@pytest.mark.parametrize("overflow", ["reject", "drop-head", "dead-letter", "block"])
def test_what_alone_is_too_large_never_gets_in(net: Network, overflow: str) -> None:
    net.declare("q", QueuePolicy(max_bytes=100, overflow=overflow, dead_letter="dlq"))
    sender = net.connect().sender("q")
    small = sender.send(b"small")[0]
    large = sender.send(b"x" * 100)[0]
    assert isinstance(small.remote_state, Accepted)
    assert refused(large)[0] == "amqp:resource-limit-exceeded"
    assert browse(net, "q") == [b"small"]


def test_the_oldest_goes(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=3, overflow="drop-head", dead_letter="dlq"))
    sent = net.connect().sender("q").send(b"a", b"b", b"c", b"d", b"e")
    assert all(isinstance(d.remote_state, Accepted) for d in sent)
    assert bodies(net, "q") == [b"c", b"d", b"e"]
    assert figure(net, "q", "overflowed") == 2
    assert "dlq" not in net.space.nodes


def test_what_is_rejected_becomes_a_dead_letter(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=1, overflow="reject-dead-letter", dead_letter="dlq"))
    net.declare("dlq")
    sent = net.connect().sender("q").send(b"a", b"b", b"c")
    assert [type(d.remote_state) for d in sent] == [Accepted, Rejected, Rejected]
    assert bodies(net, "q") == [b"a"]
    assert bodies(net, "dlq") == [b"b", b"c"]
    assert (figure(net, "q", "refused"), figure(net, "q", "overflowed")) == (2, 2)


def test_what_cannot_be_moved_becomes_no_dead_letter(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=1, overflow="reject-dead-letter", dead_letter="dlq"))
    net.declare("dlq")
    net.declare("other")
    net.connect().sender("other").send(b"a", b"b")
    moved, refusal = finish(net.queue("other").move(net.queue("q"), 2))
    assert moved == 1 and refusal is not None
    assert [bodies(net, name) for name in ("q", "other", "dlq")] == [[b"a"], [b"b"], []]


def test_the_least_important_go_first(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=2, overflow="drop-head"))
    sender = net.connect().sender("q")
    send(sender, b"high", priority=9)
    send(sender, b"low", priority=0)
    send(sender, b"middle")
    assert browse(net, "q") == [b"high", b"middle"]
    send(sender, b"lowest", priority=0)
    assert browse(net, "q") == [b"high", b"middle"]


def test_what_a_consumer_holds_counts_but_stays(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=2, overflow="drop-head"))
    client = net.connect()
    sender = client.sender("q")
    sender.send(b"a", b"b")
    receiver = client.receiver("q", credit=1)
    sender.send(b"c")
    assert browse(net, "q") == [b"c"]
    receiver.settle(Released())
    assert receiver.take() == []
    assert bodies(net, "q") == [b"a", b"c"]


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (QueuePolicy(max_length=2, overflow="dead-letter", dead_letter="dlq"), "max-length"),
        (
            QueuePolicy(max_bytes=2 * size_of(b"a"), overflow="dead-letter", dead_letter="dlq"),
            "max-bytes",
        ),
    ],
)
def test_the_oldest_becomes_a_dead_letter(net: Network, policy: QueuePolicy, reason: str) -> None:
    net.declare("q", policy)
    net.connect().sender("q").send(b"a", b"b", b"c")
    assert bodies(net, "q") == [b"b", b"c"]
    dead = drain(net, "dlq")
    assert len(dead) == 1
    assert death(dead[0])["reason"] == reason


@pytest.mark.spec("2.6.7")
def test_a_queue_that_blocks_gives_the_credit_it_has_room_for(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=3, overflow="block"))
    client = net.connect()
    sender = client.sender("q")
    sent = fill(net, sender)
    assert len(sent) == 3
    assert all(isinstance(d.remote_state, Accepted) for d in sent)
    receiver = client.receiver("q", credit=1)
    assert sender.link.credit == 0
    receiver.settle(Accepted())
    assert isinstance(sender.send(b"d")[0].remote_state, Accepted)
    assert sender.link.credit == 0


def test_blocked_senders_share_what_room_there_is(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=4, overflow="block"))
    client = net.connect()
    senders = [client.sender("q") for _ in range(3)]
    receiver = client.receiver("q", credit=100)
    sent = dict.fromkeys(senders, 0)
    for _ in range(30):
        assert sum(s.link.credit for s in senders) + net.queue("q").message_count() <= 4
        for sender in senders:
            if sender.link.credit:
                sender.send(b"x")
                sent[sender] += 1
        receiver.settle(Accepted())
    assert min(sent.values()) >= 10


def test_bytes_left_are_credit_by_the_size_of_what_is_there(net: Network) -> None:
    body = b"x" * 100
    net.declare("q", QueuePolicy(max_bytes=10 * size_of(body), overflow="block"))
    fill(net, net.connect().sender("q"), body)
    assert net.queue("q").available == 10


def test_senders_go_on_when_blocked_messages_expire(net: Network) -> None:
    net.declare("q", QueuePolicy(max_length=1, overflow="block", message_ttl=1000))
    sender = net.connect().sender("q")
    sender.send(b"a")
    assert sender.link.credit == 0
    net.advance(1.001)
    assert sender.link.credit == 1


def test_a_narrower_bound_holds_at_once(net: Network) -> None:
    queue = net.declare("q", QueuePolicy())
    net.connect().sender("q").send(*(b"%d" % n for n in range(10)))
    queue.change_policy(QueuePolicy(max_length=3, overflow="drop-head"))
    assert browse(net, "q") == [b"7", b"8", b"9"]
    queue.change_policy(QueuePolicy(max_length=1))
    assert browse(net, "q") == [b"7", b"8", b"9"]
    assert refused(net.connect().sender("q").send(b"x")[0])[0] == "amqp:resource-limit-exceeded"


def test_a_wider_bound_gives_blocked_senders_credit(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(max_length=1, overflow="block"))
    sender = net.connect().sender("q")
    sender.send(b"a")
    assert sender.link.credit == 0
    queue.change_policy(QueuePolicy(max_length=3, overflow="block"))
    net.finish()
    assert len(fill(net, sender)) == 2


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 40)),
        st.tuples(st.just("later"), st.integers(0, 40)),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("accept"), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 5)),
    ),
    max_size=40,
)


@given(
    ACTIONS,
    st.sampled_from(["reject", "drop-head", "dead-letter", "block"]),
    st.integers(1, 4),
    st.sampled_from([0, 150]),
)
def test_the_bound_is_kept(
    actions: list[tuple[str, int]], overflow: str, length: int, limit: int
) -> None:
    net = Network()
    policy = QueuePolicy(
        max_length=length, max_bytes=limit, overflow=overflow, dead_letter="dlq", message_ttl=9000
    )
    queue = net.declare("q", policy)
    client = net.connect()
    sender = client.sender("q")
    receiver = client.receiver("q")
    for action, value in actions:
        if action in ("send", "later") and sender.link.credit == 0:
            assert overflow == "block"
        elif action == "send":
            sender.send(b"x" * value)
        elif action == "later":
            send(sender, b"x" * value, annotations={"x-opt-delivery-delay": 2000})
        elif action == "take":
            receiver.credit(1)
            receiver.credit(0)
        elif action == "release":
            receiver.settle(Released(), *receiver.deliveries[:1])
            del receiver.deliveries[:1]
        elif action == "accept":
            receiver.settle(Accepted(), *receiver.deliveries[:1])
            del receiver.deliveries[:1]
        else:
            net.advance(value)
        held = queue.available + queue.acquired + queue.lifecycle.scheduled()
        assert held == queue.message_count() <= length
        if limit and overflow != "block":
            assert queue.bytes <= limit
        assert len(browse(net, "q")) == queue.available


def test_no_failed_delivery_may_be_allowed(net: Network) -> None:
    net.declare("q", QueuePolicy(delivery_limit=-1, dead_letter="dlq"))
    client = net.connect()
    client.sender("q").send(b"a")
    client.receiver("q", credit=1).settle(Modified(delivery_failed=True))
    assert browse(net, "dlq") == [b"a"]
