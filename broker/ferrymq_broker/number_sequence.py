"""Numbers for connections, sessions, consumers and transactions, each used once in a broker."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class NumberSequence:
    """The numbers 1, 2, 3 …, each of them once; `last` is the latest, 0 before the first."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: i64 = 0

    def next(self) -> i64:
        """Return the next number."""
        self.last += 1
        return self.last
