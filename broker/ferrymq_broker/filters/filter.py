"""What every filter is to those who ask it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import Message


# A filter whose key has so many characters takes as long as two that are simple.
_SIMPLE: Final = 128


class Filter:
    """Lets messages pass or not. Equal `key`s mean that two filters let the same messages pass.

    `cost` is how many simple questions one is worth: a selector may have hundreds of terms.
    """

    __slots__ = ("cost", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self.cost: i64 = 1 + len(key) // _SIMPLE

    def matches(self, message: Message) -> bool:
        """Whether the message passes. Never raises: what cannot be read does not pass."""
        return True
