"""The fence of a discharge, in the message-annotations of its message.

ferrymq:fence-group     string or symbol
ferrymq:fence-member    string or symbol
ferrymq:fence-sequence  any integer type, below 2^63
ferrymq:fence-width     how many members there are; may be left out
ferrymq:fence-target    string or symbol: where it writes to; may be left out
ferrymq:fence-rows      any integer type: how many rows it writes; goes with the digest
ferrymq:fence-digest    binary, 1 to 64 bytes: what it writes; may be left out
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.fences import MAX_DIGEST, FenceRecord

GROUP: Final = "ferrymq:fence-group"
MEMBER: Final = "ferrymq:fence-member"
SEQUENCE: Final = "ferrymq:fence-sequence"
WIDTH: Final = "ferrymq:fence-width"
TARGET: Final = "ferrymq:fence-target"
ROWS: Final = "ferrymq:fence-rows"
DIGEST: Final = "ferrymq:fence-digest"

_ALL: Final = (GROUP, MEMBER, SEQUENCE, WIDTH, TARGET, ROWS, DIGEST)

_MOST: Final = 0x7FFF_FFFF_FFFF_FFFF


def read_fence(annotations: Mapping[str | int, object]) -> FenceRecord | None:
    """Return the fence, None without one. Raises `BrokerError` for an incomplete fence."""
    if not any(key in annotations for key in _ALL):
        return None
    digest = annotations.get(DIGEST, b"")
    if not isinstance(digest, bytes) or len(digest) > MAX_DIGEST:
        raise BrokerError(
            "amqp:invalid-field",
            f"{DIGEST} of a fence must be a binary of at most {MAX_DIGEST} bytes",
        )
    return FenceRecord(
        _text(annotations, GROUP),
        _text(annotations, MEMBER),
        _number(annotations, SEQUENCE),
        _number(annotations, WIDTH) if WIDTH in annotations else 0,
        _text(annotations, TARGET) if TARGET in annotations else "",
        _number(annotations, ROWS) if digest else 0,
        digest,
    )


def _text(annotations: Mapping[str | int, object], key: str) -> str:
    value = annotations.get(key)
    if not isinstance(value, str):
        raise BrokerError("amqp:invalid-field", f"{key} of a fence is missing, or is not a string")
    return str(value)


def _number(annotations: Mapping[str | int, object], key: str) -> int:
    value = annotations.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise BrokerError("amqp:invalid-field", f"{key} of a fence is missing, or is not a number")
    return int(value)
