"""Dynamic nodes: everybody who knows the address may send, who made one takes messages out."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Accepted, DeleteOnNoLinksOrMessages, Source, Target
from tests.broker.access.guarded import (
    UNAUTHORIZED,
    condition,
    is_open,
    lacks,
    rejected,
    send_to,
    user,
)
from tests.broker.harness import Client, Network, Receiver

RULES = """
[[rule]]
who = "user:mute"
may-not = "send"
where = "dynamic.*"

[[rule]]
who = ["user:ann", "user:bob", "user:mute"]
may = "create"
where = "dynamic.*"

[[rule]]
who = "user:guard"
may = ["receive", "browse"]
where = "dynamic.*"

[[rule]]
who = "user:stranger"
may = "*"
where = "*"
"""


def dynamic(client: Client, **properties: object) -> Receiver:
    return client.receiver(None, source=Source(dynamic=True, **properties))  # type: ignore[arg-type]


def address_of(receiver: Receiver) -> str:
    assert receiver.remote_source.address is not None
    return receiver.remote_source.address


@pytest.mark.spec("3.5.3")
def test_to_make_one_takes_create_there(net: Network) -> None:
    before = set(net.space.nodes)
    # All nodes are not the broker's own.
    stranger = user(net, "stranger")
    assert lacks(dynamic(stranger)) == "create at 'dynamic.*'"
    target = Target(dynamic=True)
    assert lacks(stranger.sender(None, target=target)) == "create at 'dynamic.*'"
    assert set(net.space.nodes) == before
    ann = user(net, "ann")
    assert is_open(dynamic(ann)) and is_open(ann.sender(None, target=target))


def test_who_knows_the_address_may_send(net: Network) -> None:
    receiver = dynamic(user(net, "ann"))
    receiver.credit(10)
    address = address_of(receiver)
    for name in ("stranger", "bob"):
        client = user(net, name)
        client.sender(address).send(b"by its link")
        assert send_to(client.sender(None), address).remote_state == Accepted()
    assert len(receiver.deliveries) == 4


def test_unless_a_rule_says_no(net: Network) -> None:
    address = address_of(dynamic(user(net, "ann")))
    mute = user(net, "mute")
    assert lacks(mute.sender(address)) == f"send at '{address}'"
    assert rejected(send_to(mute.sender(None), address)) == UNAUTHORIZED
    # To take messages out of his own is another matter.
    assert is_open(dynamic(mute))


def test_nobody_else_takes_messages_out(net: Network) -> None:
    ann = user(net, "ann")
    address = address_of(dynamic(ann))
    for name in ("bob", "stranger", "ann"):
        # Not even the same user, by another connection.
        client = user(net, name)
        assert lacks(client.receiver(address)) == f"receive at '{address}'"
        assert lacks(client.receiver(address, mode="copy")) == f"browse at '{address}'"
    assert is_open(ann.receiver(address)) and is_open(ann.receiver(address, mode="copy"))
    # A rule may say more.
    guard = user(net, "guard")
    assert is_open(guard.receiver(address, mode="copy")) and is_open(guard.receiver(address))


def test_a_node_that_outlives_its_connection_is_nobodys(net: Network) -> None:
    ann = user(net, "ann")
    sender = ann.sender(
        None,
        target=Target(
            dynamic=True,
            dynamic_node_properties={"lifetime-policy": DeleteOnNoLinksOrMessages()},
        ),
    )
    sender.send(b"x")
    address = sender.remote_target.address
    assert address is not None
    ann.close()
    assert lacks(user(net, "ann").receiver(address)) == f"receive at '{address}'"
    assert is_open(user(net, "guard").receiver(address))


def test_an_alias_leads_to_no_others_node(net: Network) -> None:
    address = address_of(dynamic(user(net, "ann")))
    net.space.set_alias("known", address)
    assert lacks(user(net, "stranger").receiver("known")) == "receive at 'known'"
    assert is_open(user(net, "bob").sender("known"))


def test_an_address_that_was_never_given_out(net: Network) -> None:
    assert condition(user(net, "bob").sender("dynamic.guess")) == "amqp:not-found"
    assert lacks(user(net, "bob").receiver("dynamic.guess")) == "receive at 'dynamic.guess'"
