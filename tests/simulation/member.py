"""A member of a cluster: a disk, a way to the database, and one process after another."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.follower import JournalFollower
from ferrymq_broker.replication.leadership import Leadership, LeadershipEvents, LeaseOptions
from ferrymq_broker.replication.leadership_states import LeadershipState
from ferrymq_broker.replication.shared_journal import JournalFigures, Lease, Member
from ferrymq_broker.replication.snapshot_policy import (
    LeaderSource,
    SnapshotOptions,
    SnapshotPolicy,
)
from ferrymq_broker.replication.snapshots import Snapshots
from ferrymq_broker.store.appender import AppenderOptions
from ferrymq_broker.store.durable_store import StoreOptions
from ferrymq_broker.store.errors import StoreError
from tests.simulation.broker import SEGMENT_BYTES, SimulatedServer
from tests.simulation.database import DatabaseLink, SimulatedSharedJournal
from tests.simulation.disk import Interrupted, SimulatedDisk
from tests.simulation.executor import SimulatedExecutor
from tests.simulation.member_network import MemberPort
from tests.simulation.process import SimulatedProcess
from tests.simulation.records import SimulatedRecords
from tests.support.member_files import MemoryFiles
from tests.support.memory_records import MemoryDisk

if TYPE_CHECKING:
    from tests.simulation.failover_world import FailoverWorld

LEASE = 1.5
STEP_DOWN_AFTER = 6.0
# The mean seconds between two looks of a member at the snapshots.
SNAPSHOT_PAUSE = 1.0


class SimulatedMember(LeadershipEvents):
    """A process is a standby, then perhaps the leader, then a standby again."""

    def __init__(self, world: FailoverWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.link = DatabaseLink()
        # How often the records were set aside, on disks that are lost.
        self.set_aside = 0
        self._get_disk()
        self.process = SimulatedProcess(world.loop)
        self.process.end()
        self.server: SimulatedServer | None = None
        self._follower: JournalFollower | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def _get_disk(self) -> None:
        self.disk = SimulatedDisk(self.world.rng)
        self.kept = MemoryDisk()
        self._files = MemoryFiles(
            self.disk,
            self.kept,
            self.world.database.cluster,
            StoreOptions(segment_bytes=SEGMENT_BYTES),
            partial(SimulatedRecords, self.disk),
        )

    # -- the process ---------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a new process."""
        if self.process.dead:
            self.process = SimulatedProcess(self.world.loop)
            self._stand_by()

    def kill(self, power: bool) -> None:
        """End the process, perhaps with the machine."""
        if self.process.dead:
            return
        self.process.end()
        self.journal.close()
        self.leadership.stop()
        self._close_port()
        for task in self._tasks:
            task.cancel()
        follower, self._follower = self._follower, None
        if follower is not None and follower._task is not None:
            follower._task.cancel()
        self._copies.stop()
        self._executor.stop()
        if self.server is not None:
            self.server.kill(power)
            self.server = None
        elif power:
            self.disk.lose_power()
        self.disk.kill()
        self.disk.steps_left = None

    def lose_disk(self) -> None:
        """Replace the machine by one with an empty disk."""
        self.kill(power=True)
        self.set_aside += len(self._files.asides)
        self._get_disk()

    def times_set_aside(self) -> int:
        """How often the records did not fit to the journal."""
        return self.set_aside + len(self._files.asides)

    def _crash(self) -> None:
        """End in the middle of a call, and begin again."""
        if not self.process.dead:
            rng = self.world.rng
            self.world.crashes += 1
            self.kill(power=rng.random() < 0.5)
            self.world.loop.call_later(rng.expovariate(10.0), self.start)

    def _close_port(self) -> None:
        self.port.stop_broker()
        if self.port in self.world.network.ports:
            self.world.network.ports.remove(self.port)

    # -- the standby ---------------------------------------------------------------------------

    def _stand_by(self) -> None:
        world, process = self.world, self.process
        self.journal = SimulatedSharedJournal(world.database, self.link, process, world.rng)
        self.port = MemberPort(world.loop, world.rng, process)
        world.network.ports.append(self.port)
        if world.rng.random() < 0.1:
            self.disk.steps_left = world.rng.randrange(60)
        self._executor = SimulatedExecutor(process, self.disk, world.rng)
        self._executor.interrupted = self._crash
        snapshots = Snapshots(self.journal, self._executor)
        self._follower = JournalFollower(self._files, snapshots, self._executor, self._failed)
        self._follower.start()
        # Copies have threads of their own.
        self._copies = SimulatedExecutor(process, self.disk, world.rng)
        self._policy = SnapshotPolicy(
            Snapshots(self.journal, self._copies),
            self._files,
            self._copies,
            self.name,
            SnapshotOptions(after=world.snapshot_after, keep=1),
            process.time,
            lambda is_too_large: None,
        )
        self._policy.source = self._follower
        options = LeaseOptions(self.name, "", LEASE, STEP_DOWN_AFTER, world.rng.random() * 0.3)
        self.leadership = Leadership(self.journal, options, self, process.time, process.later)
        self.leadership.start()
        self._look_in(self.leadership)

    def _failed(self, error: Exception) -> None:
        self.world.faults.append(f"the standby {self.name} has failed: {error!r}")

    def _look_in(self, leadership: Leadership) -> None:
        pause = self.world.rng.expovariate(1 / SNAPSHOT_PAUSE)
        self.process.call_later(pause, self._look, leadership)

    def _look(self, leadership: Leadership) -> None:
        """Announce the member, and look whether a snapshot has to be made."""
        if self.leadership is not leadership:
            return
        role = "standby" if self.server is None else "leader"
        self.journal.announce(Member(self.name, role, "", 0, "", 0.0), lambda result: None)
        task = self.world.loop.create_task(self._look_at_snapshots(leadership))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_at_snapshots(self, leadership: Leadership) -> None:
        try:
            await self._policy.look()
        except (ReplicationError, StoreError, OSError):
            pass
        self._look_in(leadership)

    # -- the leader ----------------------------------------------------------------------------

    def elected(self, term: int) -> None:
        self.world.elections += 1
        self._catch_up(self.leadership)

    def _catch_up(self, leadership: Leadership) -> None:
        def know(figures: JournalFigures | Exception) -> None:
            if self.leadership is not leadership or self._follower is None:
                return
            if isinstance(figures, Exception):
                self.journal.figures(know)
            else:
                self._follower.catch_up(figures.last, caught_up)

        def caught_up(error: Exception | None) -> None:
            if self.leadership is not leadership:
                return
            if error is not None:
                leadership.step_down(lambda: self._end_of(leadership))
                return
            assert self._follower is not None
            self.world.begin(self, self._follower.position.number)
            # A recovery takes its time.
            pause = self.world.rng.expovariate(1 / self.world.rng.choice((0.01, 0.5)))
            self.process.call_later(pause, self._serve, leadership)

        self.journal.figures(know)

    def _close_follower(self) -> None:
        follower, self._follower = self._follower, None
        self._policy.source = None
        for task in self._tasks:
            task.cancel()
        if follower is not None:
            follower.close()

    def _serve(self, leadership: Leadership) -> None:
        world = self.world
        if self.leadership is not leadership or leadership.state is LeadershipState.LOST:
            return
        appender = AppenderOptions(leadership, leadership.term, lambda error: None, both=world.both)
        self.port.wrote = lambda: world.output(self)
        try:
            self._close_follower()
            if world.rng.random() < 0.2:
                self.disk.steps_left = world.rng.randrange(40)
            self.server = SimulatedServer(
                self.process,
                world.rng,
                self.port,
                self.disk,
                self.kept,
                world.nodes,
                world.clock,
                world.database.cluster,
                appender,
                leadership.may_write if world.gated else None,
            )
        except Interrupted:
            self._crash()
            return
        finally:
            self.disk.steps_left = None
        self._policy.source = LeaderSource(self.server.store)
        self._look_in(leadership)
        world.serve(self)

    def asked_to_hand_over(self, successor: str) -> None:
        leadership = self.leadership
        leadership.step_down(lambda: self._end_of(leadership))

    def suspended(self) -> None:
        self.world.suspensions += 1

    def resumed(self) -> None:
        if self.server is not None:
            self.server.go_on()

    def waiting(self, on: bool) -> None:
        if self.server is not None:
            self.server.set_alarm("replication", on)

    def lost(self, lease: Lease | None) -> None:
        self._end_of(self.leadership)

    def _end_of(self, leadership: Leadership) -> None:
        """Throw away all that the leader has in its memory, and be a standby again."""
        if self.leadership is not leadership:
            return
        leadership.stop()
        self.journal.close()
        self._close_port()
        server, self.server = self.server, None
        try:
            self._close_follower()
            self._copies.stop()
            if server is not None:
                server.end()
        except Interrupted:
            self._crash()
            return
        finally:
            self.disk.steps_left = None
        self._stand_by()
