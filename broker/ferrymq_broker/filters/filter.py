"""What every filter is to those who ask it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker.nodes.message_view import view_of

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage


# A filter whose key has so many characters takes as long as two that are simple.
_SIMPLE: Final = 128
# What is in front of a message's body, in bytes, and takes as long to be asked about as nothing.
_SHORT: Final = 512


class Filter:
    """Lets messages pass or not. Equal `key`s mean that two filters let the same messages pass.

    `cost` is how many simple questions one is worth: a selector may have hundreds of terms.
    """

    __slots__ = ("cost", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self.cost: i64 = 1 + len(key) // _SIMPLE

    def price(self, message: BrokerMessage) -> i64:
        """How many simple questions it is worth to ask about a message. Producers make properties
        and annotations as long as they like, and a filter may go through all of them."""
        if len(message.payload) <= _SHORT:
            return self.cost
        return self.cost * (1 + view_of(message).head_size // _SHORT)

    def matches(self, message: BrokerMessage) -> bool:
        """Whether the message passes. Never raises: what cannot be read does not pass."""
        return True
