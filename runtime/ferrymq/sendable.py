"""Arguments of `send`: a message, or a value that becomes the body of one."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from ferrymq.message import Message

Sendable: TypeAlias = Message | bytes | bytearray | memoryview | str | dict[Any, Any] | list[Any]
"""A message, or the body of one."""

_BODIES: Final = (bytes, bytearray, memoryview, str, dict, list)


def to_message(value: Sendable, call: str) -> Message:
    """Return the message to send for an argument of the method `call`.

    Raises `TypeError` for a value of any other type.
    """
    if isinstance(value, Message):
        return value
    if isinstance(value, _BODIES):
        return Message(value)
    raise TypeError(f"{call} takes a Message, bytes, str, dict or list, not {type(value).__name__}")


def check_messages(values: object, call: str) -> None:
    """Raise `TypeError` for a single message where many are expected: iterating over it would give
    something else."""
    if isinstance(values, (Message, bytes, bytearray, memoryview, str, dict)):
        raise TypeError(
            f"{call} takes an iterable of messages, not a single {type(values).__name__}: use send"
        )
