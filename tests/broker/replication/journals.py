"""Clusters for tests of the shared journal: in memory and on PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from ferrymq_broker.replication.postgresql.database_schema import initialise
from ferrymq_broker.replication.postgresql.journal import PostgresqlJournal
from ferrymq_broker.replication.shared_journal import SharedJournal
from tests.support.postgresql import ROLE, PostgresqlPair
from tests.support.shared_journal import MemoryDatabase, MemorySharedJournal

_numbers = itertools.count(1)


async def call(method: Callable[..., None], *arguments: object) -> Any:
    """Return the result of a method of a journal; raise it if it is an error."""
    result = await outcome(method, *arguments)
    if isinstance(result, Exception):
        raise result
    return result


def outcome(method: Callable[..., None], *arguments: object) -> asyncio.Future[Any]:
    """Call a method of a journal; the future gets its result, also if that is an error."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(result: object) -> None:
        # A call has one result.
        future.set_result(result)

    method(*arguments, done)
    return future


class JournalCluster:
    """A cluster of its own, and the journals of its members, which are closed with it."""

    def __init__(self) -> None:
        self.name = f"cluster {next(_numbers)}"
        self._journals: list[SharedJournal] = []

    def join(self) -> SharedJournal:
        """Return the journal of one more member."""
        journal = self.make()
        self._journals.append(journal)
        return journal

    def make(self) -> SharedJournal:
        raise NotImplementedError

    def close(self) -> None:
        for journal in self._journals:
            journal.close()


class MemoryCluster(JournalCluster):
    """A cluster in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._database = MemoryDatabase(asyncio.get_running_loop().time)

    def make(self) -> SharedJournal:
        return MemorySharedJournal(self._database, asyncio.get_running_loop())


class PostgresqlCluster(JournalCluster):
    """A cluster in a database, whose members have the role `role`."""

    def __init__(self, pair: PostgresqlPair, role: str = ROLE) -> None:
        super().__init__()
        self.pair = pair
        self.role = role
        initialise(pair.url(), self.name, role)

    def make(self, timeout: float = 30.0) -> SharedJournal:
        loop = asyncio.get_running_loop()
        url = self.pair.url(self.role)
        return PostgresqlJournal(url, self.name, loop, timeout, lease_timeout=timeout)

    def join_with(self, timeout: float) -> SharedJournal:
        """Return a journal whose statements have `timeout` seconds."""
        journal = self.make(timeout)
        self._journals.append(journal)
        return journal

    async def waiting(self, what: str) -> int:
        """Wait until one of the members' processes on the primary waits for what `what` names, and
        return its id: "SyncRep" is the standby, "Lock" another transaction."""
        query = f"""
            SELECT pid FROM pg_stat_activity WHERE application_name = 'ferrymq {self.name}'
            AND '{what}' IN (wait_event, wait_event_type)
        """
        # The database tells nobody.
        while not (rows := self.pair.primary.execute(query)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return int(rows[0][0])
