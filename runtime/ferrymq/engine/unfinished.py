"""Bytes of messages of which only the first frames have come, and how many there may be.

A sender may begin a message on every link and finish none (AMQP 1.0 §2.7.5, `more`). What it has
sent of them is counted for its connection, and for all that share a `Budget`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq.engine.receiver import ReceiverLink

# A piece in memory takes so many bytes more than it has.
PIECE_OVERHEAD: Final = 64
# What pieces may waste, whatever they have.
_WASTE: Final = 4096


@final
class Budget:
    """What several connections may hold together, in bytes; `limit` 0 is no limit."""

    __slots__ = ("limit", "held")

    def __init__(self, limit: i64 = 0) -> None:
        self.limit: i64 = limit
        self.held: i64 = 0


@final
class Unfinished:
    """What one connection holds, in bytes; `limit` 0 is no limit. `shared` counts it as well."""

    __slots__ = ("limit", "held", "shared")

    def __init__(self, limit: i64, shared: Budget) -> None:
        self.limit: i64 = limit
        self.held: i64 = 0
        self.shared = shared

    def add(self, link: ReceiverLink, size: i64) -> bool:
        """Count `size` more bytes of the unfinished delivery; false if that is too much."""
        link._counted += size
        self.held += size
        shared = self.shared
        shared.held += size
        return (self.limit == 0 or self.held <= self.limit) and (
            shared.limit == 0 or shared.held <= shared.limit
        )

    def end(self, link: ReceiverLink) -> None:
        """Count nothing more for the link: its delivery is complete, or will never be."""
        size = link._counted
        link._counted = 0
        self.held -= size
        self.shared.held -= size

    def clear(self) -> None:
        """The connection is over: what it held is not counted any more, and not twice."""
        self.shared.held -= self.held
        self.shared = Budget()


def is_wasteful(pieces: i64, size: i64) -> bool:
    """Whether so many pieces of `size` bytes in all are better joined: the cost of joining stays
    in proportion to what has arrived, and what pieces waste to what they have."""
    return pieces * PIECE_OVERHEAD > size + _WASTE
