"""Clients that have not said who they are: none of them takes what it has no right to.

Two devices with tokens of the same key, for different nodes, call themselves and their links the
same.
"""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import (
    Accepted,
    AmqpValue,
    Data,
    Properties,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from ferrymq_types.transactions import Coordinator, Declare, Declared
from tests.broker.access.guarded import UNAUTHORIZED, condition, is_open, lacks
from tests.broker.harness import Client, Network, Receiver, Sender, encode
from tests.broker.lasting import lasting_source, lasting_target
from tests.broker.tokens.bearers import KEY, Bearer, taking


@pytest.fixture
def net() -> Network:
    key = {"name": "shop", "primary": KEY, "may": ["send", "receive"]}
    topics = [{"name": "news"}, {"name": "gossip"}]
    return taking({"security": {"shared-access-key": [key]}, "topic": topics})


def device(net: Network, *scopes: str) -> Client:
    """A client with a token for each of these."""
    bearer = Bearer(net, client=net.connect(container_id="box"))
    for scope in scopes:
        bearer.put_for(scope)
    return bearer.client


def recall(client: Client, name: str) -> Receiver:
    """Attach a link by its name alone."""
    receiver = Receiver(client, client.session.attach_receiver(name, source=None, target=Target()))
    client.links[receiver.link] = receiver
    client.net.run()
    return receiver


def test_a_link_is_not_ended_by_who_may_use_another_node_only(net: Network) -> None:
    owner, thief = device(net, "q1"), device(net, "q2")
    receiving = owner.receiver("q1", name="link", credit=1)
    sending = owner.sender("q1", name="link")
    assert is_open(thief.receiver("q2", name="link"))
    assert is_open(thief.sender("q2", name="link"))
    assert is_open(device(net, "q2").sender(None, name="link"))
    assert is_open(receiving) and is_open(sending)
    sending.send(b"one")
    assert receiving.bodies() == [b"one"]


def test_who_may_use_the_node_takes_the_link_over(net: Network) -> None:
    """As a client does that comes back before its lost connection is noticed."""
    receiving = device(net, "q1").receiver("q1", name="link")
    sending = device(net, "q1").sender("q1", name="link")
    assert is_open(receiving) and is_open(sending)
    again = device(net, "q1")
    assert is_open(again.receiver("q1", name="link")) and is_open(again.sender("q1", name="link"))
    assert condition(receiving) == condition(sending) == "amqp:link:stolen"


def test_a_control_link_ends_no_link_and_is_ended_by_none(net: Network) -> None:
    def control(client: Client) -> Sender:
        link = client.session.attach_sender("link", target=Coordinator(), source=Source())
        sender = client.links[link] = Sender(client, link)
        net.run()
        return sender

    sending = device(net, "q1").sender("q1", name="link")
    controlling = control(device(net, "q2"))
    declared = controlling.send_encoded(encode(AmqpValue(Declare())))
    assert is_open(sending)
    assert is_open(device(net, "q3").sender("q3", name="link"))
    assert is_open(control(device(net, "q3")))
    assert is_open(controlling) and isinstance(declared.remote_state, Declared)


def test_what_is_sent_again_is_not_taken_for_what_somebody_else_has_sent(net: Network) -> None:
    once: dict[str, object] = {"delivery-mode": "exactly-once"}

    def send(sender: Sender, tag: bytes, to: str | None = None) -> object:
        delivery = sender.link.send(encode(Properties(to=to), Data(value=b"x")), tag=tag)
        net.run()
        return delivery.remote_state

    for address in ("q2", None):
        thief = device(net, "q2")
        assert send(thief.sender(address, name="link", properties=once), b"1", "q2") == Accepted()
        thief.lose()
    owner = device(net, "q1")
    assert send(owner.sender("q1", name="link", properties=once), b"1") == Accepted()
    assert send(owner.sender(None, name="to", properties=once), b"2", "q1") == Accepted()
    owner.lose()
    assert net.queue("q1").message_count() == 2
    # His own are known again where there is something to know him by.
    owner = device(net, "q1")
    assert send(owner.sender("q1", name="link", properties=once), b"1") == Accepted()
    assert net.queue("q1").message_count() == 2


def test_what_a_receiver_has_left_is_not_ended_by_who_may_not_receive_there(net: Network) -> None:
    owner = device(net, "q1")
    owner.sender("q1").send(b"one")
    first = owner.receiver("q1", name="link", source=lasting_source("q1"), credit=1)
    assert first.bodies() == [b"one"]
    owner.lose()
    thief = device(net, "q2")
    for source in (lasting_source("q2"), Source(address="q2")):
        assert condition(thief.receiver(None, name="link", source=source)) == UNAUTHORIZED
    # And it hears nothing of it.
    refused = recall(thief, "link")
    none = recall(thief, "another")
    assert condition(refused) == condition(none) == "amqp:not-found"
    assert refused.error is not None and none.error is not None
    assert refused.error.description == none.error.description
    (terminus,) = net.broker.shared.termini.of("default")
    assert terminus.unsettled() == 1
    assert is_open(device(net, "q1").receiver("q1", name="link", source=lasting_source("q1")))
    assert terminus.attached


def test_what_a_sender_has_left_is_not_ended_by_who_may_not_send_there(net: Network) -> None:
    owner = device(net, "q1")
    assert is_open(owner.sender(None, name="link", target=lasting_target("q1")))
    owner.lose()
    thief = device(net, "q2")
    assert condition(thief.sender("q2", name="link")) == UNAUTHORIZED
    assert len(net.broker.shared.termini) == 1
    # Where each message names its own address there is nothing to tell one from the other by.
    anonymous = thief.sender(None, name="free", target=lasting_target(None))
    assert anonymous.remote_target.durable is TerminusDurability.NONE
    assert anonymous.remote_target.expiry_policy is TerminusExpiryPolicy.LINK_DETACH
    assert len(net.broker.shared.termini) == 1


def test_a_subscription_does_not_give_way_to_one_of_somebody_elses(net: Network) -> None:
    owner = device(net, "news")
    for name, capabilities in (("own", ()), ("everybodys", ("shared", "global"))):
        source = lasting_source("news", *capabilities)
        assert is_open(owner.receiver(None, name=name, source=source))
    owner.lose()
    device(net, "news").sender("news").send(b"one")
    thief = device(net, "gossip")
    assert lacks(thief.receiver(None, name="own", source=lasting_source("gossip"))) == (
        "receive at 'box/own'"
    )
    everybodys = lasting_source("gossip", "shared", "global")
    assert lacks(thief.receiver(None, name="everybodys", source=everybodys)) == (
        "receive at 'everybodys'"
    )
    again = device(net, "news")
    assert again.receiver(None, name="own", source=lasting_source("news"), credit=1).bodies() == [
        b"one"
    ]
    source = lasting_source("news", "shared", "global")
    taken = again.receiver(None, name="everybodys", source=source, credit=1)
    assert taken.bodies() == [b"one"]


def test_a_topic_is_not_told_to_who_knows_the_name_of_a_subscription(
    net: Network, caplog: pytest.LogCaptureFixture
) -> None:
    owner = device(net, "news")
    source = lasting_source("news", "shared", "global")
    assert is_open(owner.receiver(None, name="everybodys", source=source))
    owner.lose()
    thief = device(net, "gossip")
    refused, none = recall(thief, "everybodys|1"), recall(thief, "none|1")
    assert condition(refused) == condition(none) == "amqp:not-found"
    assert refused.error is not None and none.error is not None
    assert refused.error.description == none.error.description
    assert "at 'news' is not allowed" in caplog.text
    found = recall(device(net, "news"), "everybodys|1")
    assert is_open(found) and found.remote_source.address == "news"
