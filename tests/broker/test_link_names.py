"""One name is one link between two containers, whatever its connection (AMQP 1.0 §2.6.1)."""

from __future__ import annotations

import pytest

from ferrymq.engine.sasl import Plain
from tests.broker.harness import Client, Network
from tests.support.known_users import KnownUsers


def stolen(client: Client, link: object) -> bool:
    error = getattr(link, "error", None)
    return error is not None and error.condition == "amqp:link:stolen"


@pytest.mark.spec("2.6.1", "2.5")
def test_another_connection_of_the_container_takes_the_link_over(net: Network) -> None:
    one, two = (net.connect(container_id="worker") for _ in range(2))
    one.sender("q").send(b"a")
    first = one.receiver("q", credit=10, name="link")
    assert first.bodies() == [b"a"]
    second = two.receiver("q", credit=10, name="link")
    assert stolen(one, first) and not first.link.usable
    # What the first one held, and may have seen, comes again.
    assert second.bodies() == [b"a"]
    assert len(net.queue("q").consumers) == 1
    assert one.engine.opened and two.engine.opened


@pytest.mark.spec("2.6.1")
def test_a_producer_is_taken_over_too(net: Network) -> None:
    one, two = (net.connect(container_id="worker") for _ in range(2))
    first = one.sender("q", name="link")
    second = two.sender("q", name="link")
    assert stolen(one, first)
    second.send(b"a")
    assert two.receiver("q", credit=1).bodies() == [b"a"]


@pytest.mark.spec("2.6.1")
def test_links_of_both_directions_are_different(net: Network) -> None:
    one, two = (net.connect(container_id="worker") for _ in range(2))
    sender = one.sender("q", name="link")
    two.receiver("q", name="link")
    assert sender.link.usable


@pytest.mark.spec("2.6.1")
def test_other_containers_have_their_own_names(net: Network) -> None:
    one, two = net.connect(container_id="one"), net.connect(container_id="two")
    first, second = one.sender("q", name="link"), two.sender("q", name="link")
    assert first.link.usable and second.link.usable


def test_nobody_takes_over_the_link_of_another_user() -> None:
    net = Network(authenticator=KnownUsers({"alice": "a", "bob": "b"}, False, True))
    alice = net.connect(container_id="worker", sasl=Plain("alice", "a"))
    bob = net.connect(container_id="worker", sasl=Plain("bob", "b"))
    first, second = alice.sender("q", name="link"), bob.sender("q", name="link")
    assert first.link.usable and second.link.usable


@pytest.mark.spec("2.6.1")
def test_a_refused_link_takes_nothing_over(net: Network) -> None:
    one, two = (net.connect(container_id="worker") for _ in range(2))
    first = one.sender("q", name="link")
    refused = two.sender("$refused", name="link")
    assert refused.detached and first.link.usable


@pytest.mark.parametrize("how", ["close link", "detach", "end", "close", "lose"])
def test_names_are_free_when_their_links_are_gone(net: Network, how: str) -> None:
    client = net.connect(container_id="worker")
    sender, receiver = client.sender("q", name="link"), client.receiver("q", name="link")
    assert len(net.broker.shared.names) == 2
    if how in ("close link", "detach"):
        sender.close(how != "detach")
        receiver.close(how != "detach")
    elif how == "end":
        client.session.end()
        net.run()
    elif how == "close":
        client.close()
    else:
        client.lose()
    assert len(net.broker.shared.names) == 0
