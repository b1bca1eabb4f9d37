"""The interface to a journal that has to confirm a batch before the store acknowledges it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


class BatchAppender:
    """A journal outside the store. One batch is under way at a time."""

    def append(
        self,
        number: int,
        changes: int,
        parts: Sequence[bytes],
        done: Callable[[Exception | None], None],
    ) -> None:
        """Append a batch, given in parts that follow each other; `changes` is the number of its
        changes.

        `done` is called in the event loop: with None when the batch can no longer be lost; with an
        error when it will never be confirmed, and then the store must not write again. While the
        journal cannot be reached, `done` is not called: the batch is appended later.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AppenderOptions:
    """How a store uses an appender.

    `term` is the leader's term, which the first batch records. `lost` is called, in the event loop,
    with the error after which the appender confirms nothing more. With `both`, a batch is
    acknowledged only when it is also on the local disk.
    """

    appender: BatchAppender
    term: int
    lost: Callable[[Exception], None]
    both: bool = False
