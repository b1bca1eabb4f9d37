"""Batches of messages in one delivery, as Azure's clients send them: message-format 0x80013700.

Each data section of such a delivery is an encoded message of its own; the sections in front of them
repeat what the messages have in common. A client that receives one without knowing the format sees
garbage. So a node with the setting `unpack-batches` takes the messages one by one, and all others
reject the delivery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker.nodes.message import BrokerMessage, admit
from ferrymq_broker.nodes.node import BOUNDLESS, Refusal
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
"""Messages in one batch: others wait while they are published."""

PARTITION_KEY: Final = "x-opt-partition-key"

_ENVELOPE: Final = (
    HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, FOOTER,
)  # fmt: skip


def unpacks(node: Node) -> bool:
    """Return whether the node, or the one that it is a part of, is set to take batches apart."""
    policy = getattr(node, "policy", None)
    if policy is None:
        whole = getattr(node, "stream", None) or getattr(node, "exchange", None)
        policy = getattr(whole, "policy", None)
    return policy is not None and bool(policy.unpack_batches)


def not_unpacked(address: str) -> Refusal:
    """Make the refusal of a batch for a node that takes none."""
    return Refusal(
        "amqp:not-implemented",
        f"{address[:200]!r} takes no batches (message-format 0x{BATCH_FORMAT:x}): "
        f"send the messages one by one, or set unpack-batches",
    )


def unpack(payload: bytes) -> list[BrokerMessage]:
    """Take a batch apart. Raises `DecodeError` if it or one of its messages is malformed."""
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
                raise DecodeError(pos, "batch", f"more than {MAX_MESSAGES} messages")
            messages.append(admit(reader.read_binary("batch"), 0))
        elif code == MESSAGE_ANNOTATIONS:
            key = decode_message_annotations(reader).value.get(PARTITION_KEY)
        elif code not in _ENVELOPE:
            raise DecodeError(pos, "batch", "the messages of a batch are data sections")
        pos = end
    if not messages:
        raise DecodeError(size, "batch", "no messages")
    if key is not None:
        # The key is for all messages of the batch.
        return [admit(m.annotated({PARTITION_KEY: key}).payload, 0) for m in messages]
    return messages


def publish_batch(
    node: Node, messages: list[BrokerMessage], origin: i64, promised: bool
) -> Refusal | None:
    """Publish the messages of a batch, all of them or none; None if that was done.

    `promised` is whether the node has promised room for one.
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
    reserved: list[tuple[BrokerMessage, list[Node]]] = []
    refusal: Refusal | None = None
    for message in messages:
        message.origin = origin
        holders: list[Node] = []
        refusal = node.reserve(message, holders)
        reserved.append((message, holders))
        if refusal is not None:
            break
    for message, holders in reserved:
        for holder in holders:
            holder.unreserve(message)
    if refusal is None:
        for message in messages:
            refusal = node.publish(message)
            if refusal is not None:
                break
    return refusal
