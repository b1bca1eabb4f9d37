"""Who holds messages: what links and connections tell, the links of a node, and detached links."""

from __future__ import annotations

import logging

import pytest

from ferrymq.engine.sasl import Plain
from ferrymq_broker import audit
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.values.policy import QueuePolicy, StreamPolicy, TopicPolicy
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.messaging import Accepted, Source
from ferrymq_types.transactions import Coordinator
from tests.broker.harness import Client, Network, Sender
from tests.broker.management.asker import Asker
from tests.broker.management.rules import guard, rule, user

FORCED = "amqp:link:detach-forced"


def read(
    asker: Asker, client: Client, type: str = "connection", name: str = ""
) -> dict[str, object]:
    answer = asker.ask("READ", type, f"{client.handler.client.id}{name}")
    assert answer.status == 200, answer.description
    return answer.map()


def links_of(asker: Asker, address: str, type: str = "queue") -> list[dict[str, object]]:
    answer = asker.ask("LIST-LINKS", type, address)
    assert answer.status == 200, answer.description
    links = answer.map()["links"]
    assert isinstance(links, list) and answer.map()["total"] == len(links)
    return links


def test_links_and_connections_tell_what_they_hold(net: Network, asker: Asker) -> None:
    net.declare("q")
    client = net.connect()
    sender = client.sender("q", name="in")
    receiver = client.receiver("q", name="out", credit=10)
    sender.send(b"1", b"2", b"3", b"4")
    receiver.settle(Accepted(), receiver.deliveries.pop(0))
    out = read(asker, client, "link", "/0/receiver/out")
    assert (out["unsettled"], out["messages"], out["credit"]) == (3, 4, 6)
    assert out["peer"] == "test"
    incoming = read(asker, client, "link", "/0/sender/in")
    assert (incoming["unsettled"], incoming["messages"]) == (0, 4)
    assert read(asker, client, "session", "/0")["unsettled"] == 3
    connection = read(asker, client)
    assert (connection["unsettled"], connection["messages-received"]) == (3, 4)
    assert connection["messages-sent"] == 4
    receiver.close()
    # The messages of a link count for its connection when it is gone.
    connection = read(asker, client)
    assert (connection["unsettled"], connection["messages-sent"]) == (0, 4)


@pytest.mark.parametrize("mode", [None, "copy"])
def test_readers_and_browsers_hold_nothing_but_tell_what_is_unsettled(
    net: Network, asker: Asker, mode: str | None
) -> None:
    if mode is None:
        net.space.create("q", StreamPolicy())
    else:
        net.declare("q")
    client = net.connect()
    out = client.receiver("q", name="out", credit=9, mode=mode)
    client.receiver("q", name="idle", mode=mode)
    client.sender("q").send(b"a", b"b")
    assert len(out.deliveries) == 2
    assert read(asker, client, "link", "/0/receiver/out")["unsettled"] == 2
    assert read(asker, client, "link", "/0/receiver/idle")["unsettled"] == 0


def test_credit_that_was_given_back_is_no_message(net: Network, asker: Asker) -> None:
    net.declare("q")
    client = net.connect()
    receiver = client.receiver("q", name="out", credit=5)
    client.sender("q").send(b"a")
    receiver.drain()
    out = read(asker, client, "link", "/0/receiver/out")
    assert (out["messages"], out["delivery-count"]) == (1, 5)


def test_rates_are_taken_between_two_readings(net: Network, asker: Asker) -> None:
    net.declare("q")
    client = net.connect()
    sender = client.sender("q", name="in")

    def rates() -> tuple[object, object]:
        link = read(asker, client, "link", "/0/sender/in")
        return link["rate"], read(asker, client)["received-rate"]

    def next_reading() -> None:
        net.broker.begin_pass(net.now)
        net.broker.tidy()

    for _ in range(3):
        next_reading()
        sender.send(*[b"x"] * 20)
        net.advance(5)
    assert rates() == (4.0, 4.0)
    next_reading()
    net.advance(5)
    # The rate goes over the last two intervals.
    assert rates() == (2.0, 2.0)
    next_reading()
    net.advance(5)
    assert rates() == (0.0, 0.0)


def test_a_connection_tells_how_it_logged_in_and_since_when(net: Network, asker: Asker) -> None:
    before = net.wall
    client = net.connect(sasl=Plain("ann", "any password"))
    net.advance(30)
    connection = read(asker, client)
    assert (connection["user"], connection["mechanism"]) == ("ann", "PLAIN")
    assert connection["since"] == before and type(connection["since"]) is Timestamp
    assert connection["tls-version"] is None


def test_the_links_of_a_queue_those_that_hold_most_first(net: Network, asker: Asker) -> None:
    net.declare("q")
    few, many = net.connect(), net.connect()
    few.receiver("q", name="few", credit=1)
    many.receiver("q", name="many", credit=3)
    producer = net.connect().sender("q", name="in")
    net.connect().receiver("other", credit=1)
    producer.send(*[b"x"] * 4)
    found = links_of(asker, "q")
    assert [(link["name"], link["unsettled"]) for link in found] == [
        ("many", 3),
        ("few", 1),
        ("in", 0),
    ]
    assert found[0]["identity"] == f"{many.handler.client.id}/0/receiver/many"
    assert asker.ask("LIST-LINKS", "queue", "none").status == 404


def test_the_links_of_other_nodes(net: Network, asker: Asker) -> None:
    net.space.create("news", TopicPolicy())
    client = net.connect()
    client.receiver("news", name="out", credit=1)
    client.sender("news", name="in")
    assert [link["name"] for link in links_of(asker, "news", "topic")] == ["out", "in"]
    (subscription,) = asker.query("subscription")
    found = links_of(asker, str(subscription["name"]), "subscription")
    assert [link["name"] for link in found] == ["out"]


def test_messages_that_no_link_holds_are_counted(net: Network, asker: Asker) -> None:
    net.declare("q", QueuePolicy(lock_duration=60_000))
    receiver = net.connect().receiver("q", credit=2)
    net.connect().sender("q").send(b"a", b"b")
    receiver.settle(Accepted(), receiver.deliveries.pop())
    assert asker.ask("LIST-LINKS", "queue", "q").map()["elsewhere"] == 0
    receiver.close()
    # The lock outlives its link.
    assert asker.ask("LIST-LINKS", "queue", "q").map()["elsewhere"] == 1


def test_a_detached_consumer_gives_its_messages_back(net: Network, asker: Asker) -> None:
    net.declare("q")
    client = net.connect()
    receiver = client.receiver("q", name="out", credit=5)
    client.sender("q", name="in").send(b"a", b"b")
    name = f"{client.handler.client.id}/0/receiver/out"
    answer = asker.ask("DELETE", "link", name, {"reason": "stuck since noon"})
    assert answer.status == 204
    assert receiver.detached and receiver.error is not None
    assert (receiver.error.condition, receiver.error.description) == (FORCED, "stuck since noon")
    assert net.queue("q").available == 2
    assert asker.ask("DELETE", "link", name).status == 404
    # The connection and its other links go on.
    assert [link["name"] for link in links_of(asker, "q")] == ["in"]


def test_the_audit_log_has_who_detached_a_link_and_why(
    net: Network, asker: Asker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, audit.LOGGER)
    client = net.connect()
    client.sender("q", name="in")
    name = f"{client.handler.client.id}/0/sender/in"
    asker.ask("DELETE", "link", name, {"reason": "too loud"})
    facts = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    (fact,) = [each for each in facts if each.get("operation") == "DELETE"]
    assert (fact["type"], fact["name"]) == ("link", name)
    assert fact["outcome"] == "detached: too loud"


def test_producers_and_control_links_are_detached(net: Network, asker: Asker) -> None:
    net.declare("q")
    client = net.connect()
    producer = client.sender("q", name="in")
    control = client.session.attach_sender("control", target=Coordinator(), source=Source())
    client.links[control] = coordinator = Sender(client, control)
    net.run()
    for name in ("in", "control"):
        identity = f"{client.handler.client.id}/0/sender/{name}"
        assert asker.ask("DELETE", "link", identity).status == 204
    for link in (producer, coordinator):
        assert link.detached and link.error is not None and link.error.condition == FORCED


def test_who_detaches_his_own_link_is_answered_first(net: Network, asker: Asker) -> None:
    name = f"{asker.client.handler.client.id}/0/sender/{asker.sender.link.name}"
    assert asker.ask("DELETE", "link", name).status == 204
    assert asker.sender.error is not None and asker.sender.error.condition == FORCED


def test_the_links_of_others_are_for_those_who_manage(net: Network) -> None:
    queue = net.declare("q")
    assert isinstance(queue, Queue)
    guard(net, rule("user:ann", "receive", "q"), rule("user:ops", "manage receive", "q"))
    ann, ops = user(net, "ann"), user(net, "ops")
    receiver = ann.client.receiver("q", name="out", credit=1)
    assert ann.ask("LIST-LINKS", "queue", "q").status == 403
    (link,) = links_of(ops, "q")
    assert (link["user"], link["name"]) == ("ann", "out")
    name = str(link["identity"])
    assert ops.ask("DELETE", "link", name).status == 403
    assert not receiver.detached
    assert ann.ask("DELETE", "link", name).status == 204
    assert receiver.detached
