"""Long management requests in slices, so that other clients do not wait long."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Final, Protocol, TypeVar

from ferrymq_broker.broker import Broker
from ferrymq_broker.management.operation import Result
from ferrymq_broker.nodes.request import Request

T = TypeVar("T")

# A generator that does a little work between two yields, and returns a result. It yields True if it
# can only wait.
Steps = Generator[object, None, T]

# The names that are checked in one step, and the entities whose attributes are read in one step.
_STEP: Final = 250
ROWS: Final = 50
# Seconds of work in one pass of the broker.
_SLICE: Final = 0.004
# The most waiting requests of one connection.
WAITING: Final = 1000
# Operations that change nothing.
_LOOKS: Final = frozenset(
    {
        "READ",
        "QUERY",
        "PEEK",
        "PEEK-SCHEDULED",
        "RANGES",
        "LOCATE",
        "LIST-SESSIONS",
        "LIST-LEASES",
        "LIST-LINKS",
        "HISTORY",
        "TRACE",
        "GET-CONFIGURATION",
    }
)


# Operations of receivers on messages and sessions that they hold. They are as frequent as outcomes
# on links, which are not in the audit log either.
_TRAFFIC: Final = (
    "RENEW-LOCKS",
    "SETTLE",
    "RECEIVE-DEFERRED",
    "RENEW-SESSION",
    "SET-SESSION-STATE",
    "LEASE",
    "RENEW-LEASES",
    "SETTLE-LEASES",
)


def is_traffic(request: Request) -> bool:
    """Return whether the operation is a part of the traffic of messages."""
    return request.application_properties.get("operation") in _TRAFFIC


def looks(request: Request) -> bool:
    """Return whether the operation changes nothing."""
    operation = request.application_properties.get("operation")
    return isinstance(operation, str) and (operation in _LOOKS or operation.startswith("GET-"))


def _is_wanted(request: Request) -> bool:
    """Return whether to go on with a request. A change is always completed; a query is dropped if
    the client that asked is gone."""
    way = request.way
    return not looks(request) or (way is not None and not way.deleted)


def sift(names: Iterable[str], keep: Callable[[str], bool]) -> Steps[list[str]]:
    """Return the names for which `keep` is true, in steps."""
    found: list[str] = []
    for at, name in enumerate(names, 1):
        if keep(name):
            found.append(name)
        if at % _STEP == 0:
            yield None
    return found


def finish(steps: Steps[T]) -> T:
    """Run all steps at once, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def when_over(work: Ending, result: Callable[[], Result]) -> Result | Steps[Result]:
    """Return the result of work that has begun: now if the work is over, or else later."""
    return result() if work.over else _wait(work, result)


def _wait(work: Ending, result: Callable[[], Result]) -> Steps[Result]:
    while not work.over:
        yield True
    return result()


class Ending(Protocol):
    """Work that the broker does in slices."""

    @property
    def over(self) -> bool:
        """Whether the work is done."""


class SlicedJob:
    """A request that is being worked on."""

    def __init__(self, request: Request, steps: Steps[Result]) -> None:
        self.request = request
        self.steps = steps
        self.result: Result | None = None
        # Whether the last step could only wait.
        self.waits: bool = False

    def go_on(self, until: float) -> bool:
        """Work until a time or until the result, at least one step. Return whether there is a
        result."""
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
    """The jobs of one management node. Connections take turns; the jobs of each are done in order.

    `step(job, until)` works on a job, and returns whether it is over and answered. Each turn is a
    pass of the broker.
    """

    def __init__(self, broker: Broker, step: Callable[[SlicedJob, float], bool]) -> None:
        self._broker = broker
        self._step = step
        self._jobs: dict[int, deque[SlicedJob]] = {}
        # Seconds of work since the event loop last did other work.
        self._spent = 0.0

    def waiting(self, connection: int) -> int:
        """Return the number of waiting requests of a connection."""
        return len(self._jobs.get(connection, ()))

    def add(self, job: SlicedJob) -> bool:
        """Add a job, and begin it if there is time. Return whether it is over already."""
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
        # The number of consecutive jobs that could only wait.
        waiting = 0
        while self._jobs and waiting < len(self._jobs):
            connection = next(iter(self._jobs))
            queue = self._jobs.pop(connection)
            request = queue[0].request
            if _is_wanted(request):
                over = self._step(queue[0], begun + _SLICE)
            else:
                request.free_room()
                over = True
            if over:
                queue.popleft()
                waiting = 0
            elif queue[0].waits:
                waiting += 1
            else:
                waiting = 0
            if queue:
                self._jobs[connection] = queue
            if time.perf_counter() - begun >= _SLICE:
                break
        if self._jobs:
            self._broker.soon(self._turn)
        self._broker.finish_pass()
