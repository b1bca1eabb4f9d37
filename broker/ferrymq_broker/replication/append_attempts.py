"""The attempts to append one batch to the shared journal, until the result is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ferrymq_broker.replication.errors import JournalUnavailable
from ferrymq_broker.replication.shared_journal import SharedJournal
from ferrymq_broker.replication.waiting import Cancel, Later

# Seconds before the next attempt; the last one is used again and again.
PAUSES: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
# Seconds after which producers should wait.
PATIENCE: Final = 1.0


class AppendAttempts:
    """A batch on its way into the shared journal.

    An attempt whose result is unknown is confirmed; if the batch is not in the journal, it is
    appended again. `ended` is called once: with None when the batch is committed, or with the error
    that makes a further attempt useless. `waiting` is called with True if this takes long, and then
    with False before the successful end.
    """

    def __init__(
        self,
        journal: SharedJournal,
        later: Later,
        term: int,
        waiting: Callable[[bool], None],
        ended: Callable[[Exception | None], None],
    ) -> None:
        self._journal = journal
        self._later = later
        self._term = term
        self._waiting = waiting
        self._ended = ended
        self._number = 0
        self._changes = 0
        self._parts: Sequence[bytes] = ()
        self._failures = 0
        self._is_late = False
        self._is_over = False
        self._cancel_pause: Cancel | None = None
        self._cancel_patience: Cancel | None = None

    def start(self, number: int, changes: int, parts: Sequence[bytes]) -> None:
        """Make the first attempt to append this batch."""
        self._number = number
        self._changes = changes
        self._parts = parts
        self._cancel_patience = self._later(PATIENCE, self._be_late)
        self._append()

    def cancel(self) -> None:
        """Do nothing more. `ended` is not called."""
        self._is_over = True
        for cancel in (self._cancel_pause, self._cancel_patience):
            if cancel is not None:
                cancel()

    def _append(self) -> None:
        self._journal.append(
            self._term, self._number, self._changes, self._parts, self._on_appended
        )

    def _on_appended(self, result: Exception | None) -> None:
        if self._is_over:
            return
        if isinstance(result, JournalUnavailable):
            self._pause()
        else:
            self._end(result)

    def _pause(self) -> None:
        seconds = PAUSES[min(self._failures, len(PAUSES) - 1)]
        self._failures += 1
        self._cancel_pause = self._later(seconds, self._confirm)

    def _confirm(self) -> None:
        if not self._is_over:
            self._journal.confirm(self._term, self._number, self._on_confirmed)

    def _on_confirmed(self, result: bool | Exception) -> None:
        if self._is_over:
            return
        if isinstance(result, JournalUnavailable):
            self._pause()
        elif isinstance(result, Exception):
            self._end(result)
        elif result:
            self._end(None)
        else:
            self._append()

    def _be_late(self) -> None:
        if not self._is_over:
            self._is_late = True
            self._waiting(True)

    def _end(self, error: Exception | None) -> None:
        self.cancel()
        if self._is_late and error is None:
            self._waiting(False)
        self._ended(error)
