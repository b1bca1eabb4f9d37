"""Links whose rights are gone: they are told so, what they held goes back, others stay."""

from __future__ import annotations

import pytest

from ferrymq_broker.access.grants import Grant
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.patterns import AddressPattern
from ferrymq_broker.access.rules import ANYBODY, Rule, Subject, bind_rules
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_broker.values.rights import ALL
from ferrymq_types.messaging import (
    Accepted,
    Source,
)
from tests.broker.access.guarded import UNAUTHORIZED, is_open, lacks, rejected, send_to
from tests.broker.harness import Client, Network
from tests.broker.lasting import lasting_source, lasting_target
from tests.broker.transactions.kit import Controller, post


@pytest.fixture
def net() -> Network:
    net = Network()
    net.broker.guarded = True
    net.broker.takes_tokens = True
    net.declare("kept", QueuePolicy())
    return net


def bearer(net: Network, *scopes: str) -> Client:
    """A client with a token for each of these, and a session."""
    client = net.connect(container_id="box")
    for scope in scopes:
        token = UserIdentity(None, expires=100.0)
        every = Rule([Subject(ANYBODY)], ALL, 0, [AddressPattern("*"), AddressPattern("dynamic.*")])
        client.handler.client.access.put_grant(Grant(scope, token, bind_rules([every], token)))
    return client


def lapse(client: Client, at: float = 100.0) -> int:
    """The time of its tokens is over."""
    net = client.net
    net.broker.begin_pass(net.now)
    client.handler.client.access.expire_grants(at)
    gone = client.handler.links.reauthorize()
    net.finish()
    return gone


def test_links_end_with_their_rights_and_others_stay(net: Network) -> None:
    client = bearer(net, "a", "b")
    kept = UserIdentity(None)
    every = Rule([Subject(ANYBODY)], ALL, 0, [AddressPattern("*")])
    client.handler.client.access.put_grant(Grant("kept", kept, bind_rules([every], kept)))
    mine = [client.sender("kept"), client.receiver("kept")]
    gone = [client.sender("a"), client.receiver("b"), client.receiver("b", mode="copy")]
    assert all(is_open(link) for link in (*mine, *gone))
    assert lapse(client, 99.0) == 0 and all(is_open(link) for link in (*mine, *gone))
    assert lapse(client) == 3
    assert [lacks(link) for link in gone] == ["send at 'a'", "receive at 'b'", "browse at 'b'"]
    assert all(is_open(link) for link in mine)
    assert lapse(client) == 0


def test_what_they_held_goes_back(net: Network) -> None:
    client = bearer(net, "q")
    client.sender("q").send(b"one", b"two")
    receiver = client.receiver("q", credit=10)
    assert len(receiver.take()) == 2
    lapse(client)
    queue = net.queue("q")
    assert (queue.available, queue.acquired) == (2, 0)
    # Nobody has failed: they come as if for the first time.
    again = bearer(net, "q").receiver("q", credit=10)
    assert again.bodies() == [b"one", b"two"]


def test_what_is_settled_afterwards_changes_nothing(net: Network) -> None:
    client = bearer(net, "q")
    client.sender("q").send(b"one")
    receiver = client.receiver("q", credit=10)
    (delivery,) = receiver.take()
    net.broker.begin_pass(net.now)
    client.handler.client.access.expire_grants(100.0)
    client.handler.links.reauthorize()
    # The client has not heard of it yet.
    delivery.settle(Accepted())
    net.finish()
    assert net.queue("q").available == 1


@pytest.mark.spec("4.4.1")
def test_a_transaction_does_not_outlive_them(net: Network) -> None:
    client = bearer(net, "q")
    control, sender = Controller(client), client.sender("q")
    txn = control.declare()
    post(sender, txn, b"posted before")
    lapse(client)
    # What was taken in when it was allowed is committed.
    control.commit(txn)
    assert net.queue("q").message_count() == 1


def test_messages_that_name_their_address_are_asked_about_anew(net: Network) -> None:
    client = bearer(net, "q")
    net.declare("q")
    sender = client.sender(None)
    assert send_to(sender, "q").remote_state == Accepted()
    assert lapse(client) == 0
    assert is_open(sender) and rejected(send_to(sender, "q")) == UNAUTHORIZED


def test_a_subscription_is_there_when_its_owner_comes_with_a_better_token(net: Network) -> None:
    topic = net.space.create("news", TopicPolicy())
    assert isinstance(topic, Topic)
    client = bearer(net, "news")
    source = lasting_source("news")
    receiver = client.receiver("news", name="sub", source=source)
    lapse(client)
    assert lacks(receiver) == "receive at 'news'"
    bearer(net, "news").sender("news").send(b"meanwhile")
    again = bearer(net, "news").receiver("news", name="sub", source=source)
    again.credit(10)
    assert again.bodies() == [b"meanwhile"]


def test_a_target_that_outlives_its_links_outlives_this(net: Network) -> None:
    client = bearer(net, "q")
    net.declare("q")
    target = lasting_target("q")
    sender = client.sender("q", name="pub", target=target)
    before = len(net.broker.shared.termini)
    lapse(client)
    assert lacks(sender) == "send at 'q'"
    assert len(net.broker.shared.termini) == before == 1


def test_a_node_of_ones_own_stays_ones_own(net: Network) -> None:
    client = bearer(net, "")
    mine = client.receiver(None, source=Source(dynamic=True))
    assert is_open(mine)
    assert lapse(client) == 0 and is_open(mine)


def test_without_rules_nobody_is_reviewed() -> None:
    net = Network()
    client = net.connect()
    link = client.sender("q")
    assert client.handler.client.access.open and lapse(client) == 0 and is_open(link)


def test_a_connection_with_many_sessions_is_reviewed_whole(net: Network) -> None:
    client = bearer(net, "q")
    links = [client.sender("q", session=client.begin()) for _ in range(3)]
    assert lapse(client) == 3
    assert [lacks(link) for link in links] == ["send at 'q'"] * 3
