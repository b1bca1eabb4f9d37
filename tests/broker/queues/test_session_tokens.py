"""Tokens in a queue with sessions: messages are locked as long as their session is."""

from __future__ import annotations

import pytest

from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.messaging import Accepted, Modified
from tests.broker.harness import Network, Receiver, header, text
from tests.broker.management.asker import Answer, Asker
from tests.broker.queues.links import numbered, publish
from tests.broker.queues.test_sessions import ask, attach, error_of, granted
from tests.broker.stores import ManualStore
from tests.broker.transactions.kit import Controller, retire

POLICY = QueuePolicy(sessions=True, deferral=True)
LOCKING = QueuePolicy(sessions=True, deferral=True, lock_duration=30_000, delivery_limit=5)
DEFER = Modified(undeliverable_here=True)


def owned(net: Network, count: int, policy: QueuePolicy = LOCKING) -> Receiver:
    """Return the owner of the session "a", which holds `count` messages."""
    net.declare("q", policy)
    client = net.connect()
    publish(client.sender("q"), *numbered(0, count), group="a")
    return attach(client, session="a", name="owner")


def receive(asker: Asker, *sequences: int, session: str | None = "a", **more: object) -> Answer:
    body: dict[str, object] = {"sequences": list(sequences), **more}
    if session is not None:
        body["session"] = session
    return asker.ask("RECEIVE-DEFERRED", "queue", "q", body)


def settle(asker: Asker, token: object, outcome: str = "accepted", **more: object) -> Answer:
    return asker.ask("SETTLE", "queue", "q", {"tokens": [token], "outcome": outcome, **more})


def messages(answer: Answer) -> list[dict[str, object]]:
    assert answer.status == 200, answer.description
    found = answer.map()["messages"]
    assert isinstance(found, list)
    return found


def figures(net: Network, *names: str) -> list[int]:
    all_figures = net.queue("q").figures()
    return [all_figures[name] for name in names]


@pytest.mark.parametrize("policy", [POLICY, LOCKING])
def test_the_deliveries_of_an_owner_are_settled_by_token(net: Network, policy: QueuePolicy) -> None:
    owner = owned(net, 3, policy)
    asker = ask(net)
    tokens = [delivery.tag for delivery in owner.deliveries]
    assert {len(token) for token in tokens} == {16}
    assert figures(net, "locked") == [3]
    assert settle(asker, tokens[0]).status == 200
    assert settle(asker, tokens[1], "rejected", session="a").status == 200
    assert settle(asker, tokens[2], "modified", session="a", link="owner").status == 200
    # The third message came back, and is the next of the session.
    assert owner.bodies() == [b"0", b"1", b"2", b"2"]
    assert figures(net, "locked", "accepted", "rejected", "messages") == [1, 1, 1, 1]
    lost = settle(asker, tokens[0])
    assert lost.status == 410 and lost.properties["errorCondition"] == "ferrymq:lock-lost"


def test_a_token_belongs_to_its_session(net: Network) -> None:
    owner = owned(net, 1)
    asker = ask(net)
    token = owner.deliveries[0].tag
    publish(net.connect().sender("q"), b"b", group="b")
    attach(net.connect(), session="b")
    other = settle(asker, token, session="b")
    assert other.status == 410 and other.properties["errorCondition"] == "ferrymq:lock-lost"
    for wrong in ({"session": "c"}, {"session": "a", "link": "other"}):
        answer = settle(asker, token, **wrong)
        assert answer.status == 410
        assert answer.properties["errorCondition"] == "ferrymq:session-lock-lost"
    assert settle(asker, token, link="owner").status == 400
    assert settle(asker, token, session="a").status == 200


def test_the_session_is_renewed_not_its_messages(net: Network) -> None:
    owner = owned(net, 1)
    asker = ask(net)
    token = owner.deliveries[0].tag

    def locked_until() -> object:
        (peeked,) = messages(asker.ask("PEEK", "queue", "q"))
        return peeked["locked-until"]

    assert locked_until() == Timestamp(net.wall + 30_000)
    net.advance(20)
    refused = asker.ask("RENEW-LOCKS", "queue", "q", {"tokens": [token]})
    assert refused.status == 409 and "renew the session" in refused.description
    assert asker.ask("RENEW-SESSION", "queue", "q", {"session": "a"}).status == 200
    assert locked_until() == Timestamp(net.wall + 30_000)
    net.advance(20)
    assert settle(asker, token).status == 200
    assert figures(net, "messages") == [0]


def test_deferred_messages_are_received_for_the_owner(net: Network) -> None:
    owner = owned(net, 3)
    asker = ask(net)
    first, _, third = owner.deliveries
    owner.settle(DEFER, first)
    owner.settle(DEFER, third)
    assert figures(net, "deferred", "locked") == [2, 1]
    received = messages(receive(asker, 3, 1))
    bodies = [one["message"] for one in received]
    assert [text(body) for body in bodies if isinstance(body, bytes)] == [b"2", b"0"]
    assert {one["locked-until"] for one in received} == {net.wall + 30_000}
    assert receive(asker, 1).status == 404
    assert settle(asker, received[0]["token"], session="a").status == 200
    assert settle(asker, received[1]["token"], "released", session="a").status == 200
    assert figures(net, "deferred", "locked", "messages") == [1, 1, 2]
    (again,) = messages(receive(asker, 1, settled=True))
    assert "token" not in again
    assert figures(net, "deferred", "accepted", "messages") == [0, 2, 1]
    # The owner has one message left; nothing of the session is available.
    assert owner.bodies() == numbered(0, 3)


def test_a_receiver_of_deferred_messages_names_the_session_that_it_owns(net: Network) -> None:
    owner = owned(net, 1)
    asker = ask(net)
    owner.settle(DEFER)
    assert receive(asker, 1, session=None).status == 400
    assert receive(asker, 1, session="b").status == 410
    assert receive(asker, 1, link="other").status == 410
    publish(net.connect().sender("q"), b"b", group="b")
    attach(net.connect(), session="b")
    assert receive(asker, 1, session="b").map() == {"sequences": [1]}
    owner.close()
    answer = receive(asker, 1, settled=True)
    assert answer.status == 410
    assert answer.properties["errorCondition"] == "ferrymq:session-lock-lost"
    assert figures(net, "deferred") == [1]
    net.declare("plain", QueuePolicy(deferral=True))
    body = {"sequences": [1], "session": "a"}
    assert asker.ask("RECEIVE-DEFERRED", "queue", "plain", body).status == 409


@pytest.mark.parametrize("end", ["closed", "connection lost", "lock lost"])
def test_the_end_of_the_owner_gives_locked_messages_back(net: Network, end: str) -> None:
    owner = owned(net, 2)
    asker = ask(net)
    first, second = owner.deliveries
    owner.settle(DEFER, first)
    (deferred,) = messages(receive(asker, 1))
    waiting = attach(net.connect(), timeout=60_000)
    assert not waiting.attached
    if end == "closed":
        owner.close()
    elif end == "connection lost":
        owner.client.lose()
    else:
        net.advance(31)
        assert error_of(owner) == "ferrymq:session-lock-lost"
    failures = 0 if end == "closed" else 1
    assert granted(waiting) == "a" and waiting.bodies() == [b"1"]
    assert (header(waiting.deliveries[0].payload).delivery_count or 0) == failures
    for token in (second.tag, deferred["token"]):
        assert settle(asker, token).status == 410
    assert figures(net, "deferred", "locked", "messages") == [1, 1, 2]
    (again,) = messages(receive(asker, 1))
    assert again["failures"] == failures and again["token"] != deferred["token"]


def test_a_session_with_deferred_messages_only_is_not_the_next_free_one(net: Network) -> None:
    owner = owned(net, 1)
    asker = ask(net)
    owner.settle(DEFER)
    owner.drain()
    assert owner.drained == 1
    owner.close()
    assert error_of(attach(net.connect())) == "ferrymq:timeout"
    assert granted(attach(net.connect(), session="a")) == "a"
    messages(receive(asker, 1, settled=True))
    sessions = net.queue("q").entries.sessions
    assert sessions is not None and sessions.find("a") is not None
    publish(net.connect().sender("q"), b"b", group="b")
    assert granted(attach(net.connect())) == "b"


def test_deferred_messages_of_a_session_are_purged_and_counted_out(net: Network) -> None:
    owner = owned(net, 2)
    owner.settle(DEFER)
    owner.close()
    assert ask(net).ask("PURGE", "queue", "q").map() == {"count": 2}
    sessions = net.queue("q").entries.sessions
    assert sessions is not None and len(sessions) == 0


def test_deferred_messages_of_a_session_survive_a_restart() -> None:
    net = Network(store=ManualStore())
    net.space.create("q", QueuePolicy(sessions=True, deferral=True, persist=True))
    client = net.connect()
    publish(client.sender("q"), b"0", b"1", group="a")
    owner = attach(client, session="a", credit=1)
    owner.settle(DEFER)
    net.restart()
    asker = ask(net)
    owner = attach(net.connect(), session="a")
    assert owner.bodies() == [b"1"]
    (deferred,) = messages(receive(asker, 1))
    assert settle(asker, deferred["token"]).status == 200
    owner.settle(Accepted())
    assert figures(net, "messages") == [0]


@pytest.mark.parametrize("discharged", ["committed", "rolled back", "lost"])
def test_a_transaction_decides_on_a_message_of_a_session(net: Network, discharged: str) -> None:
    owner = owned(net, 1)
    asker = ask(net)
    (delivery,) = owner.deliveries
    control = Controller(owner.client)
    txn = control.declare()
    retire(owner, txn, delivery)
    assert settle(asker, delivery.tag).status == 409
    net.advance(31)
    assert error_of(owner) == "ferrymq:session-lock-lost"
    late = attach(net.connect(), timeout=60_000)
    assert not late.attached
    if discharged == "committed":
        control.commit(txn)
    elif discharged == "rolled back":
        control.roll_back(txn)
    else:
        owner.client.lose()
    if discharged == "committed":
        assert figures(net, "messages") == [0]
        assert not late.attached
    else:
        assert granted(late) == "a" and late.bodies() == [b"0"]


def test_the_tokens_of_a_subscription_with_sessions(net: Network) -> None:
    net.space.create("t", TopicPolicy(subscription=POLICY))
    asker = ask(net)
    assert asker.ask("CREATE", "subscription", "t::s").status == 201
    client = net.connect()
    publish(client.sender("t"), b"1", b"2", group="a")
    owner = attach(client, "t::s", session="a")
    owner.settle(DEFER, owner.deliveries[0])
    body: dict[str, object] = {"sequences": [1], "session": "a"}
    (deferred,) = messages(asker.ask("RECEIVE-DEFERRED", "subscription", "t::s", body))
    tokens = [deferred["token"], owner.deliveries[1].tag]
    body = {"tokens": tokens, "outcome": "accepted", "session": "a"}
    assert asker.ask("SETTLE", "subscription", "t::s", body).map() == {"count": 2}


def test_the_messages_of_one_session_are_peeked(net: Network) -> None:
    owner = owned(net, 2)
    publish(net.connect().sender("q"), b"b", group="b")
    asker = ask(net)

    def peeked(session: str, **more: object) -> list[str]:
        found = messages(asker.ask("PEEK", "queue", "q", {"session": session, **more}))
        bodies = [one["message"] for one in found]
        return [text(body).decode() for body in bodies if isinstance(body, bytes)]

    assert peeked("a") == ["0", "1"] and peeked("b") == ["b"] and peeked("c") == []
    assert peeked("a", **{"from-sequence": 2}) == ["1"]
    assert not owner.detached
    net.declare("plain")
    assert asker.ask("PEEK", "queue", "plain", {"session": "a"}).status == 409
