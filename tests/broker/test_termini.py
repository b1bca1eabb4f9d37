"""What a link asks for on attach, and what it is told it got (AMQP 1.0 §3.5)."""

from __future__ import annotations

import pytest

from ferrymq_codec.scalars import Described, Symbol
from ferrymq_types.messaging import (
    Data,
    DeleteOnNoLinks,
    Properties,
    Rejected,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from ferrymq_types.registry import typed
from tests.broker.harness import Endpoint, Network
from tests.broker.lasting import lasting_source

OUTCOMES = [
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
]


def refused(endpoint: Endpoint, condition: str) -> bool:
    """Attached with a null terminus, then closed with this condition (AMQP 1.0 §2.6.3)."""
    assert endpoint.attached and endpoint.detached
    assert endpoint.error is not None
    assert endpoint.error.description
    return endpoint.error.condition == condition


@pytest.mark.parametrize("address", ["q", "amqp://host/q?x", "/queue/ä€𝄞", " ", "a" * 1024])
def test_addresses_come_back_verbatim(net: Network, address: str) -> None:
    client = net.connect()
    assert client.sender(address).remote_target.address == address
    receiver = client.receiver(address)
    assert receiver.remote_source.address == address
    assert receiver.remote_source.outcomes == OUTCOMES


def test_the_other_terminus_is_the_clients(net: Network) -> None:
    client = net.connect()
    link = client.session.attach_sender("s", target=Target(address="q"), source=None)
    receiver = client.session.attach_receiver("r", source=Source(address="q"), target=None)
    client.links = {link: Endpoint(client, link), receiver: Endpoint(client, receiver)}
    net.run()
    assert link.remote_attach is not None and receiver.remote_attach is not None
    assert link.remote_attach.source is None
    assert link.remote_attach.target == Target(
        address="q", expiry_policy=TerminusExpiryPolicy.LINK_DETACH
    )
    # What a receiver does with its messages is for the receiver to say (AMQP 1.0 §2.6.3).
    assert receiver.remote_attach.target is None
    assert isinstance(receiver.remote_attach.source, Source)
    assert receiver.remote_attach.max_message_size == net.max_message_size
    assert link.remote_attach.max_message_size == net.max_message_size


def test_what_is_not_done_does_not_come_back(net: Network) -> None:
    receiver = net.connect().receiver(
        None,
        source=lasting_source(
            "q",
            "queue",
            "shared",
            timeout=3600,
            filter={"colour": Described(Symbol("example:colour-filter:string"), "blue")},
        ),
    )
    source = receiver.remote_source
    assert source.filter is None
    assert source.durable is TerminusDurability.NONE
    assert source.expiry_policy is TerminusExpiryPolicy.LINK_DETACH
    assert source.timeout == 0
    assert source.capabilities == ["queue"]


def test_a_link_without_source_or_target_is_refused(net: Network) -> None:
    client = net.connect()
    no_address = client.receiver(None, source=Source())
    assert refused(no_address, "amqp:invalid-field")
    empty = client.receiver("")
    assert refused(empty, "amqp:invalid-field")
    link = client.session.attach_receiver("r", source=None)
    client.links[link] = null = Endpoint(client, link)
    net.run()
    assert refused(null, "amqp:not-found")
    sender = client.session.attach_sender("s", target=None)
    client.links[sender] = null = Endpoint(client, sender)
    net.run()
    assert refused(null, "amqp:invalid-field")


def test_unknown_nodes_are_refused_without_auto_create() -> None:
    net = Network(auto_create=False)
    net.declare("known")
    client = net.connect()
    assert refused(client.sender("unknown"), "amqp:not-found")
    assert refused(client.receiver("unknown"), "amqp:not-found")
    client.sender("known").send(b"x")
    assert client.receiver("known", credit=1).bodies() == [b"x"]
    assert list(net.space.nodes) == ["known"]


@pytest.mark.parametrize("address", ["$management", "$cbs"])
def test_special_addresses_are_never_made_queues(net: Network, address: str) -> None:
    assert refused(net.connect().sender(address), "amqp:not-found")


def test_an_endless_address_is_refused(net: Network) -> None:
    assert refused(net.connect().sender("a" * 1025), "amqp:invalid-field")


def test_the_number_of_nodes_is_limited() -> None:
    net = Network(max_nodes=3)
    client = net.connect()
    for name in "abc":
        client.sender(name)
    assert refused(client.sender("d"), "amqp:resource-limit-exceeded")
    assert refused(
        client.receiver(None, source=Source(dynamic=True)), "amqp:resource-limit-exceeded"
    )
    assert client.sender("a").link.credit > 0


def test_a_refused_link_leaves_the_session_as_it_was(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    assert refused(client.sender("$nothing"), "amqp:not-found")
    sender.send(b"x")
    assert client.receiver("q", credit=1).bodies() == [b"x"]


@pytest.mark.spec("2.6.1")
def test_one_name_serves_a_link_in_each_direction(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q", name="same")
    receiver = client.receiver("q", credit=1, name="same")
    sender.send(b"x")
    assert receiver.bodies() == [b"x"]


def test_a_name_is_free_again_after_detach(net: Network) -> None:
    client = net.connect()
    for _ in range(3):
        sender = client.sender("q", name="again")
        sender.send(b"x")
        sender.close(closed=False)
        assert sender.attached
    assert net.queue("q").available == 3


# -- dynamic nodes ---------------------------------------------------------------------


@pytest.mark.spec("3.5.3")
def test_a_dynamic_source_carries_replies(net: Network) -> None:
    client, server = net.connect(), net.connect()
    replies = client.receiver(None, source=Source(dynamic=True), credit=10)
    address = replies.remote_source.address
    assert address is not None and replies.remote_source.dynamic
    server.sender(address).send(b"reply")
    assert replies.bodies() == [b"reply"]


def test_a_dynamic_target_has_an_address_to_receive_from(net: Network) -> None:
    client = net.connect()
    sender = client.sender(None, target=Target(dynamic=True))
    assert sender.remote_target.dynamic
    sender.send(b"x")
    assert client.receiver(sender.remote_target.address, credit=1).bodies() == [b"x"]


def test_dynamic_addresses_cannot_be_guessed(net: Network) -> None:
    client = net.connect()
    addresses = {
        str(client.receiver(None, source=Source(dynamic=True)).remote_source.address)
        for _ in range(50)
    }
    assert len(addresses) == 50
    assert all(len(address) >= 24 for address in addresses)


@pytest.mark.spec("3.5.10")
def test_the_answer_names_the_lifetime_the_node_really_has(net: Network) -> None:
    receiver = net.connect().receiver(
        None,
        source=Source(dynamic=True, dynamic_node_properties={"lifetime-policy": DeleteOnNoLinks()}),
    )
    properties = receiver.remote_source.dynamic_node_properties
    assert properties is not None
    policy = properties["lifetime-policy"]
    assert isinstance(policy, Described)
    assert typed(policy) == DeleteOnNoLinks()


@pytest.mark.parametrize("how", ["close", "end session", "lose"])
def test_a_dynamic_node_goes_with_its_link(net: Network, how: str) -> None:
    owner, other = net.connect(), net.connect()
    receiver = owner.receiver(None, source=Source(dynamic=True))
    address = receiver.remote_source.address
    sender = other.sender(address)
    reader = other.receiver(address, mode="copy")
    sender.send(b"unread")
    if how == "close":
        receiver.close()
    elif how == "end session":
        owner.session.end()
        net.run()
    else:
        owner.lose()
    assert address not in net.space.nodes
    for link in (sender, reader):
        assert link.detached
        assert link.error is not None and link.error.condition == "amqp:resource-deleted"
    assert other.sender("q").link.credit > 0


def test_nodes_that_were_not_made_for_a_link_stay(net: Network) -> None:
    client = net.connect()
    sender = client.sender("q")
    sender.send(b"x")
    sender.close()
    client.close()
    assert net.queue("q").available == 1
    assert net.queue("q").producers == {}


# -- the anonymous terminus --------------------------------------------------------------


def test_messages_without_a_target_go_where_they_say(net: Network) -> None:
    client = net.connect()
    relay = client.sender(None)
    assert relay.remote_target.address is None
    relay.send_sections(Properties(to="a"), Data(value=b"for a"))
    relay.send_sections(Properties(to="b"), Data(value=b"for b"))
    assert client.receiver("a", credit=10).bodies() == [b"for a"]
    assert client.receiver("b", credit=10).bodies() == [b"for b"]


@pytest.mark.parametrize("to", [None, "", "$nowhere"])
def test_a_message_that_goes_nowhere_is_rejected(net: Network, to: str | None) -> None:
    client = net.connect()
    relay = client.sender(None)
    delivery = relay.send_sections(Properties(to=to), Data(value=b"x"))
    assert isinstance(delivery.remote_state, Rejected)
    assert delivery.remote_state.error is not None
    assert delivery.remote_state.error.condition in ("amqp:not-found", "amqp:invalid-field")
    assert not relay.detached


def test_a_presettled_message_that_goes_nowhere_costs_the_link(net: Network) -> None:
    client = net.connect()
    relay = client.sender(None)
    relay.send_sections(Data(value=b"x"), settled=True)
    assert relay.error is not None and relay.error.condition == "amqp:not-found"
