"""A database of two machines that may fail, and the ways of members to it.

The primary commits, and confirms when the other machine has the commit too. Other members may see a
commit before that. When the primary is lost, the other machine goes on with what it has: all that
was confirmed, and perhaps more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ferrymq_broker.replication.errors import JournalUnavailable, ReplicationError
from ferrymq_broker.replication.shared_journal import (
    Done,
    JournalFigures,
    Lease,
    Member,
    Position,
    SharedBatch,
    SharedJournal,
    SnapshotInfo,
)
from tests.simulation.loop import SimulatedLoop
from tests.simulation.process import SimulatedProcess
from tests.support.shared_journal import MemoryDatabase, MemorySnapshot

# Mean seconds of a message between a member and the database, and between its machines.
LATENCY = 0.0005
TICK = 1e-6
# Seconds after which a member takes a connection for broken.
TIME_OUT = 2.0

State = tuple[Any, ...]


class SimulatedDatabase(MemoryDatabase):
    """The database. Without `fenced` it writes the batches of any term; without `replicated` it
    confirms a commit before the other machine has it; without `compared` it says that it has
    every batch that it is asked for. All three are faults that have to be found."""

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: random.Random,
        *,
        fenced: bool = True,
        replicated: bool = True,
        compared: bool = True,
    ) -> None:
        # By how many seconds the clock of the machine is off.
        self.off = 0.0
        super().__init__(lambda: loop.time() + self.off)
        self.loop = loop
        self.rng = rng
        self.fenced = fenced
        self.replicated = replicated
        self.compared = compared
        self.available = True
        # Counts what ends all connections.
        self.restarts = 0
        # How many seconds the other machine is behind.
        self.lag = 0.0
        # Batches that may have been trimmed.
        self.gone: dict[int, SharedBatch] = {}
        # How often somebody has fenced a leader.
        self.fences = 0
        self._safe = self._state()
        self._unsafe: list[State] = []
        self._arrival = 0.0

    def _state(self) -> State:
        snapshots = {id: self._copy(one) for id, one in self.snapshots.items()}
        lease = self.term, self.holder, self.address, self.ends, self.successor
        return dict(self.batches), self.trimmed, snapshots, self._last_snapshot, lease

    @staticmethod
    def _copy(one: MemorySnapshot) -> MemorySnapshot:
        copy = MemorySnapshot(one.position)
        copy.pieces = dict(one.pieces)
        copy.info = one.info
        return copy

    def _restore(self, state: State) -> None:
        batches, self.trimmed, snapshots, self._last_snapshot, lease = state
        self.batches = dict(batches)
        self.snapshots = {id: self._copy(one) for id, one in snapshots.items()}
        self.term, self.holder, self.address, self.ends, self.successor = lease

    def append(self, term: int, number: int, changes: int, data: bytes) -> None:
        """See `MemoryDatabase.append`."""
        with self._unfenced(term):
            super().append(term, number, changes, data)

    def confirm(self, term: int, number: int) -> bool:
        """See `MemoryDatabase.confirm`."""
        with self._unfenced(term):
            return super().confirm(term, number)

    @contextmanager
    def _unfenced(self, term: int) -> Iterator[None]:
        """Take any term for that of the lease, unless there is a fence."""
        now = self.term
        if not self.fenced:
            self.term = term
        try:
            yield
        finally:
            self.term = now

    def has(self, position: Position) -> bool:
        """See `MemoryDatabase.has`."""
        return super().has(position) or not self.compared

    def trim(self, before: int) -> int:
        """See `MemoryDatabase.trim`."""
        self.gone.update((n, one) for n, one in self.batches.items() if n < before)
        return super().trim(before)

    def fence(self) -> Lease:
        """See `MemoryDatabase.fence`."""
        self.fences += 1
        return super().fence()

    def commit(self, confirm: Callable[[], None]) -> None:
        """Call `confirm` when the other machine has what is committed now."""
        state = self._state()
        self._unsafe.append(state)
        seconds = self.rng.expovariate(1 / LATENCY) + self.lag
        self._arrival = max(self._arrival + TICK, self.loop.time() + seconds)
        if not self.replicated:
            confirm()
            confirm = _do_nothing
        self.loop.call_at(self._arrival, self._replicate, state, self.restarts, confirm)

    def _replicate(self, state: State, restarts: int, confirm: Callable[[], None]) -> None:
        if restarts == self.restarts:
            self._safe = state
            while self._unsafe and self._unsafe[0] is not state:
                del self._unsafe[0]
            del self._unsafe[:1]
            confirm()

    def fail_over(self, seconds: float, off: float, least: bool = False) -> None:
        """Lose the primary; the other machine goes on after so many seconds, with its clock. With
        `least` it has only what was confirmed."""
        kept = self._safe
        if self._unsafe and not least and self.rng.random() < 0.3:
            kept = self.rng.choice(self._unsafe)
        self._restart(seconds)
        self._unsafe = []
        self._safe = kept
        self.off = off
        self._restore(kept)

    def be_behind(self, seconds: float) -> None:
        """Let the other machine be so far behind, for so long."""
        self.lag = seconds
        self.loop.call_later(seconds, setattr, self, "lag", 0.0)

    def restart(self, seconds: float) -> None:
        """Let the primary crash and come back, with all that it has committed."""
        self._restart(seconds)

    def _restart(self, seconds: float) -> None:
        self.restarts += 1
        self.lag = 0.0
        self._arrival = 0.0
        self.available = False
        self.loop.call_later(seconds, self._come_back, self.restarts)

    def _come_back(self, restarts: int) -> None:
        if restarts == self.restarts:
            self.available = True


def _do_nothing() -> None:
    """Nobody waits for the other machine."""


class DatabaseLink:
    """The network between a member and the database, and its partitions."""

    def __init__(self) -> None:
        self.works = True
        # Whether messages take long.
        self.slow = False


class _Call:
    """A statement on its way."""

    def __init__(self, step: Callable[[], Any], writes: bool, done: Done[Any]) -> None:
        self.step = step
        self.writes = writes
        self.done = done
        self.over = False


class _Connection:
    """A connection of a member to the database: one statement after the other. When it breaks, the
    statement under way and those that wait fail; the one under way may happen later."""

    def __init__(
        self,
        database: SimulatedDatabase,
        link: DatabaseLink,
        process: SimulatedProcess,
        rng: random.Random,
    ) -> None:
        self._database = database
        self._link = link
        self._process = process
        self._rng = rng
        self._calls: list[_Call] = []
        self._cancel_time_out: Callable[[], None] | None = None
        self.closed = False

    def call(self, step: Callable[[], Any], done: Done[Any], writes: bool = False) -> None:
        self._calls.append(_Call(step, writes, done))
        if len(self._calls) == 1:
            # Not now: a caller does not expect `done` before the method returns.
            self._process.call_soon(self._send)

    def _latency(self) -> float:
        rng = self._rng
        mean = LATENCY
        if self._link.slow and rng.random() < 0.3:
            mean = 1.0
        elif rng.random() < 0.01:
            mean = 0.1
        return rng.expovariate(1 / mean)

    def _send(self) -> None:
        if self.closed or not self._calls:
            return
        call = self._calls[0]
        self._cancel_time_out = self._process.later(TIME_OUT, lambda: self._break(call))
        restarts = self._database.restarts
        if self._link.works:
            self._database.loop.call_later(self._latency(), self._arrive, call, restarts)
        elif self._rng.random() < 0.5:
            # A router says that there is no way; or nobody says anything.
            self._process.call_later(self._latency(), self._break, call)

    def _arrive(self, call: _Call, restarts: int) -> None:
        database = self._database
        if not self._link.works:
            return
        if not database.available or restarts != database.restarts:
            self._process.call_later(self._latency(), self._break, call)
            return
        result: Any
        try:
            result = call.step()
        except ReplicationError as error:
            result = error
        if call.writes and not isinstance(result, Exception):
            database.commit(lambda: self._answer(call, result))
        else:
            self._answer(call, result)

    def _answer(self, call: _Call, result: Any) -> None:
        if self._link.works:
            if self._rng.random() < 0.002:
                self._process.call_later(self._latency(), self._break, call)
            else:
                self._database.loop.call_later(self._latency(), self._deliver, call, result)

    def _deliver(self, call: _Call, result: Any) -> None:
        if self._link.works:
            self._process.call_soon(self._end, call, result)

    def _end(self, call: _Call, result: Any) -> None:
        if call.over or self.closed:
            return
        call.over = True
        if self._cancel_time_out is not None:
            self._cancel_time_out()
        del self._calls[0]
        if self._calls:
            self._process.call_soon(self._send)
        call.done(result)

    def _break(self, call: _Call) -> None:
        if call.over or self.closed:
            return
        if self._cancel_time_out is not None:
            self._cancel_time_out()
        calls, self._calls = self._calls, []
        for one in calls:
            one.over = True
        for one in calls:
            if not self.closed:
                one.done(JournalUnavailable("the simulated connection is broken"))


class SimulatedSharedJournal(SharedJournal):
    """A member's journal: one connection for the lease, and one for all else."""

    def __init__(
        self,
        database: SimulatedDatabase,
        link: DatabaseLink,
        process: SimulatedProcess,
        rng: random.Random,
    ) -> None:
        self.database = database
        self._link = link
        self._process = process
        self._rng = rng
        self._batches = _Connection(database, link, process, rng)
        self._leases = _Connection(database, link, process, rng)

    def append(
        self, term: int, number: int, changes: int, parts: Sequence[bytes], done: Done[None]
    ) -> None:
        data = b"".join(parts)
        self._batches.call(lambda: self.database.append(term, number, changes, data), done, True)

    def confirm(self, term: int, number: int, done: Done[bool]) -> None:
        self._batches.call(lambda: self.database.confirm(term, number), done, True)

    def read(self, after: int, most: int, done: Done[list[SharedBatch]]) -> None:
        self._batches.call(lambda: self.database.read(after, most), done)

    def has(self, position: Position, done: Done[bool]) -> None:
        self._batches.call(lambda: self.database.has(position), done)

    def trim(self, before: int, done: Done[int]) -> None:
        self._batches.call(lambda: self.database.trim(before), done, True)

    def figures(self, done: Done[JournalFigures]) -> None:
        self._batches.call(self.database.figures, done)

    def observe(self, done: Done[Lease]) -> None:
        self._leases.call(self.database.lease, done)

    def acquire(self, holder: str, address: str, seconds: float, done: Done[Lease]) -> None:
        self._leases.call(lambda: self.database.acquire(holder, address, seconds), done, True)

    def renew(self, term: int, seconds: float, done: Done[Lease]) -> None:
        self._leases.call(lambda: self.database.renew(term, seconds), done, True)

    def release(self, term: int, done: Done[None]) -> None:
        self._leases.call(lambda: self.database.release(term), done, True)

    def name_successor(self, name: str, done: Done[Lease]) -> None:
        self._leases.call(lambda: self.database.name_successor(name), done, True)

    def fence(self, done: Done[Lease]) -> None:
        self._leases.call(self.database.fence, done, True)

    def watch(self, changed: Callable[[], None]) -> None:
        def arrive() -> None:
            if self._link.works and not self._leases.closed:
                self._process.call_soon(changed)

        def tell() -> None:
            self.database.loop.call_later(self._rng.expovariate(1 / LATENCY), arrive)

        self.database.watchers.append(tell)

    def announce(self, member: Member, done: Done[None]) -> None:
        def step() -> None:
            self.database.members[member.name] = (member, self.database.time())

        self._batches.call(step, done)

    def members(self, done: Done[list[Member]]) -> None:
        def step() -> list[Member]:
            now = self.database.time()
            found = [one._replace(seen=now - at) for one, at in self.database.members.values()]
            return sorted(found)

        self._batches.call(step, done)

    def begin_snapshot(self, position: Position, done: Done[int]) -> None:
        self._batches.call(lambda: self.database.begin_snapshot(position), done, True)

    def add_piece(self, id: int, index: int, data: bytes, done: Done[None]) -> None:
        self._batches.call(lambda: self.database.add_piece(id, index, data), done, True)

    def finish_snapshot(self, id: int, pieces: int, size: int, done: Done[None]) -> None:
        self._batches.call(lambda: self.database.finish_snapshot(id, pieces, size), done, True)

    def snapshots(self, done: Done[list[SnapshotInfo]]) -> None:
        self._batches.call(self.database.complete, done)

    def read_piece(self, id: int, index: int, done: Done[bytes]) -> None:
        self._batches.call(lambda: self.database.read_piece(id, index), done)

    def drop_snapshot(self, id: int, done: Done[None]) -> None:
        def step() -> None:
            self.database.snapshots.pop(id, None)

        self._batches.call(step, done, True)

    def close(self) -> None:
        self._batches.closed = True
        self._leases.closed = True
