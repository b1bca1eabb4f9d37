"""A world of members that have no clients: each that is elected reads the journal, and appends.

What has to be true, whatever happened to members, their connections, and the database:

- a batch that was confirmed is in the journal at the end, with its term and its content;
- all batches that were confirmed in one term were confirmed to one life of one member;
- a leader has read all batches of older terms that were or will be confirmed, when it begins;
- nobody writes to a client while another member has the lease, unless somebody has fenced the
  leader, or the clocks of the database's machines differ;
- when nothing goes wrong any more, there is a leader that can append.
"""

from __future__ import annotations

import asyncio
import random

from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.leadership import Leadership, LeadershipEvents, LeaseOptions
from ferrymq_broker.replication.shared_journal import Lease, SharedBatch
from tests.simulation.database import DatabaseLink, SimulatedDatabase, SimulatedSharedJournal
from tests.simulation.loop import SimulatedLoop
from tests.simulation.process import SimulatedProcess
from tests.simulation.world import Wrong

LEASE = 3.0
STEP_DOWN_AFTER = 12.0
# The mean of seconds between two batches; a world has one of these.
BATCH_PAUSES = (0.1, 0.5, 3.0)
# The mean of seconds between two outputs to a client.
OUTPUT_PAUSE = 0.05


class LeaseMember(LeadershipEvents):
    """A process that is standby, then leader, then standby again."""

    def __init__(self, world: LeaseWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.link = DatabaseLink()
        self.process = SimulatedProcess(world.loop)
        self.process.end()
        self.life = 0
        self.last = 0

    def start(self) -> None:
        """Begin a new process."""
        self.process = SimulatedProcess(self.world.loop)
        self._stand_by()

    def kill(self) -> None:
        """End the process."""
        self.process.end()
        self.journal.close()

    def _stand_by(self) -> None:
        world = self.world
        self.life += 1
        self.serving = False
        self.journal = SimulatedSharedJournal(world.database, self.link, self.process, world.rng)
        options = LeaseOptions(self.name, "", LEASE, STEP_DOWN_AFTER, world.rng.random() * 0.3)
        self.leadership = Leadership(
            self.journal, options, self, self.process.time, self.process.later
        )
        self.leadership.start()

    def elected(self, term: int) -> None:
        self.world.elections += 1
        self._read(0, self.leadership)

    def _read(self, after: int, leadership: Leadership) -> None:
        """Read the whole journal, as a member with no records does."""

        def done(result: list[SharedBatch] | Exception) -> None:
            if self.leadership is not leadership:
                return
            if isinstance(result, Exception):
                self.process.later(0.1, lambda: self._read(after, leadership))
            elif result:
                self.world.see(result)
                self._read(result[-1].number, leadership)
            else:
                self._serve(after)

        self.journal.read(after, 1000, done)

    def _serve(self, last: int) -> None:
        self.world.begin(self, last)
        self.last = last
        self.serving = True
        self._output(self.leadership)
        # A recovery takes its time.
        leadership = self.leadership
        pause = self.world.rng.choice((0.0, self.world.rng.expovariate(1.0)))
        self.process.later(pause, lambda: self._append(leadership))

    def _output(self, leadership: Leadership) -> None:
        if self.leadership is leadership and leadership.state.value != "lost":
            if leadership.may_write() or not self.world.gated:
                self.world.output(self)
            pause = self.world.rng.expovariate(1 / OUTPUT_PAUSE)
            self.process.later(pause, lambda: self._output(leadership))

    def _append(self, leadership: Leadership) -> None:
        if self.leadership is not leadership or leadership.state.value == "lost":
            return
        life, number, term = self.life, self.last + 1, leadership.term
        data = f"{self.name} {life} {term} {number}".encode()

        def done(error: Exception | None) -> None:
            if error is None:
                self.last = number
                self.world.confirm(number, term, data, f"{self.name} {life}")
                pause = self.world.rng.expovariate(1 / self.world.batch_pause)
                self.process.later(pause, lambda: self._append(leadership))
            elif not isinstance(error, ReplicationError):
                self.world.faults.append(f"an append ended with {error!r}")

        leadership.append(number, 1, [data], done)

    def asked_to_hand_over(self, successor: str) -> None:
        leadership = self.leadership
        leadership.step_down(lambda: self._end_of(leadership))

    def suspended(self) -> None:
        self.world.suspensions += 1

    def lost(self, lease: Lease | None) -> None:
        self._end_of(self.leadership)

    def _end_of(self, leadership: Leadership) -> None:
        if self.leadership is leadership:
            leadership.stop()
            self.journal.close()
            self._stand_by()


class LeaseWorld:
    """Everything that one seed decides. Without `gated`, leaders write after their deadline."""

    def __init__(
        self, seed: int, *, fenced: bool = True, replicated: bool = True, gated: bool = True
    ) -> None:
        self.seed = seed
        self.gated = gated
        self.rng = random.Random(f"lease {seed}")
        self.loop = SimulatedLoop()
        self.database = SimulatedDatabase(self.loop, self.rng, fenced=fenced, replicated=replicated)
        self.members = [LeaseMember(self, name) for name in "abc"[: self.rng.choice((2, 3))]]
        self.batch_pause = self.rng.choice(BATCH_PAUSES)
        self.skewed = self.rng.random() < 0.3
        # The content, by number and term, and the life of a member by term.
        self.confirmed: dict[int, tuple[int, bytes]] = {}
        self.writers: dict[int, str] = {}
        # The last batch that a leader had read when it began, by its term.
        self.begun: dict[int, int] = {}
        self.faults: list[str] = []
        self.elections = 0
        self.suspensions = 0
        self.crashes = 0

    def run(self) -> None:
        """Live it to the end. Raises `Wrong`."""
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._live())
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()
        self._check()

    async def _live(self) -> None:
        for member in self.members:
            member.start()
        rng = self.rng
        for _ in range(rng.randrange(5, 25)):
            await asyncio.sleep(rng.expovariate(1 / rng.choice((0.3, 2.0))))
            self._break()
        await asyncio.sleep(LEASE)
        before = len(self.confirmed)
        # Every pause and partition ends by itself.
        for _ in range(12):
            await asyncio.sleep(10.0)
            if len(self.confirmed) > before:
                break
        else:
            self.faults.append("no batch is confirmed although nothing is wrong any more")
        for member in self.members:
            member.kill()

    def _break(self) -> None:
        """Let something go wrong for a while."""
        rng, database = self.rng, self.database
        member = rng.choice(self.members)
        seconds = rng.expovariate(1 / rng.choice((0.2, 2.0, 6.0)))
        match rng.randrange(9):
            case 0:
                member.link.works = False
                self.loop.call_later(seconds, setattr, member.link, "works", True)
            case 1:
                member.link.slow = True
                self.loop.call_later(seconds, setattr, member.link, "slow", False)
            case 2 if not member.process.dead:
                self.crashes += 1
                member.kill()
                self.loop.call_later(seconds, member.start)
            case 3 | 4:
                process = member.process
                process.stop()
                self.loop.call_later(seconds, process.go_on)
            case 5:
                off = rng.uniform(-20, 20) if self.skewed else 0.0
                # The other machine may have been behind for some time.
                before = rng.choice((0.0, 0.0, seconds / 4))
                database.be_behind(before)
                self.loop.call_later(before, database.fail_over, seconds / 2, off)
            case 6:
                database.restart(seconds / 2)
            case 7:
                database.be_behind(seconds)
            case _:
                if rng.random() < 0.2:
                    database.fence()
                else:
                    database.name_successor(member.name)

    # -- what has to be true -----------------------------------------------------------------

    def confirm(self, number: int, term: int, data: bytes, writer: str) -> None:
        """A member was told that its batch is committed."""
        if number in self.confirmed:
            self.faults.append(f"batch {number} was confirmed twice")
        self.confirmed[number] = term, data
        if self.writers.setdefault(term, writer) != writer:
            self.faults.append(f"{writer} and {self.writers[term]} wrote in term {term}")

    def see(self, batches: list[SharedBatch]) -> None:
        """A leader has read batches."""
        for one in batches:
            if self.confirmed.get(one.number, (one.term, one.data)) != (one.term, one.data):
                self.faults.append(f"batch {one.number} is not what was confirmed")

    def begin(self, member: LeaseMember, last: int) -> None:
        """A leader has read all there is, up to `last`."""
        self.begun[member.leadership.term] = last

    def output(self, member: LeaseMember) -> None:
        """A leader writes something that is not durable."""
        database = self.database
        other = database.term != member.leadership.term
        if other and not self.skewed and not database.fences:
            term = member.leadership.term
            self.faults.append(f"{member.name} writes in term {term}, but it is {database.term}")

    def _check(self) -> None:
        """Raises `Wrong` with everything that is not as it has to be."""
        faults = self.faults[:5]
        terms = [self.database.batches[number].term for number in sorted(self.database.batches)]
        if terms != sorted(terms):
            faults.append("a batch of an old term follows one of a new term")
        for number, (term, data) in self.confirmed.items():
            late = [new for new, last in self.begun.items() if new > term and last < number]
            if late:
                faults.append(f"the leader of term {late[0]} has not read batch {number} of {term}")
            found = self.database.batches.get(number)
            if found is None:
                faults.append(f"confirmed and lost: batch {number}")
            elif (found.term, found.data) != (term, data):
                faults.append(f"batch {number} is of term {found.term}, not {term}")
        if faults:
            raise Wrong(f"seed {self.seed}: " + "; ".join(faults[:10]))
