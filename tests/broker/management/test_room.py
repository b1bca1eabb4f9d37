"""Room for the response is kept before a request is acted upon: nothing is done in silence."""

from __future__ import annotations

import pytest

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq_broker.management import manager, sliced_query
from ferrymq_broker.management.policies import node_policy
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.service import PENDING
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy
from ferrymq_types.messaging import Accepted, Rejected, Source
from tests.broker.harness import Client, Network, Sender, encode
from tests.broker.management.asker import Answer, read_answer, request_sections

FULL = {
    "reject": QueuePolicy(max_length=1),
    "block": QueuePolicy(max_length=1, overflow="block"),
    "bytes": QueuePolicy(max_bytes=80),
    "tiny": QueuePolicy(max_bytes=60, overflow="drop-head"),
}

# Messages that are moved in several steps.
MANY = 350


def post(
    sender: Sender,
    operation: str,
    name: str,
    body: object = None,
    reply_to: str | None = "answers",
    type: str = "queue",
) -> OutgoingDelivery:
    """Ask, and do not wait."""
    sections = request_sections(operation, type, name, body, reply_to=reply_to, message_id="1")
    return sender.link.send(encode(*sections))


def ask(
    net: Network,
    operation: str,
    name: str,
    body: object = None,
    reply_to: str | None = "answers",
) -> str:
    """Ask over a link of one's own; the condition of the refusal, empty if it is none."""
    sent = post(net.connect().sender("$management"), operation, name, body, reply_to)
    net.run()
    return condition(sent)


def condition(sent: OutgoingDelivery) -> str:
    """Why a request was refused; empty if it was not."""
    state = sent.remote_state
    if isinstance(state, Accepted):
        return ""
    assert isinstance(state, Rejected) and state.error is not None
    return state.error.condition


def answers(net: Network, address: str = "answers") -> list[Answer]:
    """What was answered, taken out."""
    receiver = net.connect().receiver(address, credit=100)
    found = [read_answer(delivery.payload) for delivery in receiver.deliveries]
    receiver.settle(Accepted())
    receiver.close()
    return found


def fill(net: Network, address: str = "answers") -> None:
    """Let a queue have one message."""
    client = net.connect()
    client.sender(address).send(b"x")
    client.close()


@pytest.mark.parametrize("how", FULL)
def test_without_room_for_the_response_nothing_is_done(net: Network, how: str) -> None:
    net.declare("answers", FULL[how])
    fill(net)
    assert ask(net, "CREATE", "made") == "amqp:resource-limit-exceeded"
    assert "made" not in net.space.nodes
    assert net.queue("answers").message_count() == 1


def test_nor_where_a_sender_was_promised_all_the_room(net: Network) -> None:
    net.declare("answers", FULL["block"])
    sender = net.connect().sender("answers")
    assert sender.link.credit == 1
    assert ask(net, "CREATE", "made") == "amqp:resource-limit-exceeded"
    assert "made" not in net.space.nodes
    sender.close()
    assert ask(net, "CREATE", "made") == ""
    assert [answer.status for answer in answers(net)] == [201]


def test_nor_where_an_exchange_leads_nowhere_or_to_what_is_full(net: Network) -> None:
    net.declare("answers", FULL["reject"])
    fill(net)
    exchange = net.space.create("ex", ExchangePolicy(type="direct"))
    assert isinstance(exchange, Exchange)
    assert ask(net, "CREATE", "made", reply_to="ex::key") == "amqp:not-found"
    exchange.bind("answers", "key")
    assert ask(net, "CREATE", "made", reply_to="ex::key") == "amqp:resource-limit-exceeded"
    assert "made" not in net.space.nodes
    answers_taken = net.connect().receiver("answers", credit=1)
    answers_taken.settle(Accepted())
    answers_taken.close()
    assert ask(net, "CREATE", "made", reply_to="ex::key") == ""
    assert [answer.status for answer in answers(net)] == [201]


def test_a_response_that_is_larger_than_the_room_is_told_in_short(net: Network) -> None:
    net.declare("answers", QueuePolicy(max_bytes=300))
    assert ask(net, "CREATE", "made") == ""
    (answer,) = answers(net)
    assert answer.status == 500 and "bytes" in answer.description
    assert answer.about.correlation_id == "1"
    assert "made" in net.space.nodes


@pytest.fixture
def slow(net: Network, monkeypatch: pytest.MonkeyPatch) -> Network:
    """A broker where every step takes a turn of its own."""
    monkeypatch.setattr(sliced_query, "_SLICE", 0.0)
    monkeypatch.setattr(sliced_query, "_STEP", 1)
    for number in range(5):
        net.space.create(f"q{number}", node_policy("queue", {}))
    return net


def turn(net: Network, *clients: Client) -> None:
    """One turn of the event loop."""
    calls = net.later.copy()
    net.later.clear()
    for call in calls:
        call()
    for client in clients:
        while client.step():
            pass


def begin_move(net: Network, reply_to: str | None = "answers") -> tuple[Client, OutgoingDelivery]:
    """Have messages moved from q0 to q1; it is not done when this returns."""
    client = net.connect()
    sender = client.sender("$management")
    net.connect().sender("q0").send(*[b"x"] * MANY)
    sent = post(sender, "MOVE", "q0", {"target": "q1"}, reply_to)
    turn(net, client)
    assert net.queue("q0").message_count() > 0
    return client, sent


def test_the_room_is_kept_while_a_request_is_worked_on(slow: Network) -> None:
    net = slow
    net.declare("answers", FULL["reject"])
    other = net.connect().sender("answers")
    second = net.connect().sender("$management")
    asked, sent = begin_move(net)
    taken = other.link.send(b"\x00\x53\x75\xa0\x01x")
    refused = post(second, "CREATE", "made")
    turn(net, asked, other.client, second.client)
    assert condition(taken) == condition(refused) == "amqp:resource-limit-exceeded"
    net.run()
    assert condition(sent) == "" and "made" not in net.space.nodes
    (answer,) = answers(net)
    assert answer.status == 200 and answer.map() == {"count": MANY}
    # It is free again.
    assert ask(net, "CREATE", "made") == ""
    assert [answer.status for answer in answers(net)] == [201]


@pytest.mark.parametrize("policy", ["reject", "block"])
def test_the_room_of_one_who_has_gone_is_free(slow: Network, policy: str) -> None:
    net = slow
    net.declare("answers", FULL[policy])
    client, _ = begin_move(net)
    client.lose()
    net.run()
    # The answer is there, for whoever reads there.
    assert [answer.status for answer in answers(net)] == [200]
    assert net.queue("q1").message_count() == MANY
    for number in range(3):
        assert ask(net, "CREATE", f"made{number}") == ""
        assert [answer.status for answer in answers(net)] == [201]


def test_what_has_begun_is_done_also_without_a_response(slow: Network) -> None:
    net = slow
    begin_move(net, None)
    net.run()
    assert net.queue("q0").message_count() == 0
    assert net.queue("q1").message_count() == MANY


def test_what_has_begun_is_done_also_if_who_asked_has_gone(slow: Network) -> None:
    net = slow
    client = net.connect()
    receiver = client.receiver(None, source=Source(dynamic=True), credit=10)
    net.connect().sender("q0").send(*[b"x"] * MANY)
    post(
        client.sender("$management"), "MOVE", "q0", {"target": "q1"}, receiver.remote_source.address
    )
    turn(net, client)
    client.lose()
    net.run()
    assert net.queue("q1").message_count() == MANY


def test_what_is_done_is_not_told_as_refused(
    slow: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response link that has come to be full meanwhile does not make a MOVE or DELETE fail."""
    net = slow
    monkeypatch.setattr(manager, "PENDING_BYTES", 1)
    client = net.connect()
    receiver = client.receiver("$management", name="answers")
    sender = client.sender("$management")
    net.connect().sender("q0").send(*[b"x"] * MANY)
    asked = [post(sender, "READ", "q2"), post(sender, "MOVE", "q0", {"target": "q1"})]
    net.run()
    assert [condition(sent) for sent in asked] == ["", ""]
    receiver.credit(10)
    assert [read_answer(one.payload).status for one in receiver.deliveries] == [200, 200]
    assert net.queue("q1").message_count() == MANY


def test_responses_to_come_count_with_those_that_wait(slow: Network) -> None:
    """A link has room for so many, those that are being worked on among them."""
    net = slow
    client = net.connect()
    receiver = client.receiver("$management", name="answers")
    sender = client.sender("$management")
    for _ in range(PENDING - 2):
        post(sender, "READ", "q2")
    net.run()
    net.connect().sender("q0").send(*[b"x"] * MANY)
    asked = [
        post(sender, "MOVE", "q0", {"target": "q1"}),
        post(sender, "MOVE", "q0", {"target": "q3"}),
        post(sender, "CREATE", "made"),
    ]
    turn(net, client)
    turn(net, client)
    assert condition(asked[2]) == "amqp:resource-limit-exceeded"
    net.run()
    assert "made" not in net.space.nodes
    receiver.credit(PENDING)
    assert len(receiver.deliveries) == PENDING
