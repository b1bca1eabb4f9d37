"""The store's threads, as timers: a call takes as long as the disk takes and is made at the end."""

from __future__ import annotations

import random

from ferrymq_broker.store.executor import Call, Done, Executor
from tests.simulation.disk import Interrupted, SimulatedDisk
from tests.simulation.loop import SimulatedLoop
from tests.simulation.process import SimulatedProcess


class SimulatedExecutor(Executor):
    """Two queues of calls, one at a time each. `stop` leaves what is under way half done."""

    def __init__(
        self, loop: SimulatedLoop | SimulatedProcess, disk: SimulatedDisk, rng: random.Random
    ) -> None:
        self._loop = loop
        self._disk = disk
        self._rng = rng
        self._writes: list[tuple[Call, Done]] = []
        self._commits: list[tuple[Call, Done]] = []
        self.stopped = False
        # Called when a call stops in the middle, with the process.
        self.interrupted: Call = _do_nothing

    def write(self, call: Call, done: Done) -> None:
        self._give(self._writes, call, done, 0.002)

    def commit(self, call: Call, done: Done) -> None:
        self._give(self._commits, call, done, 0.02)

    def soon(self, call: Call) -> None:
        self._loop.call_soon(self._unless_stopped, call)

    def later(self, seconds: float, call: Call) -> None:
        self._loop.call_later(seconds, self._unless_stopped, call)

    def time(self) -> float:
        return self._loop.time()

    def drain(self) -> None:
        while self._writes or self._commits:
            self._make(self._writes or self._commits)

    def close(self) -> None:
        self.stopped = True

    def stop(self) -> None:
        """The process is gone. The calls that were under way stop somewhere."""
        self.stopped = True
        for queue in (self._writes, self._commits):
            if queue:
                self._disk.finish_with(queue[0][0])
            queue.clear()

    def _unless_stopped(self, call: Call) -> None:
        if not self.stopped:
            call()

    def _give(self, queue: list[tuple[Call, Done]], call: Call, done: Done, mean: float) -> None:
        queue.append((call, done))
        if len(queue) == 1:
            self._start(queue, mean)

    def _start(self, queue: list[tuple[Call, Done]], mean: float) -> None:
        seconds = self._rng.expovariate(1 / mean)
        if self._rng.random() < 0.01:
            seconds *= 100
        self._loop.call_later(seconds, self._finish, queue, mean)

    def _finish(self, queue: list[tuple[Call, Done]], mean: float) -> None:
        if self.stopped or not queue:
            return
        self._make(queue)
        if queue:
            self._start(queue, mean)

    def _make(self, queue: list[tuple[Call, Done]]) -> None:
        call, done = queue.pop(0)
        failed: Exception | None = None
        try:
            call()
        except Interrupted:
            self.interrupted()
            return
        except Exception as error:
            failed = error
        done(failed)


def _do_nothing() -> None:
    """The process has ended already."""
