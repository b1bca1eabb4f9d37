"""A world with several members and a database: leaders are lost in the middle of the work.

What has to be true is what `World` says, whatever happens to members and the database. And:

- all batches of one term are those of one leader, and no batch follows one of a newer term;
- a member's records are what the journal says, up to their last batch;
- nobody writes to a client while another member has the lease, unless somebody has fenced the
  leader, or the clocks of the database's machines differ.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ferrymq_broker.replication.batch_applier import apply_batches
from ferrymq_broker.store.term_record import read_term
from tests.simulation.database import SimulatedDatabase
from tests.simulation.member import SimulatedMember
from tests.simulation.member_network import MemberNetwork
from tests.simulation.world import World
from tests.support.memory_records import MemoryDisk, MemoryRecords


class FailoverWorld(World):
    """Everything that one seed decides. `fenced`, `replicated` and `compared` are as in
    `SimulatedDatabase`; without `gated`, leaders write after their deadline."""

    network: MemberNetwork

    def __init__(
        self,
        seed: int,
        *,
        once: bool = True,
        fenced: bool = True,
        replicated: bool = True,
        compared: bool = True,
        gated: bool = True,
    ) -> None:
        super().__init__(seed, once=once)
        self.gated = gated
        self.network = MemberNetwork(self.loop, self.rng, self.network.mean_bytes)
        self.loop.connect = self.network.connect
        self.database = SimulatedDatabase(
            self.loop, self.rng, fenced=fenced, replicated=replicated, compared=compared
        )
        self.skewed = self.rng.random() < 0.3
        self.members = [SimulatedMember(self, name) for name in "abc"[: self.rng.choice((2, 3))]]
        self.pace = 0.2
        self.loop.set_exception_handler(self._on_mistake)
        # The last batch that a leader had read when it began, by its term.
        self.begun: dict[int, int] = {}
        # After how many bytes of batches a snapshot is made, and whether the outcomes wait for the
        # local disk too.
        self.snapshot_after = self.rng.choice((2000, 10_000, 1 << 30))
        self.both = self.rng.random() < 0.3
        self.elections = 0
        self.suspensions = 0

    def _on_mistake(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.faults.append(f"{context['message']}: {context.get('exception')!r}")

    def start(self) -> None:
        """Start all members."""
        for member in self.members:
            member.start()

    def begin(self, member: SimulatedMember, last: int) -> None:
        """A member has read all batches there are, and serves soon."""
        self.begun[member.leadership.term] = last

    def serve(self, member: SimulatedMember) -> None:
        """A member is the leader from now on."""
        self.server = member.server

    async def _break(self) -> None:
        rng = self.rng
        while self.server is None:  # noqa: ASYNC110  (nothing to lose before)
            await asyncio.sleep(0.05)
        for _ in range(rng.randrange(2, 16)):
            await asyncio.sleep(rng.expovariate(1 / rng.choice((0.1, 0.5))))
            self._break_something()

    def _break_something(self) -> None:
        """Let something go wrong for a while."""
        rng, database, later = self.rng, self.database, self.loop.call_later
        serving = [one for one in self.members if one.server is not None]
        member = rng.choice(serving if serving and rng.random() < 0.5 else self.members)
        seconds = rng.expovariate(1 / rng.choice((0.2, 2.0, 6.0)))
        match rng.randrange(11):
            case 0:
                member.link.works = False
                later(seconds, setattr, member.link, "works", True)
            case 1:
                member.link.slow = True
                later(seconds, setattr, member.link, "slow", False)
            case 2 | 3:
                self._kill(member, seconds)
            case 4 | 5:
                process = member.process
                process.stop()
                later(seconds, process.go_on)
            case 6:
                off = rng.uniform(-20, 20) if self.skewed else 0.0
                # The other machine may have been behind for some time.
                before = rng.choice((0.0, seconds / 4, seconds / 2))
                database.be_behind(before)
                later(before, self._lose_primary, seconds / 2, off, member)
            case 7:
                database.restart(seconds / 2)
            case 8:
                database.be_behind(seconds)
            case 9:
                self._lose_site(member, seconds)
            case _:
                if rng.random() < 0.2:
                    database.fence()
                else:
                    database.name_successor(member.name)

    def _kill(self, member: SimulatedMember, seconds: float) -> None:
        rng = self.rng
        self.crashes += 1
        if rng.random() < 0.1:
            member.lose_disk()
        else:
            member.kill(power=rng.random() < 0.5)
        self.loop.call_later(seconds, member.start)

    def _lose_site(self, member: SimulatedMember, seconds: float) -> None:
        """Lose the primary with a member beside it, when other members have read a commit that the
        other machine of the database lacks."""
        lag = self.rng.uniform(0.1, 0.6)
        self.database.be_behind(lag)
        later = self.loop.call_later
        later(lag * 0.9, self.database.fail_over, seconds / 2, self.database.off, True)
        later(lag * 0.9, self._kill, member, seconds)

    def _lose_primary(self, seconds: float, off: float, member: SimulatedMember) -> None:
        """Lose the primary of the database, perhaps with the member that is beside it."""
        self.database.fail_over(seconds, off)
        if self.rng.random() < 0.5:
            self._kill(member, seconds)

    # -- what has to be true -----------------------------------------------------------------

    def output(self, member: SimulatedMember) -> None:
        """A leader writes something to a client."""
        term = member.leadership.term
        if self.database.term != term and not self.skewed and not self.database.fences:
            self.faults.append(f"{member.name} writes in term {term}, not {self.database.term}")

    def check(self) -> None:
        """Raises `Wrong` with everything that is not as it has to be."""
        del self.faults[10:]
        last = 0
        for number, batch in sorted({**self.database.gone, **self.database.batches}.items()):
            if batch.term < last:
                self.faults.append(f"batch {number} of term {batch.term} follows one of {last}")
            last = batch.term
            for term, read in self.begun.items():
                if batch.term < term and read < number:
                    self.faults.append(
                        f"the leader of term {term} has not read batch {number} of {batch.term}"
                    )
        self._check_records()
        super().check()

    def _check_records(self) -> None:
        """Compare the records of all members with the journal."""
        journal = {**self.database.gone, **self.database.batches}
        disk = MemoryDisk()
        wanted = MemoryRecords(disk)
        for member in sorted(self.members, key=lambda one: one.kept.applied):
            applied = member.kept.applied
            if applied <= 0:
                continue
            term = read_term(MemoryRecords(member.kept))
            if applied not in journal or journal[applied].term != term:
                # The member finds out when more batches follow, or before it is the leader.
                continue
            for number in range(wanted.applied + 1, applied + 1):
                apply_batches(wanted, [journal[number]])
            if disk.stored != member.kept.stored:
                self.faults.append(f"the records of {member.name} are not those of {applied}")
