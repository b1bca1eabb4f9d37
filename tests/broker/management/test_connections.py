"""Connections, sessions and links: READ, QUERY, and closing a connection."""

from __future__ import annotations

from ferrymq_types.messaging import Target
from tests.broker.harness import Network, Sender
from tests.broker.management.asker import Asker


def test_connections_are_listed_with_who_they_are(net: Network, asker: Asker) -> None:
    client = net.connect(container_id="worker-7")
    client.begin()
    client.sender("q")
    rows = asker.query("connection")
    assert len(rows) == 2
    worker = next(row for row in rows if row["container-id"] == "worker-7")
    assert (worker["sessions"], worker["links"]) == (2, 1)
    assert (worker["peer"], worker["virtual-host"]) == ("test", "default")
    read = asker.ask("READ", "connection", str(worker["identity"])).map()
    assert read["container-id"] == "worker-7"
    assert read["identity"] == worker["identity"] == str(client.handler.client.id)
    client.close()
    assert asker.ask("READ", "connection", str(worker["identity"])).status == 404
    assert len(asker.query("connection")) == 1


def test_sessions_and_links_are_listed(net: Network, asker: Asker) -> None:
    net.declare("orders")
    client = net.connect()
    client.sender("orders", name="in/out")
    receiver = client.receiver("orders", name="in/out", credit=7)
    number = client.handler.client.id
    sessions = [row for row in asker.query("session") if row["connection"] == str(number)]
    assert [(row["identity"], row["links"]) for row in sessions] == [(f"{number}/0", 2)]
    links = [row for row in asker.query("link") if row["connection"] == str(number)]
    assert [(row["identity"], row["role"], row["address"]) for row in links] == [
        (f"{number}/0/receiver/in/out", "receiver", "orders"),
        (f"{number}/0/sender/in/out", "sender", "orders"),
    ]
    assert (links[0]["credit"], links[0]["name"], links[0]["session"]) == (
        7,
        "in/out",
        f"{number}/0",
    )
    read = asker.ask("READ", "link", f"{number}/0/receiver/in/out").map()
    assert read["source"] == "orders"
    receiver.close()
    assert asker.ask("READ", "link", f"{number}/0/receiver/in/out").status == 404


def test_a_connection_is_closed(net: Network, asker: Asker) -> None:
    client = net.connect()
    client.sender("q")
    answer = asker.ask(
        "DELETE", "connection", str(client.handler.client.id), {"reason": "maintenance at noon"}
    )
    assert answer.status == 204
    assert client.closed_with is not None
    assert client.closed_with.condition == "amqp:connection:forced"
    assert client.closed_with.description == "maintenance at noon"
    assert client.hung_up
    assert len(net.broker.handlers) == 1


def test_who_closes_his_own_connection_is_answered_first(net: Network, asker: Asker) -> None:
    answer = asker.ask("DELETE", "connection", str(asker.client.handler.client.id))
    assert answer.status == 204
    assert asker.client.closed_with is not None
    assert asker.client.closed_with.condition == "amqp:connection:forced"


def test_what_is_not_there(asker: Asker) -> None:
    for type, name in (
        ("connection", "999"),
        ("connection", "x"),
        ("session", "999/0"),
        ("session", "1/7"),
        ("session", "1"),
        ("link", "1"),
        ("link", "1/0/sender/none"),
        ("link", "1/x/sender/none"),
    ):
        assert asker.ask("READ", type, name).status == 404, name
    assert asker.ask("DELETE", "connection", "999").status == 404


def test_the_broker_and_the_virtual_host(net: Network, asker: Asker) -> None:
    net.declare("q")
    broker = asker.ask("READ", "broker", "broker").map()
    assert (broker["product"], broker["connections"]) == ("ferrymq", 1)
    assert broker["virtual-hosts"] == ["default"]
    host = asker.ask("READ", "virtual-host", "default").map()
    assert host["nodes"] == {"queue": 2, "service": 1}
    assert asker.ask("READ", "virtual-host", "other").status == 404
    assert len(asker.query("broker")) == len(asker.query("virtual-host")) == 1


def test_what_a_client_says_of_itself_is_shown_however_strange(net: Network, asker: Asker) -> None:
    client = net.connect()
    deep: object = "core"
    for _ in range(29):
        deep = [deep]
    link = client.session.attach_sender(
        "strange", target=Target(address="q"), properties={"plain": 5, "deep": deep, "none": None}
    )
    client.links[link] = Sender(client, link)
    net.run()
    row = next(row for row in asker.query("link") if row["name"] == "strange")
    properties = row["properties"]
    assert isinstance(properties, dict)
    assert (properties["plain"], properties["none"]) == (5, None)
    assert str(properties["deep"]).startswith("[[[[")
