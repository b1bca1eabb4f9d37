"""Figures of a store: its size, and the speed of its disk."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# Upper bounds in seconds: a fast disk is in the first five, a rotating one in the last but one.
_SECONDS: Final = (25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 0.1, 1.0)
# Upper bounds in bytes.
_SIZES: Final = tuple(4096.0 * 4**power for power in range(8))


class Histogram:
    """A histogram: the number of values up to each of some bounds."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds: list[float] = list(bounds)
        self.counts: list[int] = [0] * (len(self.bounds) + 1)
        self.sum: float = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return each bound with the number of values that are not above it."""
        total = 0
        found: list[tuple[str, float]] = []
        for bound, count in zip([*self.bounds, float("inf")], self.counts, strict=True):
            total += count
            found.append(("+Inf" if bound == float("inf") else f"{bound:g}", total))
        return found


class StoreStats:
    """Figures of the store in `path`, counted by the thread that writes batches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sync_seconds: Histogram = Histogram(_SECONDS)
        self.batch_bytes: Histogram = Histogram(_SIZES)
        # When the last batch was on disk, in seconds since the epoch; 0 before the first one.
        self.last_batch_at: float = 0.0

    def note(self, size: int, seconds: float) -> None:
        """Count a batch on disk: its bytes, and the seconds that writing took."""
        self.batch_bytes.add(size)
        self.sync_seconds.add(seconds)
        self.last_batch_at = time.time()

    def bytes_by_kind(self) -> dict[str, int]:
        """Return the bytes of the files by kind: ``journal``, ``records``, ``pages``."""
        found = {"journal": 0, "records": 0, "pages": 0}
        for folder, kind in ((self.path, ""), (self.path / "pages", "pages")):
            try:
                with os.scandir(folder) as files:
                    for file in files:
                        if not file.is_file():
                            continue
                        own = "records" if file.name.startswith("data.mdb") else "journal"
                        found[kind or own] += file.stat().st_size
            except OSError:
                # The folder does not exist, or a file was removed meanwhile.
                continue
        return found
