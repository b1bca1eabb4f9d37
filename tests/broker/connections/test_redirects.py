"""Addresses whose nodes are in another container (AMQP 1.0 §2.8.18)."""

from __future__ import annotations

import pytest

from ferrymq_broker.addresses.address_space import AddressRedirect
from ferrymq_codec.scalars import UInt
from tests.broker.harness import Endpoint, Network
from tests.broker.test_termini import refused


@pytest.mark.spec("2.8.18")
@pytest.mark.parametrize("sends", [True, False])
def test_a_link_is_told_where_to_go(net: Network, sends: bool) -> None:
    net.space.redirects["moved"] = AddressRedirect("host.example", "10.0.0.1", 5673, "new-name")
    client = net.connect()
    link: Endpoint = client.sender("moved") if sends else client.receiver("moved")
    assert refused(link, "amqp:link:redirect")
    assert link.error is not None
    assert link.error.info == {
        "hostname": "host.example",
        "network-host": "10.0.0.1",
        "port": 5673,
        "address": "new-name",
    }
    assert isinstance(link.error.info["port"], UInt)
    assert "10.0.0.1:5673" in str(link.error.description)
    assert net.space.nodes == {}


def test_a_node_that_is_here_is_served_here(net: Network) -> None:
    net.declare("moved")
    net.space.redirects["moved"] = AddressRedirect("host.example", "10.0.0.1", 5673, "new-name")
    assert net.connect().sender("moved").link.usable


def test_a_redirected_name_is_found_before_it_is_taken_apart(net: Network) -> None:
    net.declare("news")
    net.space.redirects["news::old"] = AddressRedirect("host.example", "10.0.0.1", 5673, "old-news")
    assert refused(net.connect().receiver("news::old"), "amqp:link:redirect")
    assert refused(net.connect().receiver("news::new"), "amqp:not-found")
