"""A QUERY of a broker with many nodes is answered little by little: nobody waits for it."""

from __future__ import annotations

import pytest

from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.connections.shown_links import ShownLink, ShownSession
from ferrymq_broker.management import connections, discovery, manager, sliced_query, sorting
from ferrymq_broker.management.connections import links_of, sessions_of
from ferrymq_broker.management.entity import Show
from ferrymq_broker.management.policies import node_policy
from ferrymq_broker.management.queues import QueueEntities
from ferrymq_broker.management.termini import TerminusEntities
from tests.broker.harness import Network, encode
from tests.broker.management.asker import Asker, read_answer, request_sections
from tests.broker.management.rules import guard, rule, user

NODES = 300


@pytest.fixture
def crowded(net: Network, monkeypatch: pytest.MonkeyPatch) -> Network:
    """A broker in which ten nodes are as much as is looked at before others have their turn."""
    monkeypatch.setattr(sliced_query, "_STEP", 10)
    monkeypatch.setattr(sliced_query, "_SLICE", 0.0)
    for number in range(NODES):
        net.space.create(f"q{number:03}", node_policy("queue", {}))
    guard(net, rule("user:eve", "send", "q00*"), rule("user:bob", "send", "q001"))
    return net


def post(asker: Asker, requests: int, type: str = "queue", **arguments: object) -> None:
    """Ask, and do not wait."""
    for number in range(requests):
        sections = request_sections(
            "QUERY",
            "org.amqp.management",
            "self",
            {"entityType": type, **arguments},
            reply_to=asker.reply_to,
            message_id=number,
        )
        asker.sender.link.send(encode(*sections))


def turn(net: Network, *askers: Asker) -> None:
    """One turn of the event loop."""
    calls = net.later.copy()
    net.later.clear()
    for call in calls:
        call()
    for asker in askers:
        while asker.client.step():
            pass


def test_others_are_served_in_the_meantime(crowded: Network) -> None:
    net = crowded
    eve, bob = user(net, "eve"), user(net, "bob")
    net.run()
    post(eve, 5)
    turn(net, eve)
    post(bob, 1)
    turns = 0
    while not bob.receiver.deliveries:
        turn(net, eve, bob)
        turns += 1
        assert turns < 10 * NODES
    # Five of hers take as long as five of his; by turns he waits for one at most.
    assert turns >= NODES // 10
    assert len(eve.receiver.deliveries) <= 1
    net.run()
    answers = [read_answer(delivery.payload) for delivery in eve.receiver.take()]
    assert [answer.about.correlation_id for answer in answers] == list(range(5))
    assert {answer.properties["total"] for answer in answers} == {10}
    (answer,) = (read_answer(delivery.payload) for delivery in bob.receiver.take())
    assert answer.properties["total"] == 1


def test_no_pass_reads_the_attributes_of_a_whole_page(
    crowded: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = crowded
    monkeypatch.setattr(discovery, "ROWS", 7)
    shown: list[str] = []
    show = QueueEntities.show

    def counted(self: QueueEntities, identity: str) -> dict[str, object] | None:
        shown.append(identity)
        return show(self, identity)

    monkeypatch.setattr(QueueEntities, "show", counted)
    guard(net, rule("user:ann", "manage", "*"))
    ann = user(net, "ann")
    net.run()
    post(ann, 1)
    before = 0
    while not ann.receiver.deliveries:
        turn(net, ann)
        assert len(shown) - before <= 7
        before = len(shown)
    table = read_answer(ann.receiver.take()[0].payload).map()
    assert isinstance(table["results"], list) and len(table["results"]) == NODES


def test_no_pass_sorts_all_entities(crowded: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    net = crowded
    monkeypatch.setattr(sorting, "_STEP", 7)
    read: list[str] = []
    show = QueueEntities.row_shower

    def counted(self: QueueEntities, identities: list[str], names: list[str]) -> Show:
        inner = show(self, identities, names)

        def shown(identity: str) -> dict[str, object] | None:
            read.append(identity)
            return inner(identity)

        return shown

    monkeypatch.setattr(QueueEntities, "row_shower", counted)
    guard(net, rule("user:ann", "manage", "*"))
    ann = user(net, "ann")
    net.run()
    post(ann, 1, sort="-available", attributeNames=["name"], count=5)
    before = 0
    while not ann.receiver.deliveries:
        turn(net, ann)
        assert len(read) - before <= 7
        before = len(read)
    assert len(read) == NODES + 5
    assert read_answer(ann.receiver.take()[0].payload).map()["results"] == [
        [f"q00{number}"] for number in range(5)
    ]


def test_who_goes_away_costs_nothing_more(crowded: Network) -> None:
    net = crowded
    eve = user(net, "eve")
    post(eve, 50)
    turn(net, eve)
    eve.client.lose()
    turns = 0
    while net.later:
        turn(net)
        turns += 1
    assert turns <= 60


def test_only_so_many_wait(crowded: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    net = crowded
    monkeypatch.setattr(manager, "WAITING", 3)
    eve = user(net, "eve")
    post(eve, 6)
    net.run()
    statuses = [read_answer(delivery.payload).status for delivery in eve.receiver.take()]
    assert sorted(statuses) == [200, 200, 200, 429, 429, 429]
    assert len(eve.query("queue")) == 10


def test_answers_that_nobody_takes_are_not_piled_up(
    crowded: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = crowded
    monkeypatch.setattr(manager, "PENDING_BYTES", 1)
    eve = user(net, "eve")
    eve.receiver.credit(0)
    post(eve, 4)
    net.run()
    eve.receiver.credit(10)
    statuses = [read_answer(delivery.payload).status for delivery in eve.receiver.take()]
    assert statuses == [200, 507, 507, 507]


def test_nodes_that_come_and_go_meanwhile(crowded: Network) -> None:
    net = crowded
    eve = user(net, "eve")
    post(eve, 1)
    turn(net, eve)
    turn(net, eve)
    net.space.remove(net.space.nodes["q001"])
    net.space.create("q00x", node_policy("queue", {}))
    net.run()
    (delivery,) = eve.receiver.take()
    table = read_answer(delivery.payload).map()
    rows = table["results"]
    assert isinstance(rows, list) and len(rows) == 9
    assert [row["name"] for row in eve.query("queue")] == [
        *(f"q00{n}" for n in (0, *range(2, 10))),
        "q00x",
    ]


@pytest.mark.parametrize("ask", ["READ", "QUERY"])
def test_who_asks_for_his_own_has_not_all_others_gone_through(
    crowded: Network, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    net = crowded
    eve, bob = user(net, "eve"), user(net, "bob")
    seen: list[object] = []

    def watched_sessions(handler: ClientHandler) -> list[ShownSession]:
        seen.append(handler)
        return sessions_of(handler)

    def watched_links(handler: ClientHandler) -> list[ShownLink]:
        seen.append(handler)
        return links_of(handler)

    monkeypatch.setattr(connections, "sessions_of", watched_sessions)
    monkeypatch.setattr(connections, "links_of", watched_links)
    number = eve.client.handler.client.id
    if ask == "READ":
        name = f"{number}/0/sender/{eve.sender.link.name}"
        assert eve.ask("READ", "link", name).status == 200
        assert eve.ask("READ", "link", f"{number}/0/sender/none").status == 404
        assert eve.ask("READ", "session", f"{number}/0").status == 200
    else:
        assert {row["connection"] for row in eve.query("link")} == {str(number)}
        assert len(eve.query("session")) == 1
    assert eve.client.handler in seen and bob.client.handler not in seen


def test_nor_all_termini(crowded: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    net = crowded
    eve = user(net, "eve")
    monkeypatch.setattr(TerminusEntities, "entries", lambda self: pytest.fail("gone through"))
    for name in ("eve@box-eve/in/x", "bob@box/out/x", "nonsense", "%65ve@box/in/x", "/in/", "@//"):
        assert eve.ask("READ", "terminus", name).status == 403
        assert eve.ask("DELETE", "terminus", name).status == 403
    assert eve.query("terminus") == []
