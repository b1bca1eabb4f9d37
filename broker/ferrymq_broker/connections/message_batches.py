"""Batches of messages in one delivery, as Azure's clients send them: message-format 0x80013700.

Each data section of such a delivery is an encoded message of its own; the sections in front of them
repeat what the messages have in common. A client that does not know the format could not use it. So
a node with the setting `unpack-batches` takes the messages one by one, and so does a stream whose
sender has agreed on batches (`ferrymq.batches`). All others reject the delivery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from ferrymq.batches import BATCH_FORMAT, SECTION_BYTES
from ferrymq_broker.nodes.message import BrokerMessage, admit
from ferrymq_broker.nodes.node import BOUNDLESS, Refusal, refuse_together
from ferrymq_broker.nodes.sections import section_at, section_end
from ferrymq_codec import codes
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


def split(payload: bytes) -> tuple[list[bytes], object]:
    """Return the encoded messages of a batch, and the partition key for all of them, None without
    one. Raises `DecodeError` if the batch is malformed."""
    messages: list[bytes] = []
    key: object = None
    size: i64 = len(payload)
    pos: i64 = 0
    while pos < size:
        if (
            pos + SECTION_BYTES <= size
            and payload[pos] == codes.DESCRIBED
            and payload[pos + 1] == codes.SMALL_ULONG
            and payload[pos + 2] == DATA
            and payload[pos + 3] == codes.BINARY32
            and len(messages) < MAX_MESSAGES
        ):
            # This is true for nearly all sections.
            begin = pos + SECTION_BYTES
            last = begin + (i64(read_i32_be(payload, pos + 4)) & 0xFFFFFFFF)
            if last <= size:
                messages.append(payload[begin:last])
                pos = last
                continue
        code = section_at(payload, pos)
        end = section_end(payload, pos)
        reader = Reader(payload, pos, end)
        reader.budget = SECTION_ELEMENTS
        reader.read_descriptor("batch")
        if code == DATA:
            if len(messages) >= MAX_MESSAGES:
                raise DecodeError(pos, "batch", f"the batch has more than {MAX_MESSAGES} messages")
            messages.append(reader.read_binary("batch"))
        elif code == MESSAGE_ANNOTATIONS:
            key = decode_message_annotations(reader).value.get(PARTITION_KEY)
        elif code not in _ENVELOPE:
            raise DecodeError(pos, "batch", "the messages of a batch must be data sections")
        pos = end
    if not messages:
        raise DecodeError(size, "batch", "the batch has no messages")
    return messages, key


def admit_part(payload: bytes, key: object) -> BrokerMessage:
    """Return a message of a batch, with the partition key of the batch. Raises `DecodeError`."""
    message = admit(payload, 0)
    if key is None:
        return message
    return admit(message.annotated({PARTITION_KEY: key}).payload, 0)


def unpack(payload: bytes) -> list[BrokerMessage]:
    """Return the messages of a batch. Raises `DecodeError` if it or one of its messages is
    malformed."""
    parts, key = split(payload)
    return [admit_part(part, key) for part in parts]


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
