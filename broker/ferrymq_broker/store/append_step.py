"""The first of two steps of a batch in a cluster: the appender confirms it.

The second step is the local journal. While a batch is written there, the next one may be with the
appender, so both work at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ferrymq_broker.event_log import log
from ferrymq_broker.store.appender import AppenderOptions

# The number of a batch, the number of its changes, and its parts.
Batch: TypeAlias = tuple[int, int, list[bytes]]


class AppendStep:
    """A place for one batch with the appender, and for one that was confirmed.

    `confirmed` is called when the appender has confirmed a batch, which then waits for `take`.
    After an error nothing more is appended; batches that were confirmed are still written.
    """

    def __init__(self, options: AppenderOptions, confirmed: Callable[[], None]) -> None:
        self.options = options
        self._confirmed = confirmed
        self._under_way: Batch | None = None
        self._waiting: Batch | None = None
        # Whether the appender takes no more batches, and whether that is after an error.
        self._ended = False
        self.is_lost: bool = False

    def is_busy(self, written: Batch | None) -> bool:
        """Return whether no batch may be appended now. `written` is the one that the local journal
        is writing: the next one waits for it only if the local disk has to confirm it too."""
        if self._ended or self._under_way is not None or self._waiting is not None:
            return True
        return self.options.both and written is not None

    def append(self, batch: Batch) -> None:
        """Give a batch to the appender."""
        self._under_way = batch
        self.options.appender.append(*batch, self._appended)

    def _appended(self, error: Exception | None) -> None:
        if self._ended:
            return
        if error is not None:
            self.end()
            self.is_lost = True
            log.warning("the store takes no more changes", reason=str(error))
            self.options.lost(error)
            return
        self._waiting = self._under_way
        self._under_way = None
        self._confirmed()

    def take(self) -> Batch | None:
        """Return the batch that was confirmed, if one waits, and forget it."""
        batch = self._waiting
        self._waiting = None
        return batch

    def end(self) -> None:
        """Append nothing more. A batch under way is forgotten, confirmed or not."""
        self._ended = True
        self._under_way = None
