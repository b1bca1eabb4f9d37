"""The base class of filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker.nodes.message_view import view_of

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage


# A filter whose key has this number of characters costs as much as two simple filters.
_SIMPLE: Final = 128
# Up to this number of bytes, the sections before the body add nothing to the cost.
_SHORT: Final = 512


class Filter:
    """A filter of messages. Two filters with equal keys let the same messages pass.

    `cost` is the cost in simple comparisons: a selector may have hundreds of terms.
    """

    __slots__ = ("cost", "key")

    def __init__(self, key: str) -> None:
        self.key: str = key
        self.cost: i64 = 1 + len(key) // _SIMPLE

    def price(self, message: BrokerMessage) -> i64:
        """Return the cost of filtering a message, in simple comparisons. A filter may read all
        properties and annotations, and producers may make these very long."""
        if len(message.payload) <= _SHORT:
            return self.cost
        return self.cost * (1 + view_of(message).head_size // _SHORT)

    def matches(self, message: BrokerMessage) -> bool:
        """Return whether the message passes. Never raises: an unreadable message does not pass."""
        return True
