"""Work that looks at much, a little at a time: whoever asks for it, nobody else waits for long."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Final, Protocol, TypeVar

from ferrymq_broker.broker import Broker
from ferrymq_broker.management.operation import Result
from ferrymq_broker.nodes.request import Request

T = TypeVar("T")

# Does a little between two yields, and has a result in the end. Yields True where it can only wait.
Steps = Generator[object, None, T]

# Names that are looked at in one step, and entities whose attributes are read in one.
_STEP: Final = 250
ROWS: Final = 50
# Seconds of work in one pass of the broker.
_SLICE: Final = 0.004
# Requests of one connection that may wait.
WAITING: Final = 1000
# Operations that change nothing.
_LOOKS: Final = frozenset({"READ", "QUERY", "PEEK", "PEEK-SCHEDULED", "RANGES", "LOCATE"})


def looks(request: Request) -> bool:
    """Whether the operation changes nothing."""
    operation = request.application_properties.get("operation")
    return isinstance(operation, str) and (operation in _LOOKS or operation.startswith("GET-"))


def _is_wanted(request: Request) -> bool:
    """Whether to go on: a change is made whole, and a look is for somebody who waits for it."""
    way = request.way
    return not looks(request) or (way is not None and not way.deleted)


def sift(names: Iterable[str], keep: Callable[[str], bool]) -> Steps[list[str]]:
    """Those of the names that are to be kept."""
    found: list[str] = []
    for at, name in enumerate(names, 1):
        if keep(name):
            found.append(name)
        if at % _STEP == 0:
            yield None
    return found


def finish(steps: Steps[T]) -> T:
    """All of it at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def when_over(work: Ending, result: Callable[[], Result]) -> Result | Steps[Result]:
    """The result of work that has begun: now if the work is over, or as soon as it is."""
    return result() if work.over else _wait(work, result)


def _wait(work: Ending, result: Callable[[], Result]) -> Steps[Result]:
    while not work.over:
        yield True
    return result()


class Ending(Protocol):
    """Work that the broker does in slices."""

    @property
    def over(self) -> bool:
        """Whether it is done."""


class SlicedJob:
    """A request that is being worked on."""

    def __init__(self, request: Request, steps: Steps[Result]) -> None:
        self.request = request
        self.steps = steps
        self.result: Result | None = None
        # Whether its last step could only wait.
        self.waits = False

    def go_on(self, until: float) -> bool:
        """Work until a time, or until there is a result; whether there is. One step at least."""
        self.waits = False
        while True:
            try:
                if next(self.steps) is True:
                    self.waits = True
                    return False
            except StopIteration as end:
                self.result = end.value
                return True
            if time.perf_counter() >= until:
                return False


class SliceQueue:
    """The jobs of one management node. Connections take turns, each has its own in their order.

    `step(job, until)` goes on with a job: whether that is over, and answered. Each turn is a pass
    of the broker's own.
    """

    def __init__(self, broker: Broker, step: Callable[[SlicedJob, float], bool]) -> None:
        self._broker = broker
        self._step = step
        self._jobs: dict[int, deque[SlicedJob]] = {}
        # Seconds of work since the event loop was last given a chance.
        self._spent = 0.0

    def waiting(self, connection: int) -> int:
        """How many requests of a connection wait."""
        return len(self._jobs.get(connection, ()))

    def add(self, job: SlicedJob) -> bool:
        """Begin a job, if there is time; whether it is over already."""
        connection = int(job.request.party.connection)
        if not self._jobs and self._spent < _SLICE:
            begun = time.perf_counter()
            over = self._step(job, begun + _SLICE - self._spent)
            self._spent += time.perf_counter() - begun
            if over:
                return True
        if not self._jobs:
            self._broker.soon(self._turn)
        self._jobs.setdefault(connection, deque()).append(job)
        return False

    def _turn(self) -> None:
        begun = time.perf_counter()
        self._spent = 0.0
        # How many have been asked in vain, one after the other.
        waiting = 0
        while self._jobs and waiting < len(self._jobs):
            connection = next(iter(self._jobs))
            line = self._jobs.pop(connection)
            request = line[0].request
            if _is_wanted(request):
                over = self._step(line[0], begun + _SLICE)
            else:
                request.free_room()
                over = True
            if over:
                line.popleft()
                waiting = 0
            elif line[0].waits:
                waiting += 1
            else:
                waiting = 0
            if line:
                self._jobs[connection] = line
            if time.perf_counter() - begun >= _SLICE:
                break
        if self._jobs:
            self._broker.soon(self._turn)
        self._broker.finish_pass()
