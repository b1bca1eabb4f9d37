"""An executor that measures how long the disk takes."""

from __future__ import annotations

import asyncio
import time

from ferrymq_broker.monitoring.store_stats import StoreStats
from ferrymq_broker.store.executor import Call, Done, LoopExecutor
from ferrymq_broker.store.journal import Placement


class TimedExecutor(LoopExecutor):
    """An executor that counts in `figures` the batches that it writes to the journal."""

    def __init__(self, loop: asyncio.AbstractEventLoop, figures: StoreStats) -> None:
        super().__init__(loop)
        self._figures = figures

    def write(self, call: Call, done: Done) -> None:
        """See `Executor.write`."""
        placement = getattr(call, "__self__", None)
        size = placement.size if isinstance(placement, Placement) else 0

        def measured() -> None:
            begun = time.perf_counter()
            call()
            self._figures.note(size, time.perf_counter() - begun)

        super().write(measured, done)
