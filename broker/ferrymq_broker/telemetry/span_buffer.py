"""The buffer between the event loop, which records spans, and the thread that exports them."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, NamedTuple

# The estimated size of a record beside its strings, in bytes.
_EACH: Final = 600


class SpanRecord(NamedTuple):
    """A finished span. Times are nanoseconds since the Unix epoch; `kind` is a `SpanKind` of the
    API by its name. `error` is the description of a failure, empty for none."""

    trace_id: str
    span_id: str
    parent_id: str
    parent_is_remote: bool
    state: str
    name: str
    kind: str
    begun: int
    ended: int
    attributes: dict[str, str | int]
    error: str

    def size(self) -> int:
        """Return the estimated size in bytes."""
        texts = sum(len(value) for value in self.attributes.values() if isinstance(value, str))
        return _EACH + len(self.name) + len(self.state) + len(self.error) + texts


class SpanBuffer:
    """Finished spans that wait for their export: at most `most` spans, of at most `most_bytes`.

    `lost` counts the spans for which there was no room, and those that could not be exported;
    `exported` the others. All methods may be called in any thread.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self.lost: int = 0
        self.exported: int = 0
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._records: deque[tuple[SpanRecord, int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def has_room(self) -> bool:
        """Return whether another span would fit; if not, it is lost, and counted."""
        if len(self._records) < self._most and self._bytes < self._most_bytes:
            return True
        with self._lock:
            self.lost += 1
        return False

    def add(self, record: SpanRecord) -> None:
        """Add a span, after `has_room`."""
        size = record.size()
        with self._lock:
            self._records.append((record, size))
            self._bytes += size

    def take(self, most: int) -> list[SpanRecord]:
        """Remove and return up to `most` spans, the oldest first."""
        taken: list[SpanRecord] = []
        with self._lock:
            while self._records and len(taken) < most:
                record, size = self._records.popleft()
                self._bytes -= size
                taken.append(record)
        return taken

    def count(self, spans: int, exported: bool) -> None:
        """Count spans that were taken."""
        with self._lock:
            if exported:
                self.exported += spans
            else:
                self.lost += spans

    def lose(self, spans: int) -> None:
        """Count spans that were never added."""
        self.count(spans, False)
