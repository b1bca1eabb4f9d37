"""Limits on the bytes of messages of which only the first frames have arrived.

A sender may begin a message on every link and finish none (AMQP 1.0 §2.7.5, `more`). Their bytes
are counted for the connection, and for all connections that share a `Budget`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq.engine.receiver import ReceiverLink

# Bytes of memory that a piece needs besides its data.
PIECE_OVERHEAD: Final = 64
# Bytes of memory that pieces may waste, independent of their size.
_WASTE: Final = 4096


@final
class Budget:
    """Bytes that several connections may hold together; a `limit` of 0 is no limit."""

    __slots__ = ("limit", "held")

    def __init__(self, limit: i64 = 0) -> None:
        self.limit: i64 = limit
        self.held: i64 = 0


@final
class Unfinished:
    """Bytes that one connection holds; a `limit` of 0 is no limit. `shared` counts them as well."""

    __slots__ = ("limit", "held", "shared")

    def __init__(self, limit: i64, shared: Budget) -> None:
        self.limit: i64 = limit
        self.held: i64 = 0
        self.shared: Budget = shared

    def add(self, link: ReceiverLink, size: i64) -> bool:
        """Count more bytes of an incomplete message on the link; return false if that is too
        much."""
        link._counted += size
        self.held += size
        shared = self.shared
        shared.held += size
        return (self.limit == 0 or self.held <= self.limit) and (
            shared.limit == 0 or shared.held <= shared.limit
        )

    def end(self, link: ReceiverLink) -> None:
        """Stop counting the incomplete message on the link: it is complete, or its rest will never
        arrive."""
        size = link._counted
        link._counted = 0
        self.held -= size
        self.shared.held -= size

    def clear(self) -> None:
        """Stop counting all bytes of a connection that is over, once."""
        self.shared.held -= self.held
        self.shared = Budget()


def is_wasteful(pieces: i64, size: i64) -> bool:
    """Return whether `pieces` pieces of `size` bytes in all should be joined. The cost of joining
    stays proportional to the data that has arrived, and the wasted memory to the size of the
    data."""
    return pieces * PIECE_OVERHEAD > size + _WASTE
