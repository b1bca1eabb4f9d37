"""Content headers of AMQP 0-9-1: the payload of a header frame.

Only `DecodeError` may leave the decoder. What it gives can be encoded, and that means the same.
"""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

from librt.strings import BytesWriter

from ferrymq_codec.errors import DecodeError
from ferrymq_codec_0_9_1 import frames
from ferrymq_types_0_9_1 import registry
from ferrymq_types_0_9_1.basic import BasicProperties
from tests.fuzz.mutation.octets import mutate_octets


def one(data: bytes) -> None:
    """Decode; if that works, encode and decode again."""
    try:
        class_id, size, properties = registry.decode_properties(data)
    except DecodeError as error:
        assert 0 <= error.offset <= len(data), error
        assert error.field
        return
    assert registry.split_header(data)[:2] == (class_id, size)
    first = _frame(class_id, size, properties)
    again = registry.decode_properties(first, frames.PAYLOAD, len(first) - 1)
    assert _frame(*again) == first
    assert len(repr(properties)) >= 0


def _frame(class_id: int, size: int, properties: BasicProperties) -> bytes:
    w = BytesWriter()
    registry.write_header_frame(w, 1, class_id, size, properties)
    return w.getvalue()


def seeds() -> list[bytes]:
    """No properties, each one alone, and all of them."""
    values: dict[str, object] = dict.fromkeys(
        (
            *("content_type", "content_encoding", "correlation_id", "reply_to", "expiration"),
            *("message_id", "type", "user_id", "app_id", "reserved"),
        ),
        "text",
    )
    values |= {"headers": {"a": [1, 1.5, b"x"]}, "delivery_mode": 2, "priority": 4}
    values |= {"timestamp": datetime(2026, 1, 1, tzinfo=UTC)}
    sets = [{}, values, *({name: value} for name, value in values.items())]
    return [
        _frame(60, 10, BasicProperties(**held))[frames.PAYLOAD : -1]  # type: ignore[arg-type]
        for held in sets
    ]


def mutate(random: Random, data: bytes) -> bytes:
    """Other octets."""
    return mutate_octets(random, data)
