"""Who manages one virtual host neither sees nor touches anything of another."""

from __future__ import annotations

import json

import pytest

from ferrymq.engine.sasl import Plain
from ferrymq_broker.config.model import Config
from ferrymq_broker.management.setup import install
from ferrymq_types.messaging import Source, Target
from tests.broker.access.guarded import condition, is_open
from tests.broker.harness import Client, Network
from tests.broker.lasting import lasting_source
from tests.broker.management.asker import Asker

_EVERYTHING = {"who": "*", "may": "*", "where": ["*", "$*", "dynamic.*"]}


def tenant(name: str) -> dict[str, object]:
    return {"name": name, "hostnames": [f"{name}.example"], "rule": [_EVERYTHING]}


@pytest.fixture
def net() -> Network:
    net = Network()
    hosts = [tenant("acme"), tenant("globex")]
    net.restart(Config.model_validate({"virtual-host": hosts, "rule": [_EVERYTHING]}))
    for space in net.broker.spaces.values():
        install(space, net.broker)
    return net


def client(net: Network, who: str, host: str, container: str = "box") -> Client:
    return net.connect(sasl=Plain(who, "x"), hostname=f"{host}.example", container_id=container)


def test_a_tenant_manages_what_is_his_only(net: Network) -> None:
    theirs = client(net, "acme-user", "acme", "acme-box")
    theirs.sender("acme-queue").send(b"one")
    theirs.receiver(None, name="acme-link", source=lasting_source("acme-queue"))
    theirs.receiver(
        None, name="acme-sub", source=lasting_source("acme-topic", "topic", "shared", "global")
    ).close(closed=False)
    mine = Asker(net, client(net, "root", "globex"))
    rows = mine.query()
    assert "acme" not in json.dumps(rows, default=str)
    assert {row["type"] for row in rows} >= {"org.ferrymq.connection", "org.ferrymq.broker"}
    number = str(theirs.handler.client.id)
    for type, name in (
        ("connection", number),
        ("session", f"{number}/0"),
        ("link", f"{number}/0/receiver/acme-link"),
        ("queue", "acme-queue"),
        ("subscription", "acme-topic::acme-sub"),
        ("terminus", "acme-user@acme-box/out/acme-link"),
        ("virtual-host", "acme"),
    ):
        answer = mine.ask("READ", type, name)
        assert answer.status == 404, (type, answer)
    assert mine.ask("DELETE", "connection", number).status == 404
    assert mine.ask("DELETE", "terminus", "acme-user@acme-box/out/acme-link").status == 404
    assert not theirs.handler.output.over
    # The default one is whose broker it is.
    owner = Asker(net, net.connect(sasl=Plain("root", "x")))
    assert owner.ask("READ", "broker", "broker").map()["virtual-hosts"] == [
        "acme",
        "default",
        "globex",
    ]


def test_the_same_names_in_two_hosts_have_nothing_in_common(net: Network) -> None:
    theirs, mine = client(net, "ann", "acme"), client(net, "ann", "globex")
    first = theirs.receiver(None, name="link", source=lasting_source("q"), credit=1)
    topical = theirs.receiver(None, name="sub", source=lasting_source("t", "topic"), credit=1)
    sending = theirs.sender(None, name="link", target=Target(address="q"))
    assert is_open(mine.receiver(None, name="link", source=lasting_source("q"), credit=1))
    assert is_open(mine.receiver(None, name="sub", source=lasting_source("t", "topic"), credit=1))
    assert is_open(mine.sender(None, name="link", target=Target(address="q")))
    assert is_open(first) and is_open(sending) and is_open(topical)
    mine.sender("q").send(b"for globex")
    assert not first.deliveries
    assert net.broker.spaces["acme"].nodes["q"].message_count() == 0


def test_a_dynamic_node_is_known_in_its_host_only(net: Network) -> None:
    made = client(net, "ann", "acme").receiver(None, source=Source(dynamic=True))
    address = made.remote_source.address
    assert address is not None
    assert is_open(client(net, "bob", "acme", "other").sender(address))
    assert condition(client(net, "bob", "globex").sender(address)) == "amqp:not-found"


def test_a_host_without_rules_is_closed() -> None:
    net = Network()
    hosts = [tenant("acme"), {"name": "globex", "hostnames": ["globex.example"]}]
    net.restart(Config.model_validate({"virtual-host": hosts}))
    told = []
    for name in ("globex", "nowhere"):
        refused = client(net, "ann", name)
        assert refused.closed_with is not None
        text = str(refused.closed_with.description).replace(name, "HOST")
        told.append((refused.closed_with.condition, text))
    assert told[0] == told[1]
