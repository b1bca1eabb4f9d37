"""Leaderships whose time passes only when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ferrymq_broker.replication.leadership import Leadership, LeadershipEvents, LeaseOptions
from ferrymq_broker.replication.shared_journal import Lease
from tests.simulation.loop import SimulatedLoop
from tests.support.shared_journal import MemoryDatabase, MemorySharedJournal

LEASE = 9.0
STEP_DOWN_AFTER = 30.0
# The delay of a call to the database.
DELAY = 0.01


class Told(LeadershipEvents):
    """What a leadership has told, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.leases: list[Lease] = []
        self.lost_to: list[Lease | None] = []

    def observed(self, lease: Lease) -> None:
        self.leases.append(lease)

    def elected(self, term: int) -> None:
        self.events.append(f"elected {term}")

    def suspended(self) -> None:
        self.events.append("suspended")

    def resumed(self) -> None:
        self.events.append("resumed")

    def waiting(self, on: bool) -> None:
        self.events.append(f"waiting {on}")

    def asked_to_hand_over(self, successor: str) -> None:
        self.events.append(f"hand over to {successor}")

    def lost(self, lease: Lease | None) -> None:
        self.events.append("lost")
        self.lost_to.append(lease)


class MemberClock:
    """A clock of a machine that can sleep: it goes on, and timers do not."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.slept = 0.0

    def time(self) -> float:
        return self._loop.time() + self.slept


class Seat:
    """One member: its leadership, its way to the database, its clock, and what it was told."""

    def __init__(self, cluster: Cluster, name: str, delay: float = 0.0) -> None:
        self.told = Told()
        self.clock = MemberClock(cluster.loop)
        self.journal = MemorySharedJournal(cluster.database, cluster.loop)
        options = LeaseOptions(name, f"amqp://{name}", LEASE, STEP_DOWN_AFTER, delay)
        self.leadership = Leadership(
            self.journal, options, self.told, self.clock.time, cluster.later
        )
        self.appended: list[Exception | None] = []

    def append(self, number: int, data: bytes = b"data") -> None:
        self.leadership.append(number, 1, [data], self.appended.append)


class Cluster:
    """A database, and the time."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        # The sleep of the machine of a member is added to the database's clock by `sleep`.
        self.slept = 0.0
        self.database = MemoryDatabase(lambda: self.loop.time() + self.slept, DELAY)

    def seat(self, name: str = "one", delay: float = 0.0) -> Seat:
        return Seat(self, name, delay)

    def leader(self, name: str = "one") -> Seat:
        """A member that has just been elected."""
        seat = self.seat(name)
        seat.leadership.start()
        self.run(3 * DELAY)
        assert seat.leadership.may_write()
        seat.told.events.clear()
        return seat

    def run(self, seconds: float) -> None:
        """Let the time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        return self.loop.call_later(seconds, call).cancel


@contextmanager
def new_cluster() -> Iterator[Cluster]:
    """A cluster for one test."""
    cluster = Cluster()
    try:
        yield cluster
    finally:
        cluster.loop.close()
