"""Proton on topics, as JMS clients attach: names, capabilities, expiry, unsubscribing."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery, Message, Terminus, symbol
from proton.reactor import Container
from proton.utils import BlockingConnection, LinkDetached

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import TIMEOUT, connect
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
from tests.interop.relay import Relay

pytestmark = pytest.mark.interop

SELECTOR = "apache.org:selector-filter:string"

CONFIG = """
[[topic]]
pattern = "test_*"

[[topic]]
pattern = "bounded-*"
[topic.subscription]
max-length = 2
overflow = "drop-head"

[[topic]]
pattern = "blocking-*"
[topic.subscription]
max-length = 2
overflow = "block"
"""


def jms(*capabilities: str, durable: bool = False, **more: Any) -> Asking:
    """What the source of a JMS consumer on a topic looks like."""
    if durable:
        more |= {"durability": Terminus.DELIVERIES, "expiry": Terminus.EXPIRE_NEVER}
    return Asking(capabilities=["topic", *capabilities], mode=Terminus.DIST_MODE_COPY, **more)


def unsubscribe(connection: BlockingConnection, name: str, *capabilities: str) -> str:
    """As JMS clients do it: attach without a source, and close; the address it had."""
    options = Asking(no_source=True, capabilities=capabilities)
    inbox = Inbox(connection, None, credit=0, name=name, options=options)
    source = inbox.link.remote_source
    address = str(source.address)
    assert source.type == Terminus.SOURCE
    assert source.expiry_policy == Terminus.EXPIRE_NEVER
    inbox.close()
    return address


# -- subscriptions that go with their link ----------------------------------------------------


def test_everybody_gets_everything_from_then_on(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    assert send(connection, address, "nobody listens") == [Delivery.ACCEPTED]
    with connect(broker.url) as other:
        one, two = Inbox(connection, address), Inbox(other, address, options=jms())
        send(connection, address, 1, 2)
        assert one.bodies(2) == two.bodies(2) == [1, 2]
        two.close()
        send(connection, address, 3)
        again = Inbox(other, address)
        send(connection, address, 4)
        assert again.bodies(1) == [4]
        assert one.bodies(2) == [3, 4]


def test_what_a_subscription_filters_is_not_kept(
    connection: BlockingConnection, address: str
) -> None:
    red = Inbox(connection, address, credit=0, options=jms(filters={SELECTOR: "colour = 'red'"}))
    every = Inbox(connection, address, credit=0)
    messages = [Message(body=n, properties={"colour": c}) for n, c in enumerate(("red", "blue"))]
    send(connection, address, *messages)
    assert (red.rest(), every.rest()) == ([0], [0, 1])


def test_no_local(broker: BrokerProcess, connection: BlockingConnection, address: str) -> None:
    filters = {"apache.org:no-local-filter:list": []}
    inbox = Inbox(connection, address, credit=0, options=jms(filters=filters))
    send(connection, address, "own")
    with connect(broker.url) as other:
        send(other, address, "another's")
    assert inbox.rest() == ["another's"]


def test_outcomes_are_those_of_queues(connection: BlockingConnection, address: str) -> None:
    inbox = Inbox(connection, address)
    send(connection, address, "a", "b")
    settle(inbox.get()[1], Delivery.MODIFIED, failed=True)
    (_, second), (again, _) = inbox.get(), inbox.get()
    assert (again.body, again.delivery_count) == ("a", 1)
    settle(second, Delivery.ACCEPTED)


def test_a_topic_moves_nothing(connection: BlockingConnection, address: str) -> None:
    with pytest.raises(LinkDetached, match="not-implemented"):
        Inbox(connection, address, options=Asking(mode=Terminus.DIST_MODE_MOVE))


def test_a_full_subscription_keeps_nobody_waiting(
    connection: BlockingConnection, address: str
) -> None:
    address = f"bounded-{address}"
    slow, quick = Inbox(connection, address, credit=0), Inbox(connection, address, credit=9)
    for body in (1, 2, 3):
        assert send(connection, address, body) == [Delivery.ACCEPTED]
        assert quick.next().body == body
        fence(connection)
    assert slow.rest() == [2, 3]


def test_a_topic_that_blocks(broker: BrokerProcess, address: str) -> None:
    address = f"blocking-{address}"
    with connect(broker.url) as publishing, connect(broker.url) as consuming:
        inbox = Inbox(consuming, address, credit=0)
        sender = publishing.create_sender(address)
        for body in (1, 2):
            publishing.wait(lambda: sender.link.credit > 0)
            sender.send(Message(body=body))
        fence(publishing)
        assert sender.link.credit == 0
        inbox.link.flow(1)
        assert inbox.next().body == 1
        fence(consuming)
        publishing.wait(lambda: sender.link.credit == 1)


# -- durable ones ---------------------------------------------------------------------------


def test_a_durable_subscription_lives_until_unsubscribed(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    me = f"client-{address}"
    with connect_as(broker.url, me) as mine:
        inbox = Inbox(mine, address, name="sub", options=jms(durable=True))
        assert inbox.link.remote_source.expiry_policy == Terminus.EXPIRE_NEVER
        send(connection, address, 1)
        assert inbox.next().body == 1
        detach(mine, inbox)
        send(connection, address, 2)
        # The same link, another time, on the same connection.
        inbox = Inbox(mine, address, name="sub", options=jms(durable=True), credit=1)
        message, _ = inbox.get()
        assert message.body == 2
    send(connection, address, 3)
    with connect_as(broker.url, me) as mine:
        inbox = Inbox(mine, address, name="sub", options=jms(durable=True))
        assert inbox.bodies(2) == [2, 3]
        detach(mine, inbox)
        assert unsubscribe(mine, "sub") == address
        send(connection, address, 4)
        with pytest.raises(LinkDetached, match="not-found"):
            unsubscribe(mine, "sub")
        inbox = Inbox(mine, address, name="sub", options=jms(durable=True), credit=0)
        assert inbox.rest() == []
        inbox.close()


def test_a_durable_subscription_outlives_a_lost_connection(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    me = f"client-{address}"
    with Relay(broker.port) as relay:
        container = Container()
        container.container_id = me
        url = f"amqp://127.0.0.1:{relay.port}"
        lost = BlockingConnection(url, timeout=TIMEOUT, container=container)
        inbox = Inbox(lost, address, name="sub", options=jms(durable=True))
        send(connection, address, "a", "b")
        inbox.get()
        inbox.get()
        relay.cut()
        with connect_as(broker.url, me) as again:
            inbox = Inbox(again, address, name="sub", options=jms(durable=True))
            messages = [inbox.next(), inbox.next()]
            assert [(m.body, m.delivery_count) for m in messages] == [("a", 1), ("b", 1)]
            inbox.close()


def test_another_selector_makes_another_subscription(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    with connect_as(broker.url, f"client-{address}") as mine:
        detach(mine, Inbox(mine, address, name="sub", options=jms(durable=True)))
        send(connection, address, "before")
        filters = {SELECTOR: "wanted"}
        options = jms(durable=True, filters=filters)
        inbox = Inbox(mine, address, name="sub", options=options, credit=0)
        messages = [Message(body=w, properties={"wanted": w}) for w in (True, False)]
        send(connection, address, *messages)
        assert inbox.rest() == [True]
        inbox.close()


def test_a_subscription_moves_with_its_client(broker: BrokerProcess, address: str) -> None:
    me = f"client-{address}"
    with connect_as(broker.url, me) as old, connect_as(broker.url, me) as new:
        first = Inbox(old, address, name="sub", options=jms(durable=True))
        second = Inbox(new, address, name="sub", options=jms(durable=True))
        condition, _ = lost_to(old, first)
        assert condition == "amqp:link:stolen"
        send(new, address, "x")
        assert second.next().body == "x"
        second.close()


# -- shared ones ----------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "not durable"])
def test_shared_by_the_links_of_a_client(
    broker: BrokerProcess, connection: BlockingConnection, address: str, durable: bool
) -> None:
    names = ["sub", "sub|2"] if durable else ["sub|volatile1", "sub|volatile2"]
    options = jms("shared", durable=durable)
    with connect_as(broker.url, f"client-{address}") as mine:
        inboxes = [Inbox(mine, address, name=name, options=options, credit=1) for name in names]
        stranger = Inbox(connection, address, name="sub|1", options=jms("shared"))
        fence(mine)
        send(connection, address, 1, 2)
        assert sorted(inbox.next().body for inbox in inboxes) == [1, 2]
        # The same name of another container is another subscription.
        assert stranger.bodies(2) == [1, 2]
        for inbox in inboxes:
            detach(mine, inbox)
        send(connection, address, 3)
        again = Inbox(mine, address, name=names[0], options=options, credit=0)
        assert again.rest() == ([3] if durable else [])
        detach(mine, again)
        if durable:
            assert unsubscribe(mine, "sub", "shared") == address


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "not durable"])
def test_shared_by_everybody(broker: BrokerProcess, address: str, durable: bool) -> None:
    suffixes = ["|global", "|global2"] if durable else ["|global-volatile1", "|global-volatile2"]
    # A global durable one has its own name alone.
    name = f"sub-{address}"
    options = jms("shared", "global", durable=durable)
    with connect(broker.url) as one, connect(broker.url) as two:
        first = Inbox(one, address, name=name + suffixes[0], options=options, credit=1)
        second = Inbox(two, address, name=name + suffixes[1], options=options, credit=1)
        fence(one)
        fence(two)
        send(one, address, 1, 2)
        assert sorted([first.next().body, second.next().body]) == [1, 2]
        detach(one, first)
        detach(two, second)
    with connect(broker.url) as three:
        send(three, address, 3)
        again = Inbox(three, address, name=name + suffixes[0], options=options, credit=0)
        assert again.rest() == ([3] if durable else [])
        detach(three, again)
        if durable:
            unsubscribe(three, f"{name}|global", "shared", "global")
            with pytest.raises(LinkDetached, match="not-found"):
                unsubscribe(three, f"{name}|global", "shared", "global")


def test_sharers_agree_on_the_selector(broker: BrokerProcess, address: str) -> None:
    name = f"sub-{address}"
    with connect(broker.url) as one, connect(broker.url) as two:
        Inbox(one, address, name=f"{name}|1", options=jms("shared", "global"))
        other = jms("shared", "global", filters={SELECTOR: "a = 1"})
        with pytest.raises(LinkDetached, match="precondition-failed"):
            Inbox(two, address, name=f"{name}|2", options=other)


def test_shared_subscriptions_are_offered(connection: BlockingConnection, address: str) -> None:
    offered = connection.conn.remote_offered_capabilities
    assert "SHARED-SUBS" in [str(name) for name in offered]
    inbox = Inbox(connection, address, options=Asking(capabilities=["topic", "shared", "odd"]))
    capabilities = inbox.link.remote_source.capabilities
    capabilities.rewind()
    capabilities.next()
    assert set(capabilities.get_object().elements) == {symbol("topic"), symbol("shared")}


# -- addresses of subscriptions ---------------------------------------------------------------


def test_a_subscription_can_be_browsed_and_emptied(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    me = f"client-{address}"
    with connect_as(broker.url, me) as mine:
        detach(mine, Inbox(mine, address, name="sub", options=jms(durable=True)))
    send(connection, address, 1, 2)
    part = f"{address}::{me}/sub"
    browser = Inbox(connection, part, credit=0, options=Asking(mode=Terminus.DIST_MODE_COPY))
    assert browser.rest() == [1, 2]
    assert left(connection, part) == [1, 2]
    with pytest.raises(LinkDetached, match="not-allowed"):
        connection.create_sender(part)
    with connect_as(broker.url, me) as mine:
        inbox = Inbox(mine, address, name="sub", options=jms(durable=True), credit=0)
        assert inbox.rest() == []
        inbox.close()
