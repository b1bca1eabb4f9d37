"""A run with several brokers: their database, the ways between all of them, and the clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

import ferrymq
from ferrymq import ReconnectPolicy
from ferrymq.aio.opening import Opening
from ferrymq.engine.pairing import LINK_PAIR
from tests.crash.client_side import ClientSide
from tests.crash.failovers.clocks import ClockLibrary, SteppedClock
from tests.crash.failovers.database import CLUSTER, Database
from tests.crash.failovers.member import BrokerMember
from tests.crash.failovers.outages import OUTCOMES
from tests.crash.failovers.small_disk import SmallDisk
from tests.crash.layout import CONFIG, SEGMENT_BYTES
from tests.crash.processes import NotReady, Starter, free_port

# Seconds until somebody serves, after all that was done is undone. A cluster that takes longer
# hangs.
_LONGEST: Final = 40.0
# Seconds between two looks at who serves.
_LOOK: Final = 0.02
_IDLE_TIME_OUT: Final = 60.0
# Clients wait longer than those of one broker before they try again: while nobody serves, each
# attempt is refused at once.
_PAUSE: Final = 0.15


class ClusterStage(ClientSide):
    """Everything a run has whose clients are served by the leader of a cluster."""

    def __init__(
        self,
        starter: Starter,
        seed: int,
        folder: Path,
        *,
        size: int = 2,
        clocks: ClockLibrary | None = None,
        disk: SmallDisk | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        super().__init__(seed, folder, _IDLE_TIME_OUT)
        self.longest_pause = _PAUSE
        self.random = Random(f"{seed} cluster")
        self._starter = starter
        names = "abc"[:size]
        self.clocks: dict[str, SteppedClock] = {}
        if clocks is not None:
            self.clocks = {
                name: SteppedClock(clocks.folder / f"clock-{name}") for name in [*names, "db"]
            }
        self.disk = disk
        where = None if disk is None else disk.path
        variables = {}
        if clocks is not None:
            variables = clocks.environment | self.clocks["db"].environment
        self.database = Database(names, variables, where)
        self.members: list[BrokerMember] = []
        taken = [server.port for server in self.database.servers]
        for name in names:
            own = dict(environment or {})
            if clocks is not None:
                own |= self.clocks[name].environment
            taken.append(free_port(taken))
            member = BrokerMember(name, folder / name, starter, own, taken[-1])
            taken.append(free_port(taken))
            member.http_port = taken[-1]
            self.members.append(member)
        # Replaced whenever something is done to the cluster.
        self._quiet: object | None = None
        # Who served last.
        self.leader: BrokerMember | None = None

    # -- the cluster ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the database and all members, and wait for a leader."""
        await self.database.start()
        config = CONFIG.format(
            segment_bytes=SEGMENT_BYTES, max_bytes=0, idle_time_out=_IDLE_TIME_OUT, credit=1000
        )
        settings = {
            "acknowledge": self.random.choice(("database", "database", "both")),
            "snapshot_after": self.random.choice(("1MiB", "2MiB", "1GiB")),
        }
        for member in self.members:
            url = self.database.url(member.name)
            await member.prepare(config, member.http_port, url, **settings)
            await member.start()
        await self.wait_for_leader()
        self.up.set()
        self._quiet = object()

    async def close(self) -> None:
        """End everything."""
        self.up.clear()
        for member in self.members:
            await self.kill(member)
            await member.clients.close()
        await self.database.close()

    async def kill(self, member: BrokerMember) -> None:
        """SIGKILL to a member, if it runs."""
        ended = member.life is not None and member.life.status is not None
        said = await member.kill()
        self.look_for_shame(said)
        if ended:
            self.wrong(f"{member.name} has ended by itself: {said[-2000:]}")

    def others(self, member: BrokerMember) -> list[BrokerMember]:
        """The members but this one."""
        return [one for one in self.members if one is not member]

    async def wait_for_leader(self) -> BrokerMember:
        """Wait until a member serves; it is the `leader` then. Raises `NotReady`."""
        await self.wait_until(*self.members)
        assert self.leader is not None
        return self.leader

    async def wait_until(self, *members: BrokerMember) -> None:
        """Wait until one of these serves; it is the `leader` then. Raises `NotReady`."""
        try:
            async with asyncio.timeout(_LONGEST):
                while True:
                    for member in members:
                        if await member.serves():
                            self.leader = member
                            return
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            names = ", ".join(member.name for member in members)
            raise NotReady(f"none of {names} serves after {_LONGEST} s") from None

    async def administrate(self, *arguments: str) -> None:
        """Run `ferrymq replica` with these arguments."""
        url = self.database.pair.primary.url()
        command = ["replica", *arguments, "--url", url, "--cluster", CLUSTER]
        life = self._starter.start(command, self.folder / "replica.log")
        status = await life.ended()
        if status != 0:
            self.wrong(f"ferrymq {' '.join(command)} ended with status {status}: {life.said()}")

    async def find_leader(self) -> BrokerMember:
        """The member that serves; waits for one."""
        if self.leader is not None and await self.leader.serves():
            return self.leader
        return await self.wait_for_leader()

    async def mend(self) -> None:
        """Undo everything that was done, and wait until the cluster is as it was at its start."""
        for clock in self.clocks.values():
            clock.set(0)
        if self.disk is not None:
            self.disk.free()
        await self.database.mend()
        for member in self.members:
            member.clients.delay = 0.0
            member.clients.refuse(False)
            member.clients.release()
            if member.is_stopped:
                member.go_on()
            if member.life is not None and member.life.status is not None:
                await self.kill(member)
            if member.life is None:
                await member.start()
        await self.find_leader()

    @asynccontextmanager
    async def disturbed(self, kind: str) -> AsyncIterator[BrokerMember]:
        """Do something to the cluster, whose leader is given, inside the block; the cluster is
        mended at the end."""
        self._quiet = None
        before = await self.find_leader()
        self.ledger.write("disturbs", kind=kind, leader=before.name)
        yield before
        await self.mend()
        after = await self.find_leader()
        await self.wait_for_outcome()
        self.ledger.write("mended", kind=kind, leader=after.name)
        self._quiet = object()

    async def wait_for_outcome(self) -> None:
        """Wait until a client is served. Raises `NotReady`."""
        before = self._outcomes()
        try:
            async with asyncio.timeout(_LONGEST):
                while True:
                    await asyncio.sleep(_LOOK)
                    if self._outcomes() != before:
                        return
        except TimeoutError:
            raise NotReady(f"no client has got an outcome for {_LONGEST} s") from None

    def _outcomes(self) -> int:
        return sum(self.ledger.counts[what] for what in OUTCOMES)

    # -- clients -------------------------------------------------------------------------------

    @property
    def service(self) -> object | None:
        return self._quiet

    def connect(
        self, name: str, reconnect: bool | ReconnectPolicy = False
    ) -> Opening[ferrymq.Connection]:
        """A connection to whoever serves; some clients know another order of the members."""
        urls = [f"amqp://127.0.0.1:{member.clients.port}" for member in self.members]
        Random(f"{self.seed} {name}").shuffle(urls)
        return ferrymq.connect(
            urls,
            container_id=name,
            desired_capabilities=[LINK_PAIR],
            idle_time_out=self.idle_time_out,
            timeout=3,
            close_timeout=2,
            reconnect=reconnect,
        )
