"""Whatever happens to a message: it is in the queue, or accepted, or among the dead letters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, Modified, Rejected, Released
from tests.broker.harness import Network, text
from tests.broker.lifecycle.letters import bodies, browse, death, drain, figure, send

SENDS = ["send", "send", "mortal", "later"]
KINDS = [*SENDS, "take", "accept", "reject", "fail", "release", "wait", "lose"]
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(1, 3),
    ),
    max_size=50,
)


@given(
    ACTIONS,
    st.sampled_from(["reject", "dead-letter"]),
    st.integers(0, 4),
    st.sampled_from([0, 3000]),
    st.integers(0, 2),
)
def test_every_message_is_in_one_place(
    actions: list[tuple[str, int]], overflow: str, length: int, ttl: int, limit: int
) -> None:
    net = Network()
    net.declare(
        "q",
        QueuePolicy(
            max_length=length,
            overflow=overflow,
            message_ttl=ttl,
            delivery_limit=limit,
            dead_letter="dlq",
        ),
    )
    net.declare("dlq")
    queue = net.queue("q")
    sender = net.connect().sender("q")
    client = net.connect()
    receiver = client.receiver("q")
    taken_in: set[bytes] = set()
    accepted: set[bytes] = set()
    for n, (action, value) in enumerate(actions):
        body = b"%d" % n
        if action in ("send", "mortal", "later"):
            delivery = send(
                sender,
                body,
                ttl=value * 1000 if action == "mortal" else None,
                annotations={"x-opt-delivery-delay": value * 1000} if action == "later" else None,
            )
            if isinstance(delivery.remote_state, Accepted):
                taken_in.add(body)
        elif action == "wait":
            net.advance(value)
        elif action == "lose":
            client.lose()
            client = net.connect()
            receiver = client.receiver("q")
        elif action == "take":
            receiver.credit(value)
            receiver.credit(0)
        elif receiver.deliveries:
            delivery_in = receiver.deliveries.pop(0)
            if action == "accept":
                accepted.add(text(delivery_in.payload))
            outcome = {
                "accept": Accepted(),
                "reject": Rejected(),
                "fail": Modified(delivery_failed=True),
                "release": Released(),
            }[action]
            receiver.settle(outcome, delivery_in)
        waiting = browse(net, "q")
        held = [text(d.payload) for d in receiver.deliveries]
        later = [text(s.message.payload) for s in queue.lifecycle.list_scheduled()]
        dead = browse(net, "dlq")
        found = waiting + held + later + dead + sorted(accepted)
        assert len(found) == len(set(found))
        assert set(found) == taken_in
        assert queue.message_count() == len(waiting) + len(held) + len(later)
    client.lose()
    net.space.remove(queue)
    dead_bytes = net.queue("dlq").bytes
    assert net.broker.agenda.held == dead_bytes


def test_dead_letters_go_to_the_subscribers_of_a_topic(net: Network) -> None:
    net.space.create("funerals", TopicPolicy())
    net.declare("q", QueuePolicy(dead_letter="funerals"))
    client = net.connect()
    subscribers = [client.receiver("funerals", credit=10) for _ in range(2)]
    send(client.sender("q"), b"a", ttl=0)
    for subscriber in subscribers:
        (dead,) = subscriber.take()
        assert death(dead)["source"] == "q"


def test_a_subscription_may_have_dead_letters(net: Network) -> None:
    policy = TopicPolicy(subscription=QueuePolicy(dead_letter="dlq"))
    net.space.create("news", policy)
    client = net.connect()
    receiver = client.receiver("news", credit=10)
    client.sender("news").send(b"a")
    receiver.settle(Rejected())
    (dead,) = drain(net, "dlq")
    assert str(death(dead)["source"]).startswith("news::")


def test_a_circle_by_way_of_an_exchange_is_cut(net: Network) -> None:
    exchange = net.space.create("x", ExchangePolicy(type="fanout"))
    net.declare("q", QueuePolicy(dead_letter="x", message_ttl=1000))
    exchange.bind("q")  # type: ignore[attr-defined]
    net.connect().sender("q").send(b"a")
    net.advance(1.5)
    # Whoever sends to an exchange cannot know where that leads: it comes back once.
    assert browse(net, "q") == [b"a"]
    net.advance(10)
    assert bodies(net, "q") == []
    assert figure(net, "q", "circles") == 1
