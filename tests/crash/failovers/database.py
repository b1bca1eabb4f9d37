"""The database of a run: a pair of PostgreSQL servers behind proxies, with a record of what was
written to it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, ParamSpec, TypeVar

import psycopg

from ferrymq_broker.replication.postgresql.database_schema import initialise
from tests.crash.failovers.tcp_proxy import TcpProxy
from tests.crash.processes import free_port
from tests.support.postgresql import PostgresqlPair, PostgresqlServer

P = ParamSpec("P")
T = TypeVar("T")

CLUSTER: Final = "campaign"

# The most seconds until the servers are as they were.
_MENDING: Final = 30.0

# The role from which those of the members get their rights.
_ROLE: Final = "members"

# Written by the database itself, in the transactions of the brokers. The sequence gives the order
# of the locks of the lease's row, which is that of the commits.
_AUDIT: Final = """
CREATE TABLE public.audit (
    at bigserial PRIMARY KEY, what text, term bigint, number bigint, member text
);
CREATE FUNCTION public.audit_batch() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.audit (what, term, number, member)
    VALUES ('batch', NEW.term, NEW.number, session_user);
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT ON ferrymq.batch FOR EACH ROW WHEN (NEW.part = 0)
    EXECUTE FUNCTION public.audit_batch();
CREATE FUNCTION public.audit_lease() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.audit (what, term, member) VALUES ('term', NEW.term, NEW.holder);
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER UPDATE ON ferrymq.lease FOR EACH ROW WHEN (OLD.term <> NEW.term)
    EXECUTE FUNCTION public.audit_lease();
"""


class AuditRow(NamedTuple):
    """What the database has noted: a ``batch`` with its number and the member that has written it,
    or a new ``term`` with its holder, "" for nobody."""

    what: str
    term: int
    number: int | None
    member: str


class _Pair(PostgresqlPair):
    """A pair whose standby reaches the primary through a proxy."""

    def __init__(self, where: Path | None) -> None:
        super().__init__(where=where)
        self.ways: dict[PostgresqlServer, TcpProxy] = {}

    def port_for_standby(self, primary: PostgresqlServer) -> int:
        return self.ways[primary].port


class Database:
    """The two servers and the ways to them.

    `ways` has for each member a proxy to each server; `replication` are the ways from one server to
    the other. `environment` is for the servers, `where` the folder for their files, if it is not
    the usual one.
    """

    def __init__(
        self, members: Sequence[str], environment: dict[str, str], where: Path | None
    ) -> None:
        self.pair = _Pair(where)
        self.servers = (self.pair.primary, self.pair.standby)
        taken: list[int] = []
        for server in self.servers:
            server.port = free_port(taken)
            taken.append(server.port)
            server.environment = environment
        self.ways = {name: [TcpProxy(port) for port in taken] for name in members}
        self.replication = [TcpProxy(port) for port in taken]
        # The servers end with the thread that has started them.
        self._executor = ThreadPoolExecutor(1, "database")

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call that blocks."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: call(*args, **kwargs))

    async def start(self) -> None:
        """Start both servers, and make the tables, the roles and the record."""
        for proxy in self._proxies():
            await proxy.start()
        self.pair.ways = dict(zip(self.servers, self.replication, strict=True))
        await self.run(self.pair.start)
        await self.execute(f"CREATE ROLE {_ROLE}")
        for name in self.ways:
            await self.execute(f"CREATE ROLE {name} LOGIN IN ROLE {_ROLE}")
        await self.run(initialise, self.pair.primary.url(), CLUSTER, _ROLE)
        await self.execute(_AUDIT)

    async def close(self) -> None:
        """End both servers and remove their files."""
        for proxy in self._proxies():
            await proxy.close()
        await self.run(self.pair.close)
        self._executor.shutdown()

    def _proxies(self) -> Iterator[TcpProxy]:
        return itertools.chain(self.replication, *self.ways.values())

    def url(self, member: str) -> str:
        """The URL of both servers for a member."""
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.ways[member])
        return f"postgresql://{member}@{hosts}/postgres"

    def way(self, member: str, server: PostgresqlServer) -> TcpProxy:
        """The way of a member to a server."""
        return self.ways[member][self.servers.index(server)]

    @property
    def replication_way(self) -> TcpProxy:
        """The way of the standby to the primary of now."""
        return self.pair.ways[self.pair.primary]

    # -- the servers ---------------------------------------------------------------------------

    async def execute(self, sql: str) -> list[tuple[object, ...]]:
        """Execute SQL on the primary as superuser."""
        return await self.run(self.pair.primary.execute, sql)

    async def kill_primary(self) -> None:
        """SIGKILL to all processes of the primary."""
        await self.run(self.pair.primary.kill)

    async def start_primary(self) -> None:
        """Start the primary again, which recovers."""
        await self.run(self.pair.primary.start)

    async def promote(self) -> None:
        """Make the standby the primary; it has no standby yet."""
        await self.run(self.pair.promote)

    async def rejoin(self) -> None:
        """Make a new synchronous standby by a copy of the primary."""
        await self.run(self.pair.rejoin)

    async def mend(self) -> None:
        """Let both servers run, with commits that wait for the standby again."""
        for proxy in self._proxies():
            proxy.delay = 0.0
            proxy.refuse(False)
            proxy.release()
        for server in self.servers:
            if server.running:
                with suppress(ProcessLookupError):
                    await self.run(server.resume)
        async with asyncio.timeout(_MENDING):
            while True:
                try:
                    for server in (self.pair.primary, self.pair.standby):
                        if not server.running:
                            await self.run(server.start)
                    await self.run(self.pair.wait_until_synchronous)
                    return
                except (psycopg.OperationalError, AssertionError):
                    # It has ended once more, or it recovers.
                    await asyncio.sleep(0.1)

    # -- what was written ----------------------------------------------------------------------

    async def audit(self) -> list[AuditRow]:
        """What the database has noted, in order."""
        rows = await self.execute("SELECT what, term, number, member FROM public.audit ORDER BY at")
        return [AuditRow(*row) for row in rows]  # type: ignore[arg-type]

    async def numbers(self) -> list[tuple[int, int]]:
        """The numbers and terms of the batches in the journal, in order."""
        sql = "SELECT number, term FROM ferrymq.batch WHERE part = 0 ORDER BY number"
        return await self.execute(sql)  # type: ignore[return-value]
