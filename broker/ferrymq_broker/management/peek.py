"""Limits of an answer with messages."""

from __future__ import annotations

from typing import Final

from ferrymq_broker.management.errors import BAD_REQUEST, ManagementError
from ferrymq_broker.management.operation import Call
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.queues.lifecycle.dead_letters import PREFIX, REASON

DEFAULT_COUNT: Final = 10
MAX_COUNT: Final = 1000
# Bytes of messages in one answer; the first message may be larger.
MAX_BYTES: Final = 1024 * 1024
# What the annotations of a dead letter tell.
_DEATH: Final = (
    "reason",
    "source",
    "time",
    "count",
    "condition",
    "description",
    "first-reason",
    "first-source",
)


def count_of(call: Call) -> int:
    """Return the requested number of messages. Raises `ManagementError`."""
    count = call.number("count", DEFAULT_COUNT)
    if count > MAX_COUNT:
        raise ManagementError(
            BAD_REQUEST, f"count: {count} is too much; at most {MAX_COUNT} messages are allowed"
        )
    return count


def death_of(message: BrokerMessage) -> dict[str, object]:
    """Return why a message is a dead letter, from its annotations without their prefix; empty if it
    is none."""
    annotations = view_of(message).message_annotations
    if not isinstance(annotations.get(REASON), str):
        return {}
    told = {name: annotations.get(PREFIX + name) for name in _DEATH}
    # A client may have written anything there.
    return {name: value for name, value in told.items() if isinstance(value, str | int)}


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
