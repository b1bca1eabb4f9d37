"""Proton: topics with durable and shared subscriptions, exchanges with bindings."""

from __future__ import annotations

import pytest
from proton import UNDESCRIBED, Array, Data, Delivery, Message, Receiver, symbol
from proton.reactor import Container, DurableSubscription, ReceiverOption, Selector
from proton.utils import (
    BlockingConnection,
    BlockingReceiver,
    LinkDetached,
    SendException,
)

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import TIMEOUT, connect

pytestmark = pytest.mark.interop

CONFIG = """
[[topic]]
name = "news"

[[queue]]
name = "european"

[[queue]]
name = "small"
max-length = 1

[[exchange]]
name = "orders"
routing = "topic"

[[exchange.binding]]
key = "eu.#"
to = "european"

[[exchange.binding]]
key = "#.small"
to = "small"

[[exchange.binding]]
key = "news"
to = "news"
"""


class Shared(ReceiverOption):
    """Shares a subscription with whoever asks for the same."""

    def apply(self, receiver: Receiver) -> None:
        names = Array(UNDESCRIBED, Data.SYMBOL, symbol("shared"), symbol("global"))
        receiver.source.capabilities.put_object(names)


def next_body(receiver: BlockingReceiver) -> object:
    body = receiver.receive().body
    receiver.accept()
    return body


def publish(broker: BrokerProcess, address: str, *messages: Message) -> None:
    with connect(broker.url) as connection:
        sender = connection.create_sender(address)
        for message in messages:
            sender.send(message)


def test_every_subscriber_gets_what_it_selects(broker: BrokerProcess) -> None:
    with connect(broker.url) as first, connect(broker.url) as second:
        everything = first.create_receiver("news", credit=10)
        red = second.create_receiver("news", credit=10, options=Selector("colour = 'red'"))
        publish(
            broker,
            "news",
            Message(body="blue", properties={"colour": "blue"}),
            Message(body="red", properties={"colour": "red"}),
        )
        assert next_body(red) == "red"
        assert (next_body(everything), next_body(everything)) == ("blue", "red")


def test_a_durable_subscription_waits_for_its_client(broker: BrokerProcess) -> None:
    def subscribe(connection: BlockingConnection) -> BlockingReceiver:
        return connection.create_receiver(
            "news", credit=10, name="invoices", options=DurableSubscription()
        )

    def connected() -> BlockingConnection:
        container = Container()
        container.container_id = "billing"
        return BlockingConnection(broker.url, timeout=TIMEOUT, container=container)

    connection = connected()
    subscribe(connection)
    connection.close()
    publish(broker, "news", Message(body="while away"))
    connection = connected()
    receiver = subscribe(connection)
    assert next_body(receiver) == "while away"
    receiver.close()
    publish(broker, "news", Message(body="unsubscribed"))
    again = subscribe(connection)
    publish(broker, "news", Message(body="subscribed again"))
    assert next_body(again) == "subscribed again"
    connection.close()


def test_shared_subscribers_divide_the_messages(broker: BrokerProcess) -> None:
    with connect(broker.url) as first, connect(broker.url) as second:
        one = first.create_receiver("news", credit=1, name="group|1", options=Shared())
        two = second.create_receiver("news", credit=1, name="group|2", options=Shared())
        publish(broker, "news", Message(body="a"), Message(body="b"))
        assert {next_body(one), next_body(two)} == {"a", "b"}


def test_an_exchange_routes_by_subject_and_by_address(broker: BrokerProcess) -> None:
    publish(broker, "orders", Message(body="by subject", subject="eu.fr.new"))
    publish(broker, "orders::eu.de.new", Message(body="by address"))
    with connect(broker.url) as connection:
        receiver = connection.create_receiver("european", credit=10)
        assert (next_body(receiver), next_body(receiver)) == ("by subject", "by address")


def test_a_sender_is_told_what_went_nowhere_and_what_was_refused(broker: BrokerProcess) -> None:
    with connect(broker.url) as connection:
        sender = connection.create_sender("orders")
        with pytest.raises(SendException) as released:
            sender.send(Message(body="nowhere", subject="us"))
        assert released.value.state == Delivery.RELEASED
        sender.send(Message(body="first", subject="us.small"))
        with pytest.raises(SendException) as rejected:
            sender.send(Message(body="second", subject="us.small"))
        assert rejected.value.state == Delivery.REJECTED
        with pytest.raises(LinkDetached, match="not-allowed"):
            connection.create_receiver("orders")


def test_an_exchange_in_front_of_a_topic(broker: BrokerProcess) -> None:
    with connect(broker.url) as connection:
        receiver = connection.create_receiver("news", credit=10)
        publish(broker, "orders", Message(body="extra", subject="news"))
        assert next_body(receiver) == "extra"
