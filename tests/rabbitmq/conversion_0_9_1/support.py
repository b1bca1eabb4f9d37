"""Short forms for the tests of the conversion."""

from __future__ import annotations

from ferrymq_broker.nodes.message import BrokerMessage, admit
from ferrymq_rabbitmq.amqp_0_9_1.conversion.from_0_9_1 import message_of
from ferrymq_rabbitmq.amqp_0_9_1.conversion.to_0_9_1 import Content, content_of
from ferrymq_types.unions import Section
from ferrymq_types_0_9_1.basic import BasicProperties
from tests.broker.harness import decode, encode

# What the door adds to each message.
ROUTED = {"x-exchange": "sales", "x-routing-key": "eu.fr"}


def published(body: bytes = b"x", /, **properties: object) -> BrokerMessage:
    """The message of a publisher with these properties."""
    fields = BasicProperties(**properties)  # type: ignore[arg-type]
    return message_of(fields.to_bytes(), body, "sales", "eu.fr", 7)


def sections(message: BrokerMessage) -> dict[str, Section]:
    """The sections of a message by the names of their classes."""
    return {type(section).__name__: section for section in decode(message.payload)}


def sent(*parts: Section) -> BrokerMessage:
    """The message of a publisher of AMQP 1.0."""
    return admit(encode(*parts), 0)


def delivered(message: BrokerMessage, failures: int = 0) -> Content:
    """The message as the queue `orders` delivers it."""
    return content_of(message, "orders", failures)


def properties_of(message: BrokerMessage, failures: int = 0) -> BasicProperties:
    """The properties of a message as a consumer of AMQP 0-9-1 gets them."""
    return BasicProperties.from_bytes(delivered(message, failures).properties)
