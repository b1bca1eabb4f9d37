"""Subscriptions: nobody gets at those of others by knowing what they are called."""

from __future__ import annotations

import pytest

from ferrymq_broker.access.patterns import AddressPattern
from ferrymq_broker.access.rules import USER, Rule, Subject
from ferrymq_broker.nodes.topics.subscription_identity import is_open_to
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.rights import SEND
from ferrymq_types.messaging import Source, Target, TerminusDurability, TerminusExpiryPolicy
from tests.broker.access.guarded import condition, guarded, is_open, lacks, user
from tests.broker.harness import Client, Network, Receiver

RULES = """
[[topic]]
name = "news"

[[queue]]
name = "private"

[[rule]]
who = "user:overseer"
may = "manage"
where = "news::*"

[[rule]]
who = ["user:ann", "user:bob", "user:overseer", "anonymous"]
may = ["receive", "browse", "send"]
where = "news"
"""


def durable(address: str | None, **fields: object) -> Source:
    return Source(
        address=address,
        durable=TerminusDurability.UNSETTLED_STATE,
        expiry_policy=TerminusExpiryPolicy.NEVER,
        **fields,  # type: ignore[arg-type]
    )


def subscribe(client: Client, **fields: object) -> Receiver:
    receiver = client.receiver("news", name="sub", source=durable("news", **fields))
    assert is_open(receiver)
    return receiver


def recall(client: Client) -> Receiver:
    """Attach the link by its name alone."""
    receiver = Receiver(client, client.session.attach_receiver("sub", source=None, target=Target()))
    client.links[receiver.link] = receiver
    client.net.run()
    return receiver


def name_of(net: Network) -> str:
    topic = net.space.nodes["news"]
    assert isinstance(topic, Topic)
    (subscription,) = topic.subscriptions()
    return subscription.name


def test_a_subscription_is_taken_from_by_its_user(net: Network) -> None:
    ann = user(net, "ann", container_id="desk")
    subscribe(ann).close(closed=False)
    address = f"news::{name_of(net)}"
    assert address == "news::ann@desk/sub"
    user(net, "bob").sender("news").send(b"for ann")
    bob = user(net, "bob", container_id="desk")
    for mode in ("move", "copy"):
        assert lacks(bob.receiver(address, mode=mode)) == f"manage at '{address}'"
        # One that is not there is refused with the same words.
        other = "news::ann@desk/none"
        assert lacks(bob.receiver(other, mode=mode)) == f"manage at '{other}'"
    net.space.set_alias("hers", address)
    assert lacks(bob.receiver("hers")) == "manage at 'hers'"
    assert user(net, "ann").receiver(address, credit=1, mode="copy").bodies() == [b"for ann"]


def test_who_manages_may_look_into_all_of_them(net: Network) -> None:
    subscribe(user(net, "ann", container_id="desk")).close(closed=False)
    user(net, "bob").sender("news").send(b"for ann")
    overseer = user(net, "overseer")
    assert overseer.receiver("news::ann@desk/sub", credit=1).bodies() == [b"for ann"]


def test_a_name_is_a_name_for_each_user(net: Network) -> None:
    subscribe(user(net, "ann", container_id="desk")).close(closed=False)
    user(net, "bob").sender("news").send(b"for ann")
    # The same container, the same link, another user: another subscription.
    bob = user(net, "bob", container_id="desk")
    assert condition(recall(bob)) == "amqp:not-found"
    receiver = bob.receiver("news", name="sub", source=durable("news"))
    receiver.credit(10)
    assert receiver.bodies() == []


@pytest.mark.spec("2.6.1")
def test_a_link_is_stolen_by_its_own_user_only(net: Network) -> None:
    mine = subscribe(user(net, "ann", container_id="desk"))
    subscribe(user(net, "bob", container_id="desk"))
    assert is_open(mine)
    again = user(net, "ann", container_id="desk").receiver(
        "news", name="sub", source=durable("news")
    )
    assert is_open(again) and mine.detached


@pytest.mark.spec("2.6.13")
def test_what_comes_back_without_saying_so_is_asked_about(net: Network) -> None:
    subscribe(user(net, "ann", container_id="desk")).close(closed=False)
    assert is_open(recall(user(net, "ann", container_id="desk")))
    # Before she comes back once more, she has lost what she might.
    net.space.rules[:] = [Rule([Subject(USER, "ann")], SEND, 0, [AddressPattern("news")])]
    assert lacks(recall(user(net, "ann", container_id="desk"))) == "receive at 'news'"
    topic = net.space.nodes["news"]
    assert isinstance(topic, Topic) and len(topic.subscriptions()) == 1


@pytest.mark.parametrize(
    ("name", "to", "open"),
    [
        ("everybodys", "ann", True),
        ("everybodys", None, True),
        ("~/everybodys", "ann", True),
        ("~/everybodys", None, True),
        ("0", "ann", True),
        ("~1", "ann", False),
        ("~1", None, False),
        ("ann@desk/sub", "ann", True),
        ("~ann@desk/sub", "ann", True),
        ("ann@desk/sub/x@y", "ann", True),
        ("ann@desk/sub", "an", False),
        ("ann@desk/sub", None, False),
        ("desk/sub", None, True),
        ("desk/sub", "desk", False),
        ("desk/ann@sub", "ann", False),
        ("a%40b@desk/sub", "a@b", True),
        ("a%40b@desk/sub", "a", False),
        ("a%3A%3Ab@desk/sub", "a::b", True),
    ],
)
def test_whose_a_subscription_of_a_name_would_be(name: str, to: str | None, open: bool) -> None:
    assert is_open_to(name, to) == open


NAMED = """
[[topic]]
name = "news"

[[rule]]
who = "user:ann"
may = "receive"
where = "news::ann@desk/*"

[[rule]]
who = ["user:ann", "user:bob"]
may-not = "receive"
where = "news::secret"

[[rule]]
who = "*"
may = "receive"
where = "news"
"""


@pytest.mark.parametrize("capabilities", [[], ["shared"], ["shared", "global"]], ids=str)
@pytest.mark.parametrize(
    ("name", "container", "link", "allowed"),
    [
        ("bob", "desk", "secret", False),
        ("bob", "desk", "other", True),
        ("cy", "desk", "secret", True),
        # The first rule decides that is about either of the names it has.
        ("ann", "desk", "secret", True),
        ("ann", "box", "secret", False),
    ],
)
def test_a_rule_is_about_the_name_that_the_link_has(
    name: str, container: str, link: str, allowed: bool, capabilities: list[str]
) -> None:
    net = guarded(NAMED)
    client = user(net, name, container_id=container)
    source = durable("news", capabilities=capabilities)
    receiver = client.receiver("news", name=link, source=source)
    if name == "ann" and capabilities == ["shared", "global"]:
        # It is nobody's own.
        allowed = False
    assert is_open(receiver) == allowed
    if not allowed:
        assert condition(receiver) == "amqp:unauthorized-access"
