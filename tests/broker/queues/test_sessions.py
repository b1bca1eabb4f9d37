"""Sessions: messages of one group-id (AMQP 1.0 §3.2.4) with one owner, a lock and a state."""

from __future__ import annotations

import pytest

from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.queues.sessions import MAX_WAITING
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_codec.scalars import Described, Symbol, Timestamp, UInt
from ferrymq_types.filters import SelectorFilter
from ferrymq_types.messaging import (
    Accepted,
    Modified,
    Released,
    Source,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from tests.broker.harness import Client, Network, Receiver, header
from tests.broker.management.asker import Asker
from tests.broker.queues.links import consume, numbered, publish
from tests.broker.stores import ManualStore

POLICY = QueuePolicy(sessions=True)
LOCKING = QueuePolicy(sessions=True, lock_duration=30_000)
NAME = Symbol("session")


def attach(
    client: Client,
    address: str = "q",
    session: str | None = None,
    credit: int = 10,
    timeout: int | None = None,
    name: str | None = None,
    **source: object,
) -> Receiver:
    """Attach a consumer that asks for a session, or for the next free one."""
    wanted = Described(Symbol("ferrymq:session"), session)
    return client.receiver(
        address,
        credit=credit,
        source=Source(address=address, filter={NAME: wanted}, **source),  # type: ignore[arg-type]
        name=name,
        properties=None if timeout is None else {"ferrymq:timeout": UInt(timeout)},
    )


def ask(net: Network) -> Asker:
    """A client of the management node."""
    if ADDRESS not in net.space.nodes:
        install(net.space, net.broker)
    return Asker(net)


def granted(receiver: Receiver) -> object:
    """The id of the session in the broker's answer."""
    value = (receiver.remote_source.filter or {})[NAME]
    assert isinstance(value, Described) and value.descriptor == "ferrymq:session"
    return value.value


def error_of(receiver: Receiver) -> str | None:
    assert receiver.detached
    return None if receiver.error is None else str(receiver.error.condition)


@pytest.mark.spec("3.2.4")
def test_a_named_session_has_one_owner_and_its_order(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    sender = client.sender("q")
    for number in range(6):
        publish(sender, b"%d" % number, group="ab"[number % 2])
    first = attach(client, session="a")
    assert granted(first) == "a"
    assert first.bodies() == [b"0", b"2", b"4"]
    assert error_of(attach(net.connect(), session="a")) == "ferrymq:session-locked"
    assert attach(client, session="b").bodies() == [b"1", b"3", b"5"]


@pytest.mark.spec("3.2.4")
def test_the_next_free_session_is_the_one_that_has_waited_longest(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    sender = client.sender("q")
    for group in ("x", "y", "z", "y"):
        publish(sender, group.encode(), group=group)
    owners = [attach(client) for _ in range(3)]
    assert [granted(owner) for owner in owners] == ["x", "y", "z"]
    assert owners[1].bodies() == [b"y", b"y"]
    # All are owned, and the fourth does not say that it waits.
    assert error_of(attach(client)) == "ferrymq:timeout"


def test_a_message_needs_a_group_id(net: Network) -> None:
    queue = net.declare("q", POLICY)
    sender = net.connect().sender("q")
    delivery = sender.send(b"none")[0]
    error = getattr(delivery.remote_state, "error", None)
    assert error is not None and error.condition == "amqp:not-allowed"
    publish(sender, b"long", group="g" * 1025)
    assert queue.message_count() == 0


def test_a_consumer_needs_the_filter_and_a_browser_does_not(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    publish(client.sender("q"), b"1", group="a")
    assert error_of(consume(client, "q", 10)) == "amqp:not-allowed"
    assert consume(client, "q", 10, mode="copy").bodies() == [b"1"]


@pytest.mark.parametrize("value", ["", "s" * 1025, 7])
def test_a_filter_of_another_type_is_refused(net: Network, value: object) -> None:
    net.declare("q", POLICY)
    receiver = net.connect().receiver(
        "q",
        source=Source(address="q", filter={NAME: Described(Symbol("ferrymq:session"), value)}),
    )
    assert error_of(receiver) == "amqp:invalid-field"


def test_other_nodes_do_not_grant_the_filter(net: Network) -> None:
    net.declare("plain")
    assert not attach(net.connect(), "plain", "a").remote_source.filter


def test_other_filters_are_not_granted_beside_it(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    publish(client.sender("q"), b"1", group="a")
    wanted = {NAME: Described(Symbol("ferrymq:session"), "a"), "selector": SelectorFilter("x = 1")}
    receiver = client.receiver("q", credit=1, source=Source(address="q", filter=wanted))
    assert list(receiver.remote_source.filter or {}) == [NAME]
    assert receiver.bodies() == [b"1"]


@pytest.mark.parametrize("outcome", [Released(), Modified(delivery_failed=True)])
def test_a_message_that_comes_back_is_the_next_of_its_session(
    net: Network, outcome: Released | Modified
) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    publish(client.sender("q"), *numbered(0, 4), group="a")
    owner = attach(client, session="a", credit=2)
    first, second = owner.take()
    owner.settle(outcome, first)
    owner.settle(Accepted(), second)
    owner.credit(10)
    assert owner.bodies() == [b"0", b"2", b"3"]


def test_a_message_that_the_owner_must_not_get_holds_up_the_rest(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    publish(client.sender("q"), *numbered(0, 3), group="a")
    owner = attach(client, session="a", credit=1)
    owner.settle(Modified(undeliverable_here=True))
    owner.credit(10)
    assert owner.bodies() == []
    owner.drain()
    assert owner.drained == 1
    owner.close()
    assert attach(client, session="a").bodies() == numbered(0, 3)


@pytest.mark.parametrize("end", ["detached", "lost", "session ended"])
def test_the_session_is_free_when_its_link_ends(net: Network, end: str) -> None:
    net.declare("q", POLICY)
    leaving, client = net.connect(), net.connect()
    publish(client.sender("q"), *numbered(0, 3), group="a")
    owner = attach(leaving, session="a", credit=2)
    waiting = attach(client, timeout=1000)
    assert not waiting.attached
    if end == "detached":
        owner.close()
    elif end == "lost":
        leaving.lose()
    else:
        leaving.session.end()
        net.run()
    assert granted(waiting) == "a"
    assert waiting.bodies() == numbered(0, 3)


# -- attaches that wait ------------------------------------------------------------------------


def test_an_attach_is_answered_when_a_session_is_free(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    waiting = [attach(net.connect(), timeout=60_000) for _ in range(2)]
    assert not any(one.attached for one in waiting)
    net.advance(59)
    publish(client.sender("q"), b"1", group="a")
    assert granted(waiting[0]) == "a" and waiting[0].bodies() == [b"1"]
    assert not waiting[1].attached
    net.advance(2)
    assert error_of(waiting[1]) == "ferrymq:timeout"
    assert not waiting[0].detached


def test_an_attach_that_waits_too_long_is_answered_without_a_source(net: Network) -> None:
    queue = net.declare("q", POLICY)
    client = net.connect()
    waiting = attach(client, timeout=1000)
    net.advance(0.9)
    assert not waiting.attached
    net.advance(0.2)
    assert error_of(waiting) == "ferrymq:timeout"
    attach_answer = waiting.link.remote_attach
    assert attach_answer is not None and attach_answer.source is None
    # Nothing is left of it: a message stays for others.
    publish(client.sender("q"), b"1", group="a")
    assert queue.entries.sessions is not None and not queue.entries.sessions.waiting
    assert attach(client).bodies() == [b"1"]


@pytest.mark.parametrize("end", ["detached", "lost", "closed", "session ended", "stolen"])
def test_an_attach_whose_client_leaves_waits_no_more(net: Network, end: str) -> None:
    queue = net.declare("q", POLICY)
    leaving = net.connect(container_id="leaving")
    waiting = attach(leaving, timeout=1000, name="link")
    sessions = queue.entries.sessions
    assert sessions is not None and len(sessions.waiting) == 1
    if end == "detached":
        waiting.close()
        assert waiting.detached
    elif end == "lost":
        leaving.lose()
    elif end == "closed":
        leaving.close()
    elif end == "session ended":
        leaving.session.end()
        net.run()
    else:
        other = attach(net.connect(container_id="leaving"), timeout=5000, name="link")
        assert error_of(waiting) == "amqp:link:stolen"
        assert len(sessions.waiting) == 1
        other.close()
    assert not sessions.waiting
    client = net.connect()
    publish(client.sender("q"), b"1", group="a")
    assert attach(client, session="a").bodies() == [b"1"]
    net.advance(10)


def test_the_number_of_waiting_attaches_is_bounded(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    for _ in range(MAX_WAITING):
        assert not attach(client, timeout=1000).attached
    assert error_of(attach(client, timeout=1000)) == "amqp:resource-limit-exceeded"


def test_a_deleted_queue_ends_the_waiting_attaches(net: Network) -> None:
    net.declare("q", POLICY)
    waiting = attach(net.connect(), timeout=1000)
    assert ask(net).ask("DELETE", "queue", "q").status == 204
    assert error_of(waiting) == "amqp:resource-deleted"


def test_an_invalid_time_out_is_refused(net: Network) -> None:
    net.declare("q", POLICY)
    receiver = net.connect().receiver("q", properties={"ferrymq:timeout": "soon"})
    assert error_of(receiver) == "amqp:invalid-field"


def test_a_limit_of_consumers_holds_for_attaches_that_waited(net: Network) -> None:
    net.declare("q", QueuePolicy(sessions=True, max_consumers=1))
    client = net.connect()
    waiting = [attach(client, timeout=60_000) for _ in range(2)]
    sender = client.sender("q")
    publish(sender, b"1", group="a")
    publish(sender, b"2", group="b")
    assert waiting[0].bodies() == [b"1"]
    assert error_of(waiting[1]) == "amqp:resource-limit-exceeded"


# -- locks -------------------------------------------------------------------------------------


def test_a_lock_that_lapses_ends_the_link_and_gives_the_messages_back(net: Network) -> None:
    net.declare("q", LOCKING)
    client = net.connect()
    publish(client.sender("q"), *numbered(0, 2), group="a")
    owner = attach(client, session="a")
    answer = owner.link.remote_attach
    assert answer is not None and answer.properties is not None
    assert answer.properties["ferrymq:locked-until"] == Timestamp(net.wall + 30_000)
    late = attach(net.connect(), timeout=60_000)
    net.advance(29.9)
    assert not owner.detached and not late.attached
    net.advance(0.2)
    assert error_of(owner) == "ferrymq:session-lock-lost"
    assert granted(late) == "a" and late.bodies() == numbered(0, 2)
    assert [header(one.payload).delivery_count for one in late.deliveries] == [1, 1]
    # An outcome of the former owner changes nothing.
    assert len(owner.deliveries) == 2
    assert net.queue("q").message_count() == 2


def test_a_lock_is_renewed(net: Network) -> None:
    net.declare("q", LOCKING)
    client = net.connect()
    asker = ask(net)
    publish(client.sender("q"), b"1", group="a")
    owner = attach(client, session="a", name="owner")
    net.advance(20)
    renewed = asker.ask("RENEW-SESSION", "queue", "q", {"session": "a"})
    assert renewed.map() == {"expiration": Timestamp(net.wall + 30_000)}
    net.advance(20)
    body = {"session": "a", "link": "owner"}
    assert asker.ask("RENEW-SESSION", "queue", "q", body).status == 200
    net.advance(29)
    assert not owner.detached
    wrong = asker.ask("RENEW-SESSION", "queue", "q", {"session": "a", "link": "other"})
    assert wrong.status == 410
    assert wrong.properties["errorCondition"] == "ferrymq:session-lock-lost"
    net.advance(2)
    assert error_of(owner) == "ferrymq:session-lock-lost"
    assert asker.ask("RENEW-SESSION", "queue", "q", {"session": "a"}).status == 410


def test_without_a_duration_the_lock_lasts_as_long_as_the_link(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    owner = attach(client, session="a")
    net.advance(100_000)
    assert not owner.detached
    renewed = ask(net).ask("RENEW-SESSION", "queue", "q", {"session": "a"})
    assert renewed.map() == {"expiration": None}


# -- state -------------------------------------------------------------------------------------


def test_the_state_of_a_session(net: Network) -> None:
    net.declare("q", POLICY)
    asker = ask(net)

    def get() -> object:
        return asker.ask("GET-SESSION-STATE", "queue", "q", {"session": "a"}).map()["state"]

    def put(state: object, link: str | None = None) -> int:
        body = {"session": "a", "state": state} | ({} if link is None else {"link": link})
        return asker.ask("SET-SESSION-STATE", "queue", "q", body).status

    assert get() is None
    assert put(b"one") == 200 and get() == b"one"
    assert put(b"x" * (256 * 1024)) == 200
    assert put(b"x" * (256 * 1024 + 1)) == 400
    assert put(7) == 400
    assert put(b"two", "nobody") == 410
    assert put(None) == 200 and get() is None
    sessions = net.queue("q").entries.sessions
    assert sessions is not None and len(sessions) == 0


def test_sessions_are_listed_by_their_last_change(net: Network) -> None:
    net.declare("q", LOCKING)
    client = net.connect()
    asker = ask(net)
    sender = client.sender("q")
    for group in ("a", "b", "c"):
        publish(sender, b"1", group=group)
        net.advance(1)
    asker.ask("SET-SESSION-STATE", "queue", "q", {"session": "a", "state": b"12"})
    attach(client, session="b")

    def listed(**body: object) -> list[dict[str, object]]:
        found = asker.ask("LIST-SESSIONS", "queue", "q", body).map()["sessions"]
        assert isinstance(found, list)
        return found

    a, c, b = listed()
    assert [one["session"] for one in (a, c, b)] == ["a", "c", "b"]
    assert a["state-size"] == 2 and a["messages"] == 1 and a["owned"] is False
    assert b["owned"] is True and b["locked-until"] == Timestamp(net.wall + 30_000)
    assert [one["session"] for one in listed(skip=1, top=1)] == ["c"]
    assert [one["session"] for one in listed(**{"changed-since": net.wall - 1000})] == ["a", "c"]
    assert asker.ask("LIST-SESSIONS", "queue", "q", {"top": -1}).status == 400


def test_a_queue_without_sessions_has_no_operations_on_them(net: Network) -> None:
    net.declare("plain")
    asker = ask(net)
    for operation in ("RENEW-SESSION", "GET-SESSION-STATE", "SET-SESSION-STATE"):
        assert asker.ask(operation, "queue", "plain", {"session": "a"}).status == 409
    assert asker.ask("LIST-SESSIONS", "queue", "plain").status == 409


def test_the_setting_cannot_be_changed(net: Network) -> None:
    net.declare("q", POLICY)
    answer = ask(net).ask("UPDATE", "queue", "q", {"sessions": False})
    assert answer.status == 409 and answer.description.startswith("sessions: ")


def test_a_forgotten_session_leaves_nothing(net: Network) -> None:
    queue = net.declare("q", POLICY)
    client = net.connect()
    sender = client.sender("q")
    for number in range(100):
        publish(sender, b"1", group=f"s{number}")
        owner = attach(client)
        owner.settle(Accepted())
        owner.close()
    sessions = queue.entries.sessions
    assert sessions is not None and len(sessions) == 0 and queue.message_count() == 0
    assert queue.figures()["session-count"] == 0


# -- with other features -----------------------------------------------------------------------


def test_messages_and_states_survive_a_restart() -> None:
    net = Network(store=ManualStore())
    net.space.create("q", QueuePolicy(sessions=True, persist=True))
    client = net.connect()
    sender = client.sender("q")
    for number in range(4):
        publish(sender, b"%d" % number, group="ab"[number % 2])
    asker = ask(net)
    for session, state in (("b", b"B"), ("only-state", b"S"), ("gone", b"G"), ("gone", None)):
        body = {"session": session, "state": state}
        assert asker.ask("SET-SESSION-STATE", "queue", "q", body).status == 200
    owner = attach(client, session="a", credit=1)
    assert owner.bodies() == [b"0"]
    net.restart()
    asker = ask(net)
    client = net.connect()
    listed = asker.ask("LIST-SESSIONS", "queue", "q").map()["sessions"]
    assert isinstance(listed, list)
    assert sorted(one["session"] for one in listed) == ["a", "b", "only-state"]
    for session, expected in (("b", b"B"), ("only-state", b"S"), ("a", None)):
        answer = asker.ask("GET-SESSION-STATE", "queue", "q", {"session": session})
        assert answer.map() == {"state": expected}
    assert attach(client, session="a").bodies() == [b"0", b"2"]
    # A state that is set now gets a record of its own.
    asker.ask("SET-SESSION-STATE", "queue", "q", {"session": "a", "state": b"A"})
    asker.ask("SET-SESSION-STATE", "queue", "q", {"session": "b", "state": None})
    net.restart()
    asker = ask(net)
    for session, expected in (("a", b"A"), ("b", None), ("only-state", b"S")):
        answer = asker.ask("GET-SESSION-STATE", "queue", "q", {"session": session})
        assert answer.map() == {"state": expected}


def test_a_deleted_queue_leaves_no_records_of_sessions() -> None:
    store = ManualStore()
    net = Network(store=store)
    net.space.create("q", POLICY)
    asker = ask(net)
    asker.ask("SET-SESSION-STATE", "queue", "q", {"session": "a", "state": b"A"})
    asker.ask("DELETE", "queue", "q")
    net.space.create("q", POLICY)
    net.finish()
    net.restart()
    answer = ask(net).ask("GET-SESSION-STATE", "queue", "q", {"session": "a"})
    assert answer.map() == {"state": None}


def test_a_source_that_outlives_its_link_keeps_no_deliveries() -> None:
    net = Network(store=ManualStore())
    net.space.create("q", QueuePolicy(sessions=True, persist=True))
    client = net.connect(container_id="c")
    publish(client.sender("q"), b"1", group="a")
    owner = attach(
        client,
        session="a",
        name="link",
        durable=TerminusDurability.UNSETTLED_STATE,
        expiry_policy=TerminusExpiryPolicy.NEVER,
    )
    assert owner.remote_source.durable is TerminusDurability.NONE
    assert owner.bodies() == [b"1"]
    owner.close(closed=False)
    assert attach(net.connect(), session="a").bodies() == [b"1"]


def test_the_subscriptions_of_a_topic_have_sessions(net: Network) -> None:
    net.space.create("t", TopicPolicy(subscription=POLICY))
    asker = ask(net)
    assert asker.ask("CREATE", "subscription", "t::s").status == 201
    client = net.connect()
    waiting = attach(client, "t::s", timeout=1000)
    publish(client.sender("t"), b"1", group="a")
    assert granted(waiting) == "a" and waiting.bodies() == [b"1"]
    body = {"session": "a", "state": b"1"}
    assert asker.ask("SET-SESSION-STATE", "subscription", "t::s", body).status == 200
    answer = asker.ask("GET-SESSION-STATE", "subscription", "t::s", {"session": "a"})
    assert answer.map() == {"state": b"1"}


def test_purged_and_expired_messages_leave_their_sessions(net: Network) -> None:
    queue = net.declare("q", QueuePolicy(sessions=True, message_ttl=10_000))
    client = net.connect()
    sender = client.sender("q")
    publish(sender, b"1", group="a")
    assert ask(net).ask("PURGE", "queue", "q").map() == {"count": 1}
    publish(sender, b"2", group="b")
    net.advance(11)
    sessions = queue.entries.sessions
    assert sessions is not None and len(sessions) == 0
    assert error_of(attach(client)) == "ferrymq:timeout"


def test_priorities_hold_within_a_session(net: Network) -> None:
    net.declare("q", POLICY)
    client = net.connect()
    sender = client.sender("q")
    publish(sender, b"low", group="a", priority=1)
    publish(sender, b"high", group="a", priority=9)
    assert attach(client, session="a").bodies() == [b"high", b"low"]
