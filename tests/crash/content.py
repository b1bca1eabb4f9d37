"""What the messages of a run carry: who they are, bytes that follow from that, and a checksum."""

from __future__ import annotations

from hashlib import shake_128
from typing import Final
from zlib import crc32

from ferrymq import Message

_CHECKSUM: Final = 4


class WrongContent(Exception):
    """A message came that is not what was sent."""


def compose(seed: int, id: str, size: int) -> bytes:
    """The body of the message `id`, with `size` bytes that nobody else has."""
    data = f"{id} {size} ".encode() + _fill(seed, id, size)
    return crc32(data).to_bytes(_CHECKSUM, "big") + data


def identify(seed: int, message: Message) -> str:
    """Who a message is. Raises `WrongContent` unless it is that to the last byte."""
    body = message.body
    if not isinstance(body, bytes):
        raise WrongContent(f"{message.message_id!r} has a body of type {type(body).__name__}")
    checksum, data = body[:_CHECKSUM], body[_CHECKSUM:]
    if crc32(data) != int.from_bytes(checksum, "big"):
        raise WrongContent(f"{message.message_id!r} has a wrong checksum, {len(body)} bytes")
    id, size, fill = data.split(b" ", 2)
    name = id.decode()
    if fill != _fill(seed, name, int(size)):
        raise WrongContent(f"{name} has bytes of another message")
    properties = (message.message_id, message.subject, message.application_properties.get("id"))
    if properties != (name, name, name):
        raise WrongContent(f"{name} came with the properties {properties}")
    return name


def message(seed: int, id: str, size: int, **fields: object) -> Message:
    """The message `id`, durable unless the fields say otherwise."""
    durable = bool(fields.pop("durable", True))
    return Message(
        compose(seed, id, size),
        message_id=id,
        subject=id,
        application_properties={"id": id},
        durable=durable,
        **fields,  # type: ignore[arg-type]
    )


def _fill(seed: int, id: str, size: int) -> bytes:
    return shake_128(f"{seed} {id}".encode()).digest(size)
