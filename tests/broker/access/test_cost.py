"""What rights cost: a link is asked about once, and its messages never again."""

from __future__ import annotations

from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_types.messaging import Accepted
from tests.broker.access.guarded import guarded, is_open, lacks, send_to, user
from tests.broker.harness import Network

RULES = """
[[queue]]
name = "q"

[[rule]]
who = "*"
may = ["send", "receive"]
where = "q"
"""


def take_back(access: ConnectionAccess) -> None:
    """Whatever is asked from now on is refused."""
    access._rules.rules.clear()
    access._known.clear()


def test_messages_of_a_link_to_an_address_are_not_asked_about() -> None:
    net = guarded(RULES)
    ann = user(net, "ann")
    sender, receiver = ann.sender("q"), ann.receiver("q", credit=100)
    take_back(ann.handler.client.access)
    sent = sender.send(*[b"x"] * 50)
    assert [delivery.remote_state for delivery in sent] == [Accepted()] * 50
    receiver.settle(Accepted())
    assert net.queue("q").message_count() == 0
    assert not ann.handler.client.access._known
    # It is asked for links, as it ever was.
    assert lacks(ann.sender("q")) == "send at 'q'"


def test_without_rules_nothing_is_asked_at_all() -> None:
    net = Network()
    client = net.connect()
    access = client.handler.client.access
    sender, receiver, anywhere = client.sender("q"), client.receiver("q"), client.sender(None)
    receiver.credit(100)
    sender.send(*[b"x"] * 20)
    for _ in range(20):
        assert send_to(anywhere, "q").remote_state == Accepted()
    assert len(receiver.deliveries) == 40
    assert access.open and not access._known


def test_a_hundred_thousand_boxes_cost_an_attach_nothing() -> None:
    net = guarded(RULES)
    boxes = net.space.dead_letter_index
    boxes.add([f"dead.{number}" for number in range(100_000)])
    assert boxes.has("dead.5") and not boxes.has("q")
    known = boxes._nodes
    assert is_open(user(net, "ann").receiver("q"))
    boxes.drop(["dead.5"])
    assert not boxes.has("dead.5")
    # Nothing was gathered anew.
    assert boxes._nodes is known
