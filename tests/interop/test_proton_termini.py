"""Proton: dynamic nodes and how long they live, conditions of links, virtual hosts, redirects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Delivery, Described, Link, Message, symbol, ulong
from proton.reactor import DynamicNodeProperties, LinkOption
from proton.utils import BlockingConnection, ConnectionClosed, LinkDetached, SendException

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import connect

pytestmark = pytest.mark.interop

CONFIG = """
unknown-hostname = "refuse"

[[queue]]
name = "narrow"
max-length = 2
overflow = "block"

[[redirect]]
name = "moved"
host = "10.0.0.1"
hostname = "host.example"
port = 5673
address = "there"

[[virtual-host]]
name = "tenant"
hostnames = ["127.0.0.1", "tenant.example"]

[[virtual-host]]
name = "other"
"""

DELETE_ON_NO_LINKS = 0x2C


class Properties(LinkOption):
    """Properties of the attach."""

    def __init__(self, **properties: object) -> None:
        self.properties = {
            symbol(name.replace("_", "-")): value for name, value in properties.items()
        }

    def apply(self, link: Link) -> None:
        link.properties = self.properties


@pytest.fixture(scope="module")
def connection(broker: BrokerProcess) -> Iterator[BlockingConnection]:
    with connect(broker.url, virtual_host="vhost:default") as connection:
        yield connection


def test_a_dynamic_node_lives_until_its_last_link_is_gone(
    broker: BrokerProcess, connection: BlockingConnection
) -> None:
    options = DynamicNodeProperties({"lifetime-policy": Described(ulong(DELETE_ON_NO_LINKS), [])})
    with connect(broker.url, virtual_host="vhost:default") as owner:
        receiver = owner.create_receiver(None, dynamic=True, options=options)
        source = receiver.link.remote_source
        address = source.address
        properties = source.properties.get_dict() if source.properties.next() else {}
        assert properties["lifetime-policy"].descriptor in (
            ulong(DELETE_ON_NO_LINKS),
            symbol("amqp:delete-on-no-links:list"),
        )
        sender = connection.create_sender(address)
    sender.send(Message(body="still there"))
    sender.close()
    with pytest.raises(LinkDetached, match="not-found"):
        connection.create_sender(address)


def test_a_delivery_mode_decides_how_messages_come(
    connection: BlockingConnection, address: str
) -> None:
    sender = connection.create_sender(address, options=Properties(delivery_mode="exactly-once"))
    assert sender.link.remote_properties == {"delivery-mode": "exactly-once"}
    sender.send(Message(body="one"))
    receiver = connection.create_receiver(address, options=Properties(delivery_mode="at-most-once"))
    assert receiver.link.remote_snd_settle_mode == Link.SND_SETTLED
    assert receiver.receive(timeout=10).body == "one"
    with pytest.raises(LinkDetached, match="exactly-once"):
        connection.create_receiver(
            address, name="cannot", options=Properties(delivery_mode="exactly-once")
        )


def test_exclusive_use(broker: BrokerProcess, connection: BlockingConnection, address: str) -> None:
    alone = connection.create_receiver(address, options=Properties(exclusive=True))
    assert alone.link.remote_properties == {"exclusive": True}
    with (
        connect(broker.url, virtual_host="vhost:default") as other,
        pytest.raises(LinkDetached, match="resource-locked"),
    ):
        other.create_receiver(address)


def test_credit_is_what_the_queue_has_room_for(connection: BlockingConnection) -> None:
    sender = connection.create_sender("narrow")
    connection.wait(lambda: sender.link.credit > 0)
    for number in range(2):
        sender.send(Message(body=number))
    assert sender.link.credit == 0
    receiver = connection.create_receiver("narrow", credit=1)
    assert receiver.receive(timeout=10).body == 0
    assert sender.link.credit == 0
    receiver.accept()
    connection.wait(lambda: sender.link.credit == 1)


def test_a_redirect_says_where_to_go(connection: BlockingConnection) -> None:
    with pytest.raises(LinkDetached, match=r"10\.0\.0\.1:5673") as caught:
        connection.create_sender("moved")
    assert caught.value.condition == "amqp:link:redirect"


def test_the_anonymous_terminus_tells_of_each_message(connection: BlockingConnection) -> None:
    relay = connection.create_sender(None)
    with pytest.raises(SendException) as caught:
        relay.send(Message(address="$nowhere", body="x"))
    assert caught.value.state == Delivery.REJECTED
    assert relay.send(Message(address="relayed", body="x")).remote_state == Delivery.ACCEPTED
    assert connection.create_receiver("relayed").receive(timeout=10).body == "x"


def test_virtual_hosts(broker: BrokerProcess, connection: BlockingConnection) -> None:
    connection.create_sender("shared-name").send(Message(body="default"))
    for hostname in ("tenant.example", "vhost:tenant", None):
        with connect(broker.url, virtual_host=hostname) as tenant:
            tenant.create_sender("shared-name").send(Message(body="tenant"))
    with connect(broker.url, virtual_host="other") as other:
        other.create_sender("shared-name").send(Message(body="other"))
    with connect(broker.url, virtual_host="vhost:tenant") as tenant:
        receiver = tenant.create_receiver("shared-name")
        assert [receiver.receive(timeout=10).body for _ in range(3)] == ["tenant"] * 3


@pytest.mark.parametrize("hostname", ["stranger.example", "vhost:stranger"])
def test_an_unknown_virtual_host(broker: BrokerProcess, hostname: str) -> None:
    with (
        pytest.raises(ConnectionClosed, match="not-found"),
        connect(broker.url, virtual_host=hostname) as connection,
    ):
        connection.create_sender("q")
