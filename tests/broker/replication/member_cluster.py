"""Members of a cluster in one event loop, with a database in memory.

    async with member_cluster(tmp_path) as cluster:
        one = await cluster.start("one")
        await cluster.leads("one")

The time of leases passes only when a test says so (`cluster.time`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from ferrymq_broker.config import Config, Queue
from ferrymq_broker.config.load import LoadedConfig
from ferrymq_broker.config.source_locations import SourceLocations
from ferrymq_broker.replication.shared_journal import LEADER, Done
from ferrymq_broker.server.replicated_server import ReplicatedServer
from tests.support.manual_time import ManualTime
from tests.support.shared_journal import MemoryDatabase, MemorySharedJournal

LEASE = 9.0
STEP_DOWN_AFTER = 30.0


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class CountingJournal(MemorySharedJournal):
    """A way to the database that counts the attempts to append."""

    appends = 0

    def append(
        self, term: int, number: int, changes: int, parts: Sequence[bytes], done: Done[None]
    ) -> None:
        self.appends += 1
        super().append(term, number, changes, parts, done)


class ClusterMember:
    """A member, and its way to the database."""

    def __init__(self, server: ReplicatedServer, journal: CountingJournal, url: str) -> None:
        self.server = server
        self.journal = journal
        self.url = url

    @property
    def role(self) -> str:
        """What the member is."""
        return self.server.view.role

    @property
    def nodes(self) -> set[str]:
        """The addresses of its broker's nodes."""
        return set(self.server.server.broker.default.nodes)

    @property
    def alarms(self) -> set[str]:
        """The alarms of its broker."""
        return set(self.server.server.broker.alarms)

    def bytes_received(self) -> int:
        """How much its broker has got from clients."""
        return int(self.server.server.broker.counters.bytes_received)

    async def get(self, path: str) -> tuple[int, str]:
        """The status and the text that the HTTP listener answers."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.server.monitoring_url}{path}") as response,
        ):
            return response.status, await response.text()


class MemberCluster:
    """A database, its members by name, and the time."""

    def __init__(self, folder: Path) -> None:
        self.time = ManualTime()
        self.database = MemoryDatabase(self.time.boottime)
        self.members: dict[str, ClusterMember] = {}
        # What is in the files of configuration now, by member.
        self.files: dict[str, Config] = {}
        self._folder = folder

    async def start(self, name: str, **settings: object) -> ClusterMember:
        """Start a member, with its folder if it has one already."""
        url = f"amqp://127.0.0.1:{free_port()}"
        config = Config.model_validate(
            {
                "advertise": url,
                "listener": [{"url": url}],
                "http": {"url": "http://127.0.0.1:0"},
                "store": {"path": str(self._folder / name), "segment-bytes": 65536},
                "replication": {
                    "engine": "postgresql",
                    "url": "unused",
                    "name": name,
                    "lease": LEASE,
                    "step-down-after": STEP_DOWN_AFTER,
                },
                **settings,
            }
        )
        journal = CountingJournal(self.database, asyncio.get_running_loop())
        server = ReplicatedServer(
            config,
            journal,
            self.time,
            later=self.time.later,
            reread=lambda: LoadedConfig(Path("file"), self.files[name], SourceLocations("")),
        )
        self.files[name] = config
        member = self.members[name] = ClusterMember(server, journal, url)
        await server.start()
        await self.time.turn()
        return member

    async def leads(self, name: str) -> ClusterMember:
        """Wait until a member leads; it must not wait for the end of a lease."""
        member = self.members[name]
        await self.time.until(lambda: member.role == LEADER, seconds=1.0)
        return member

    def declare(self, name: str, queue: str) -> None:
        """Declare a queue in the file of a member, and let the member read it."""
        queues = [*self.files[name].queue, Queue(name=queue)]
        self.files[name] = self.files[name].model_copy(update={"queue": queues})
        self.members[name].server.reload()

    async def stop(self, name: str) -> None:
        """Stop a member in good order."""
        await self.members.pop(name).server.close()


@asynccontextmanager
async def member_cluster(folder: Path) -> AsyncIterator[MemberCluster]:
    """A cluster without members, which stops those that it gets."""
    cluster = MemberCluster(folder)
    try:
        yield cluster
    finally:
        for name in list(cluster.members):
            await cluster.stop(name)
