"""Proton: what a link asks for and what it is granted, told and refused."""

from __future__ import annotations

from typing import Any

import pytest
from proton import (
    Delivery,
    Described,
    Link,
    Message,
    Receiver,
    Terminus,
    symbol,
    ulong,
)
from proton.reactor import AtMostOnce, LinkOption, ReceiverOption
from proton.utils import BlockingConnection, LinkDetached

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import connect
from tests.interop.proton_nodes import (
    Asking,
    Inbox,
    connect_as,
    detach,
    fence,
    left,
    lost_to,
    send,
    settle,
)

pytestmark = pytest.mark.interop

LIFETIMES = {
    "delete-on-close": 0x2B,
    "delete-on-no-links": 0x2C,
    "delete-on-no-messages": 0x2D,
    "delete-on-no-links-or-messages": 0x2E,
}

CONFIG = """
[nodes]
auto-create = false

[[queue]]
pattern = "test_*"

[[topic]]
pattern = "topic-*"

[[stream]]
name = "log"

[[queue]]
name = "full"
max-length = 1

[[exchange]]
name = "nothing-bound"

[[alias]]
name = "gold"
to = "silver"

[[alias]]
name = "silver"
to = "test_metal"

[[alias]]
name = "keyed"
to = "keys::k"

[[exchange]]
name = "keys"
[[exchange.binding]]
key = "k"
to = "test_keyed"

[[queue]]
name = "test_keyed"

[[redirect]]
name = "moved"
host = "10.0.0.1"
hostname = "host.example"
port = 5673
address = "there"
"""


class Answered(LinkOption):
    """The outcomes that a sender can deal with."""

    def __init__(self, *outcomes: str) -> None:
        self._asking = Asking(outcomes=outcomes)

    def apply(self, link: Link) -> None:
        self._asking.apply(link)


class Lasting(ReceiverOption):
    """A source that is kept, the way Proton's own durable subscriptions ask for it."""

    def apply(self, receiver: Receiver) -> None:
        receiver.source.durability = Terminus.DELIVERIES
        receiver.source.expiry_policy = Terminus.EXPIRE_NEVER


# -- dynamic nodes --------------------------------------------------------------------------


@pytest.mark.parametrize("policy", LIFETIMES)
@pytest.mark.parametrize("by", ["code", "name"])
def test_lifetimes(
    broker: BrokerProcess, connection: BlockingConnection, policy: str, by: str
) -> None:
    """The owner goes while another has a link and a message is there; then the link, then it."""
    name = ulong(LIFETIMES[policy]) if by == "code" else symbol(f"amqp:{policy}:list")
    node = {"lifetime-policy": Described(name, [])}
    with connect(broker.url) as owner:
        inbox = Inbox(owner, None, credit=0, dynamic=True, options=Asking(node=node))
        source = inbox.link.remote_source
        assert source.dynamic
        address = source.address
        source.properties.rewind()
        source.properties.next()
        kept = source.properties.get_object()["lifetime-policy"]
        assert kept.descriptor in (LIFETIMES[policy], f"amqp:{policy}:list")
        link = connection.create_sender(address).link
        delivery = link.send(Message(body="there"))
        connection.wait(lambda: delivery.settled)
        delivery.settle()
        inbox.close()
    if policy == "delete-on-close":
        with pytest.raises(LinkDetached, match="resource-deleted"):
            fence(connection)
    else:
        fence(connection)
        assert link.state & Link.REMOTE_ACTIVE
        link.close()
        fence(connection)
    if policy in ("delete-on-no-messages", "delete-on-no-links-or-messages"):
        assert left(connection, address) == ["there"]
    with pytest.raises(LinkDetached, match="not-found"):
        connection.create_sender(address, name="afterwards")


def test_a_dynamic_target(broker: BrokerProcess, connection: BlockingConnection) -> None:
    """As JMS clients make a temporary queue, which ends with the sender that made it."""
    policy = Described(symbol("amqp:delete-on-close:list"), [])

    class Dynamic(Asking):
        def apply(self, link: Link) -> None:
            super().apply(link)
            link.target.dynamic = True

    options = Dynamic(capabilities=["temporary-queue"], node={"lifetime-policy": policy})
    owner = connection.container.create_sender(connection.conn, None, name="temp", options=options)
    connection.wait(lambda: owner.state & Link.REMOTE_ACTIVE)
    target = owner.remote_target
    assert target.dynamic
    assert target.address.startswith("dynamic.")
    with connect(broker.url) as other:
        inbox = Inbox(connection, target.address, options=Asking(capabilities=["temporary-queue"]))
        send(other, target.address, "x")
        assert inbox.next().body == "x"
        owner.close()
        assert lost_to(connection, inbox)[0] == "amqp:resource-deleted"
        with pytest.raises(LinkDetached, match="not-found"):
            other.create_sender(target.address)


def test_a_temporary_topic(broker: BrokerProcess, connection: BlockingConnection) -> None:
    options = Asking(capabilities=["temporary-topic"])
    owner = Inbox(connection, None, dynamic=True, options=options)
    address = owner.link.remote_source.address
    with connect(broker.url) as other:
        second = Inbox(other, address)
        send(connection, address, "x")
        assert owner.next().body == second.next().body == "x"


# -- aliases, redirects, no address ---------------------------------------------------------


def test_aliases(connection: BlockingConnection) -> None:
    send(connection, "gold", 1)
    send(connection, None, Message(body=2, address="silver"))
    inbox = Inbox(connection, "gold")
    assert inbox.link.remote_source.address == "gold"
    assert inbox.bodies(2) == [1, 2]
    send(connection, "keyed", "through an exchange")
    assert left(connection, "test_keyed") == ["through an exchange"]


@pytest.mark.parametrize("direction", ["sender", "receiver"])
def test_a_redirect_says_where(connection: BlockingConnection, direction: str) -> None:
    with pytest.raises(LinkDetached) as caught:
        if direction == "sender":
            connection.create_sender("moved")
        else:
            connection.create_receiver("moved")
    condition = caught.value.link.remote_condition
    assert condition.name == "amqp:link:redirect"
    assert condition.info == {
        "hostname": "host.example",
        "network-host": "10.0.0.1",
        "port": 5673,
        "address": "there",
    }


def test_errors_of_the_anonymous_terminus(connection: BlockingConnection, address: str) -> None:
    send(connection, "full", "x")
    relay = connection.create_sender(None)
    told = {}
    for to in (
        address,
        "unknown",
        None,
        "moved",
        "full",
        "nothing-bound",
        "topic-x",
        "$management",
    ):
        delivery = relay.link.send(Message(address=to, body="x"))
        connection.wait(lambda delivery=delivery: delivery.settled)
        condition = delivery.remote.condition
        told[to] = condition.name if condition else delivery.remote_state
        delivery.settle()
    assert told == {
        address: Delivery.ACCEPTED,
        "unknown": "amqp:not-found",
        None: "amqp:not-found",
        "moved": "amqp:link:redirect",
        "full": "amqp:resource-limit-exceeded",
        "nothing-bound": Delivery.RELEASED,
        "topic-x": Delivery.ACCEPTED,
        "$management": "amqp:not-allowed",
    }
    left(connection, "full")


def test_what_is_sent_settled_into_nowhere_ends_the_link(connection: BlockingConnection) -> None:
    relay = connection.create_sender(None, options=AtMostOnce())
    delivery = relay.link.send(Message(address="unknown", body="x"), tag="the-tag")
    delivery.settle()
    with pytest.raises(LinkDetached, match="not-found"):
        fence(connection)
    assert bytes(relay.link.remote_condition.info["delivery-tag"]) == b"the-tag"


# -- what is asked for ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "capability", "condition"),
    [
        ("test_q", "queue", None),
        ("test_q", "topic", "precondition-failed"),
        ("topic-t", "topic", None),
        ("topic-t", "queue", "precondition-failed"),
        ("log", "topic", None),
        ("nowhere", "queue", "not-found"),
    ],
)
def test_the_kind_of_node_is_a_condition(
    connection: BlockingConnection, name: str, capability: str, condition: str | None
) -> None:
    asking = Asking(capabilities=[capability])
    if condition is None:
        link = Inbox(connection, name, options=asking).link
        link.remote_source.capabilities.rewind()
        link.remote_source.capabilities.next()
        capabilities = link.remote_source.capabilities.get_object()
        assert capability in getattr(capabilities, "elements", [capabilities])
    else:
        with pytest.raises(LinkDetached, match=condition):
            Inbox(connection, name, options=asking)


@pytest.mark.parametrize("mode", [Terminus.DIST_MODE_MOVE, Terminus.DIST_MODE_COPY])
@pytest.mark.parametrize("node", ["test_q", "topic-t", "log"])
def test_distribution_modes(connection: BlockingConnection, node: str, mode: int) -> None:
    if node != "test_q" and mode == Terminus.DIST_MODE_MOVE:
        with pytest.raises(LinkDetached, match="not-implemented"):
            Inbox(connection, node, options=Asking(mode=mode))
    else:
        link = Inbox(connection, node, options=Asking(mode=mode)).link
        assert link.remote_source.distribution_mode == mode


def test_without_a_store_no_terminus_is_durable(
    connection: BlockingConnection, address: str
) -> None:
    """Proton asks for durable sources of queues too: this one lasts, but not through a crash."""
    inbox = Inbox(connection, address, options=Lasting())
    source = inbox.link.remote_source
    assert source.durability == Terminus.NONDURABLE
    assert source.expiry_policy == Terminus.EXPIRE_NEVER


@pytest.mark.parametrize(
    "policy",
    [Terminus.EXPIRE_WITH_LINK, Terminus.EXPIRE_WITH_SESSION, Terminus.EXPIRE_WITH_CONNECTION],
)
def test_a_subscription_expires_as_agreed(
    broker: BrokerProcess, connection: BlockingConnection, address: str, policy: int
) -> None:
    """Kept by its durability; gone with the link, or with the session and the connection."""
    address = f"topic-{address}"
    options = Asking(durability=Terminus.CONFIGURATION, expiry=policy)
    with connect_as(broker.url, f"client-{address}") as mine:
        inbox = Inbox(mine, address, name="sub", options=options)
        assert inbox.link.remote_source.expiry_policy == policy
        detach(mine, inbox)
        send(connection, address, "while detached")
        inbox = Inbox(mine, address, name="sub", options=options, credit=0)
        kept = [] if policy == Terminus.EXPIRE_WITH_LINK else ["while detached"]
        assert inbox.rest() == kept
        detach(mine, inbox)
    with connect_as(broker.url, f"client-{address}") as mine:
        send(connection, address, "nobody there")
        inbox = Inbox(mine, address, name="sub", options=options, credit=0)
        assert inbox.rest() == []


@pytest.mark.parametrize("required", [False, True])
def test_filters_that_are_not_known(
    connection: BlockingConnection, address: str, required: bool
) -> None:
    filters: dict[str, Any] = {
        "apache.org:selector-filter:string": "a = 1",
        "example:unheard-of": "x",
    }
    properties = {"ferrymq:require-filters": True} if required else None
    asking = Asking(filters=filters, properties=properties)
    if required:
        with pytest.raises(LinkDetached, match=r"not-implemented.*example:unheard-of"):
            Inbox(connection, address, options=asking)
    else:
        granted = Inbox(connection, address, options=asking).link.remote_source.filter
        granted.rewind()
        granted.next()
        assert list(granted.get_object()) == ["apache.org:selector-filter:string"]


# -- outcomes -------------------------------------------------------------------------------


ACCEPTED_ONLY = ["amqp:accepted:list"]


def test_an_outcome_that_was_not_agreed(connection: BlockingConnection, address: str) -> None:
    """The link is closed: a mere detach Proton's handlers do not hear of."""
    send(connection, address, "x")
    receiver = connection.create_receiver(
        address, options=Asking(outcomes=[*ACCEPTED_ONLY, "amqp:rejected:list"])
    )
    outcomes = receiver.link.remote_source.outcomes
    outcomes.rewind()
    outcomes.next()
    assert list(outcomes.get_object().elements) == [*ACCEPTED_ONLY, "amqp:rejected:list"]
    receiver.receive()
    receiver.release()
    with pytest.raises(LinkDetached, match="not-allowed"):
        receiver.receive()
    # What it held is back in its place.
    assert left(connection, address) == ["x"]


def test_a_subscription_outlives_an_outcome_that_was_not_agreed(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    address = f"topic-{address}"
    kept = {"durability": Terminus.DELIVERIES, "expiry": Terminus.EXPIRE_NEVER}
    with connect_as(broker.url, f"client-{address}") as mine:
        strict = Asking(outcomes=ACCEPTED_ONLY, **kept)
        inbox = Inbox(mine, address, name="sub", options=strict)
        send(connection, address, "x", "y")
        settle(inbox.get()[1], Delivery.RELEASED)
        assert lost_to(mine, inbox)[0] == "amqp:not-allowed"
        assert not inbox.link.state & Link.REMOTE_CLOSED
        detach(mine, inbox)
        inbox = Inbox(mine, address, name="sub", options=Asking(**kept))
        assert inbox.bodies(2) == ["x", "y"]
        inbox.close()


@pytest.mark.parametrize(
    ("agreed", "told"),
    [
        (["accepted", "released"], Delivery.RELEASED),
        (["accepted", "modified"], Delivery.MODIFIED),
        (["accepted", "rejected"], Delivery.REJECTED),
    ],
)
def test_a_sender_is_told_with_what_it_knows(
    connection: BlockingConnection, agreed: list[str], told: int
) -> None:
    options = Answered(*[f"amqp:{name}:list" for name in agreed])
    sender = connection.create_sender("nothing-bound", options=options)
    delivery = sender.link.send(Message(body="x"))
    connection.wait(lambda: delivery.settled)
    assert delivery.remote_state == told
    delivery.settle()


def test_a_sender_that_knows_no_rejection(connection: BlockingConnection) -> None:
    send(connection, "full", "x")
    sender = connection.create_sender("full", options=Answered("amqp:accepted:list"))
    sender.link.send(Message(body="y"), tag="too-many")
    with pytest.raises(LinkDetached, match="resource-limit-exceeded"):
        fence(connection)
    assert bytes(sender.link.remote_condition.info["delivery-tag"]) == b"too-many"
    left(connection, "full")


# -- delivery modes -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["at-most-once", "at-least-once", "exactly-once"])
def test_delivery_modes_of_senders(connection: BlockingConnection, address: str, mode: str) -> None:
    options = Asking(properties={"delivery-mode": mode})
    sender = connection.create_sender(address, options=options)
    assert sender.link.remote_properties == {"delivery-mode": mode}
    assert sender.send(Message(body=mode)).remote_state == Delivery.ACCEPTED
    assert left(connection, address) == [mode]


def test_a_wish_that_cannot_be_kept_is_missing(
    connection: BlockingConnection, address: str
) -> None:
    wish = Asking(
        properties={"delivery-mode": "at-least-once", "opt-delivery-mode": "exactly-once"}
    )
    link = Inbox(connection, address, options=wish).link
    assert link.remote_properties == {"delivery-mode": "at-least-once"}
    with pytest.raises(LinkDetached, match="exactly-once"):
        Inbox(connection, address, options=Asking(properties={"delivery-mode": "exactly-once"}))


def test_exactly_once_over_a_lost_link(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    """The same tags from the same link again: accepted once more, and dropped."""
    options = Asking(properties={"delivery-mode": "exactly-once"})
    for turn in range(2):
        with connect_as(broker.url, f"client-{address}") as mine:
            sender = mine.create_sender(address, name="till", options=options)
            for number in range(3 + turn):
                delivery = sender.link.send(Message(body=number), tag=f"tag-{number}")
                mine.wait(lambda delivery=delivery: delivery.settled)
                assert delivery.remote_state == Delivery.ACCEPTED
                # Not settled here: Proton forgets it with the connection.
            sender.link.detach()
            fence(mine)
    assert left(connection, address) == [0, 1, 2, 3]


# -- pairs ----------------------------------------------------------------------------------


def test_management_over_a_pair(connection: BlockingConnection) -> None:
    assert "LINK_PAIR_V1_0" in [str(name) for name in connection.conn.remote_offered_capabilities]
    options = Asking(properties={"paired": True})
    answers = Inbox(connection, "$management", name="pair", options=options)
    sender = connection.create_sender("$management", name="pair", options=options)
    assert sender.link.remote_properties == {"paired": True}
    assert answers.link.remote_properties == {"paired": True}
    properties = {"operation": "READ", "type": "queue", "name": "full"}
    sender.send(Message(properties=properties, body={}, reply_to="$me", id="one"))
    answer = answers.next()
    assert (answer.correlation_id, answer.properties["statusCode"]) == ("one", 200)
    assert answer.body["max-length"] == 1
    with pytest.raises(LinkDetached, match="not-implemented"):
        connection.create_sender("full", name="no-pair", options=options)
