"""Bodies: from a Python value to the sections that carry it (AMQP 1.0 §3.2.6–3.2.8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ferrymq_codec.errors import DecodeError, EncodeError
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import AmqpSequence, AmqpValue, Data
from ferrymq_types.registry import typed
from ferrymq_types.transport import Error

BodySection: TypeAlias = Data | AmqpSequence | AmqpValue
"""A section of a body."""


def to_sections(body: Any) -> list[BodySection]:
    """Return the sections of a body given as any value: see the table of `ferrymq.message`."""
    if isinstance(body, bytes):
        return [Data(body)]
    if body is None:
        return [AmqpValue(None)]
    if isinstance(body, (Data, AmqpSequence, AmqpValue)):
        return [body]
    if isinstance(body, (bytearray, memoryview)):
        return [Data(bytes(body))]
    if isinstance(body, list) and body and isinstance(body[0], (Data, AmqpSequence)):
        sections: list[BodySection] = []
        for section in body:
            if not isinstance(section, (Data, AmqpSequence)):
                raise EncodeError("message.body", f"a {type(section).__name__} among body sections")
            sections.append(section)
        check_body(sections)
        return sections
    return [AmqpValue(body)]


def check_body(sections: Sequence[BodySection]) -> None:
    """Raise `EncodeError` unless several sections are all data or all sequences (§3.2)."""
    data = 0
    sequences = 0
    for section in sections:
        if isinstance(section, Data):
            data += 1
        elif isinstance(section, AmqpSequence):
            sequences += 1
    if data != len(sections) and sequences != len(sections):
        raise EncodeError("message.body", "several sections must be all data or all amqp-sequence")


def check_encoding(encoding: str, sections: Sequence[BodySection]) -> None:
    """Raise `EncodeError` unless the content-encoding may go with this body (§3.2.4)."""
    if encoding == "identity":
        raise EncodeError("properties.content-encoding", "identity is said by leaving it out")
    for section in sections:
        if not isinstance(section, Data):
            raise EncodeError("properties.content-encoding", "only data can have an encoding")


def check_rejected(value: object) -> None:
    """Raise `EncodeError` unless the delivery annotation `rejected` is an error (§3.2.2)."""
    if isinstance(value, Described):
        try:
            value = typed(value)
        except DecodeError:
            value = None
    if not isinstance(value, Error):
        raise EncodeError("delivery-annotations.rejected", "not an error")
