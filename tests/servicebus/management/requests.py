"""A client of an entity's management node, as the vendor's SDKs are: a pair of links, message-ids
that are uuids, a map in the body."""

from __future__ import annotations

from uuid import UUID, uuid4

from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from ferrymq_codec.containers import Array
from ferrymq_codec.scalars import Timestamp, UInt
from ferrymq_servicebus.management import entity_service
from ferrymq_types.messaging import (
    Accepted,
    AmqpValue,
    ApplicationProperties,
    Data,
    Header,
    MessageAnnotations,
    Properties,
)
from tests.broker.harness import Client, Network, encode
from tests.broker.management.asker import Answer, read_answer


def topic_of(net: Network, *subscriptions: str, policy: QueuePolicy | None = None) -> Topic:
    """A new topic "t" with subscriptions."""
    topic = net.space.create("t", TopicPolicy(subscription=policy or QueuePolicy()))
    assert isinstance(topic, Topic)
    for name in subscriptions:
        topic.declare_subscription(name)
    return topic


def serve(space: AddressSpace, native: str) -> str:
    """Add the management node of an entity, and return its address."""
    address = f"{native}/$management"
    if address not in space.nodes:
        space.insert_service(entity_service(space, address, native))
    return address


class EntityClient:
    """Requests to the management node of one entity."""

    def __init__(self, net: Network, native: str = "q", client: Client | None = None) -> None:
        address = serve(net.space, native)
        self.net = net
        self.client = client or net.connect()
        self.receiver = self.client.receiver(address, credit=1000)
        self.sender = self.client.sender(address)

    def ask(
        self,
        operation: str,
        body: object,
        *,
        link: str | None = None,
        message_id: UUID | str | None = None,
    ) -> Answer:
        """Ask, and expect an answer that is correlated with the same type of id."""
        id = message_id or uuid4()
        properties: dict[str, object] = {
            "operation": f"com.microsoft:{operation}",
            "type": "entity-mgmt",
            "com.microsoft:server-timeout": UInt(60_000),
        }
        if link is not None:
            properties["associated-link-name"] = link
        self.sender.send_sections(
            Properties(message_id=id), ApplicationProperties(properties), AmqpValue(body)
        )
        (delivery,) = self.receiver.deliveries
        self.receiver.settle(Accepted())
        answer = read_answer(delivery.payload)
        assert answer.about.correlation_id == id and type(answer.about.correlation_id) is type(id)
        assert answer.properties["status-code"] == answer.status
        assert answer.properties["status-description"] == answer.description
        return answer

    def body(self, operation: str, body: object, *, link: str | None = None) -> dict[str, object]:
        """Return the body of an answer to a request that succeeds."""
        answer = self.ask(operation, body, link=link)
        assert answer.status == 200, answer.description
        return answer.map()

    def refused(
        self, operation: str, body: object, *, link: str | None = None
    ) -> tuple[int, object]:
        """Return the status and the condition of an answer to a request that fails."""
        answer = self.ask(operation, body, link=link)
        condition = answer.properties["errorCondition"]
        assert answer.properties["error-condition"] == condition
        return answer.status, condition


def uuids(*tags: bytes) -> Array:
    """The lock tokens of delivery-tags, as clients send them."""
    return Array("uuid", [UUID(bytes_le=tag) for tag in tags])


def longs(*numbers: int) -> Array:
    return Array("long", numbers)


def encoded(
    body: bytes, due: int | None = None, group: str | None = None, subject: str | None = None
) -> bytes:
    """An encoded message, with the time of its delivery if it is scheduled."""
    annotations: dict[str | int, object] = {}
    if due is not None:
        annotations["x-opt-scheduled-enqueue-time"] = Timestamp(due)
    return encode(
        Header(durable=True),
        MessageAnnotations(annotations),
        Properties(message_id="m", group_id=group, subject=subject),
        Data(value=body),
    )
