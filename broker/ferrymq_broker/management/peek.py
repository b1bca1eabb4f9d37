"""Limits of an answer with messages."""

from __future__ import annotations

from typing import Final

from ferrymq_broker.management.errors import BAD_REQUEST, ManagementError
from ferrymq_broker.management.operation import Call

DEFAULT_COUNT: Final = 10
MAX_COUNT: Final = 1000
# Bytes of messages in one answer; the first message may be larger.
MAX_BYTES: Final = 1024 * 1024


def count_of(call: Call) -> int:
    """Return the requested number of messages. Raises `ManagementError`."""
    count = call.number("count", DEFAULT_COUNT)
    if count > MAX_COUNT:
        raise ManagementError(
            BAD_REQUEST, f"count: {count} is too much; at most {MAX_COUNT} messages are allowed"
        )
    return count


class PeekResult:
    """The messages of an answer, as maps, up to its limits."""

    def __init__(self, count: int) -> None:
        self.messages: list[dict[str, object]] = []
        self._count = count
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether no more messages fit."""
        return len(self.messages) >= self._count or self._bytes >= MAX_BYTES

    def add(self, payload: bytes, facts: dict[str, object]) -> bool:
        """Add an encoded message with its facts. Return False if it does not fit."""
        if self.messages and self._bytes + len(payload) > MAX_BYTES:
            self._bytes = MAX_BYTES
            return False
        self._bytes += len(payload)
        self.messages.append({"message": payload, **facts})
        return True
