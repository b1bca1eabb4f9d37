"""Virtual hosts by the hostname of the open (AMQP 1.0 §2.7.1)."""

from __future__ import annotations

import pytest

from tests.broker.harness import Client, Network


@pytest.fixture
def net() -> Network:
    net = Network()
    net.broker.add_space("blue", ["blue.example", "b.example"], 10)
    net.broker.add_space("red", [], 10)
    return net


def host_of(client: Client) -> str:
    assert client.engine.opened
    return client.handler.client.space.name


@pytest.mark.spec("2.7.1")
@pytest.mark.parametrize(
    ("hostname", "name"),
    [
        ("blue.example", "blue"),
        ("B.Example", "blue"),
        ("vhost:blue", "blue"),
        ("vhost:red", "red"),
        ("vhost:default", "default"),
        ("localhost", "default"),
        ("", "default"),
        (None, "default"),
    ],
)
def test_the_hostname_leads_to_a_virtual_host(
    net: Network, hostname: str | None, name: str
) -> None:
    assert host_of(net.connect(hostname=hostname)) == name


def test_virtual_hosts_have_nothing_in_common(net: Network) -> None:
    blue, red = net.connect(hostname="vhost:blue"), net.connect(hostname="vhost:red")
    blue.sender("q").send(b"blue")
    red.sender("q").send(b"red")
    assert blue.receiver("q", credit=9).bodies() == [b"blue"]
    assert red.receiver("q", credit=9).bodies() == [b"red"]
    assert net.space.nodes == {}


def test_names_of_links_are_those_of_a_virtual_host(net: Network) -> None:
    links = [
        net.connect(hostname=f"vhost:{name}", container_id="worker").receiver("q", name="link")
        for name in ("blue", "red")
    ]
    assert all(link.link.usable for link in links)


@pytest.mark.parametrize(("hostname", "strict"), [("vhost:green", False), ("other", True)])
def test_an_unknown_host_is_told_so(net: Network, hostname: str, strict: bool) -> None:
    net.broker.strict_hosts = strict
    client = net.connect(hostname=hostname)
    assert client.closed_with is not None
    assert client.closed_with.condition == "amqp:not-found"
    assert hostname in str(client.closed_with.description)
    assert client.hung_up and not net.broker.handlers


def test_strict_hosts_still_have_a_default_for_who_says_nothing(net: Network) -> None:
    net.broker.strict_hosts = True
    assert host_of(net.connect()) == "default"
    assert host_of(net.connect(hostname="Default")) == "default"
    assert host_of(net.connect(hostname="blue.example")) == "blue"


def test_names_are_given_once(net: Network) -> None:
    with pytest.raises(ValueError, match="blue"):
        net.broker.add_space("blue", [], 10)
    with pytest.raises(ValueError, match=r"B\.example"):
        net.broker.add_space("green", ["B.example"], 10)
    assert "green" not in net.broker.spaces
