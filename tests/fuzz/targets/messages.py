"""Messages as the broker takes them in and as clients read them."""

from __future__ import annotations

import contextlib
from random import Random

from ferrymq import Message
from ferrymq_broker.cli.rendering import as_json, as_text
from ferrymq_broker.nodes.message import admit, restore
from ferrymq_broker.nodes.message_view import MessageView, view_of
from ferrymq_codec.errors import DecodeError
from tests.fuzz.mutation.values import mutate_values
from tests.fuzz.pool import MESSAGES

_FACTS = [name for name in vars(MessageView) if not name.startswith("_") and name != "message"]


def one(data: bytes) -> None:
    """Take the message in, look at all that the broker can look at, decode it as a client does."""
    if not data:
        return
    payload = data[1:]
    _in_broker(payload, 0 if data[0] < 250 else data[0] << 8)
    try:
        message = Message.decode(payload)
        message.body, message.body_sections  # noqa: B018 - decoded when asked for
    except DecodeError:
        return
    as_text(message)
    as_json(message)
    assert len(repr(message)) > 0


def _in_broker(payload: bytes, format: int) -> None:
    try:
        message = admit(payload, format)
    except DecodeError:
        return
    restore(message.payload, format, message.special, 1)
    facts = view_of(message)
    for name in _FACTS:
        value = getattr(facts, name)
        if callable(value):
            value()
    with contextlib.suppress(DecodeError):
        message.to()
    again = message.redelivery(3)
    assert admit(again, format).durable == message.durable
    with contextlib.suppress(DecodeError):
        message.annotated({"x-opt-test": 1})


def seeds() -> list[bytes]:
    """Messages of every section."""
    return [bytes((format,)) + message for format in (0, 251) for message in MESSAGES]


def mutate(random: Random, data: bytes) -> bytes:
    """Other sections, or other values in them."""
    if random.random() < 0.1:
        return data + random.choice(MESSAGES)
    return (data[:1] or b"\0") + mutate_values(random, data[1:])
