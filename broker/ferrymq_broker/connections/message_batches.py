"""Batches of messages in one delivery, as Azure's clients send them: message-format 0x80013700.

Each data section of such a delivery is an encoded message of its own; the sections in front of them
repeat what the messages have in common. A client that does not know the format could not use it. So
a node with the setting `unpack-batches` takes the messages one by one, and all others reject the
delivery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker.nodes.message import BrokerMessage, admit
from ferrymq_broker.nodes.node import BOUNDLESS, Refusal, refuse_together
from ferrymq_broker.nodes.sections import section_at, section_end
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.limits import SECTION_ELEMENTS
from ferrymq_codec.reader import Reader
from ferrymq_types.descriptors import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from ferrymq_types.messaging import decode_message_annotations

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Node

BATCH_FORMAT: Final = 0x80013700
MAX_MESSAGES: Final = 10_000
"""The most messages in one batch, because other clients wait while they are published."""

PARTITION_KEY: Final = "x-opt-partition-key"

_ENVELOPE: Final = (
    HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, FOOTER,
)  # fmt: skip


def unpacks(node: Node) -> bool:
    """Return whether the node, or the node of which it is a part, has `unpack-batches` set."""
    policy = getattr(node, "policy", None)
    if policy is None:
        whole = getattr(node, "stream", None) or getattr(node, "exchange", None)
        policy = getattr(whole, "policy", None)
    return policy is not None and bool(policy.unpack_batches)


def not_unpacked(address: str) -> Refusal:
    """Return the refusal of a batch for a node without `unpack-batches`."""
    return Refusal(
        "amqp:not-implemented",
        f"{address[:200]!r} takes no batches (message-format 0x{BATCH_FORMAT:x}): send the "
        "messages one by one, or set unpack-batches for the node",
    )


def unpack(payload: bytes) -> list[BrokerMessage]:
    """Return the messages of a batch. Raises `DecodeError` if it or one of its messages is
    malformed."""
    messages: list[BrokerMessage] = []
    key: object = None
    size: i64 = len(payload)
    pos: i64 = 0
    while pos < size:
        code = section_at(payload, pos)
        end = section_end(payload, pos)
        reader = Reader(payload, pos, end)
        reader.budget = SECTION_ELEMENTS
        reader.read_descriptor("batch")
        if code == DATA:
            if len(messages) >= MAX_MESSAGES:
                raise DecodeError(pos, "batch", f"the batch has more than {MAX_MESSAGES} messages")
            messages.append(admit(reader.read_binary("batch"), 0))
        elif code == MESSAGE_ANNOTATIONS:
            key = decode_message_annotations(reader).value.get(PARTITION_KEY)
        elif code not in _ENVELOPE:
            raise DecodeError(pos, "batch", "the messages of a batch must be data sections")
        pos = end
    if not messages:
        raise DecodeError(size, "batch", "the batch has no messages")
    if key is not None:
        # The partition key of the batch is for all its messages.
        return [admit(m.annotated({PARTITION_KEY: key}).payload, 0) for m in messages]
    return messages


def publish_batch(
    node: Node, messages: list[BrokerMessage], origin: i64, promised: bool
) -> Refusal | None:
    """Publish all messages of a batch, or none; return None if they were published.

    `promised` is whether the node has promised room for one of them.
    """
    room = node.room()
    if room != BOUNDLESS:
        room -= node.pledged()
        if promised:
            room += 1
        if room < len(messages):
            return Refusal(
                "amqp:resource-limit-exceeded",
                f"{node.address[:200]!r} has no room for {len(messages)} messages",
            )
    for message in messages:
        message.origin = origin
    refusal = refuse_together(node, messages)
    if refusal is None:
        for message in messages:
            refusal = node.publish(message)
            if refusal is not None:
                break
    return refusal
