"""The fence of a discharge, in the message-annotations of its message.

ferrymq:fence-group     string or symbol
ferrymq:fence-member    string or symbol
ferrymq:fence-sequence  any integer type, below 2^63
ferrymq:fence-width     how many members there are; may be left out
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.fences import Fence

GROUP: Final = "ferrymq:fence-group"
MEMBER: Final = "ferrymq:fence-member"
SEQUENCE: Final = "ferrymq:fence-sequence"
WIDTH: Final = "ferrymq:fence-width"

_MOST: Final = 0x7FFF_FFFF_FFFF_FFFF


def read_fence(annotations: Mapping[str | int, object]) -> Fence | None:
    """The fence, None without one. Raises `BrokerError` for half of one."""
    if not any(key in annotations for key in (GROUP, MEMBER, SEQUENCE, WIDTH)):
        return None
    return Fence(
        _text(annotations, GROUP),
        _text(annotations, MEMBER),
        _number(annotations, SEQUENCE),
        _number(annotations, WIDTH) if WIDTH in annotations else 0,
    )


def _text(annotations: Mapping[str | int, object], key: str) -> str:
    value = annotations.get(key)
    if not isinstance(value, str):
        raise BrokerError("amqp:invalid-field", f"{key} of a fence is missing, or no string")
    return str(value)


def _number(annotations: Mapping[str | int, object], key: str) -> int:
    value = annotations.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise BrokerError("amqp:invalid-field", f"{key} of a fence is missing, or no number")
    return int(value)
