"""Connecting to one of the servers of a URL without blocking the event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from psycopg import OperationalError, pq

from ferrymq_broker.replication.errors import JournalUnavailable
from ferrymq_broker.replication.postgresql.endpoints import DatabaseUrl, Endpoint

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn
# The first version whose processes notice that a client is gone while they wait for a lock.
_OLDEST: Final = 140_000


class Connector:
    """Connects to one of the servers of a URL, beginning with the one that accepted last.

    `avoid_last` makes that server the last one to try: it accepts connections and does not answer.
    """

    def __init__(self, url: DatabaseUrl) -> None:
        self._url = url
        self._last: Endpoint | None = None
        self._is_avoided = False

    def avoid_last(self) -> None:
        """Begin with the other servers the next time."""
        self._is_avoided = True

    async def connect(self) -> PGconn:
        """Return a connection to a server that can write.

        Raises `JournalUnavailable` with the reason of each server if there is none.
        """
        endpoints = await self._url.resolve()
        if self._last in endpoints:
            endpoints.remove(self._last)
            endpoints.insert(len(endpoints) if self._is_avoided else 0, self._last)
        reasons = []
        for endpoint in endpoints:
            try:
                async with asyncio.timeout(self._url.connect_seconds):
                    connection = await self._connect_to(endpoint)
            except TimeoutError:
                seconds = self._url.connect_seconds
                reasons.append(f"{endpoint} does not answer within {seconds:g} s")
            except OperationalError as error:
                reasons.append(self._url.without_password(str(error)))
            else:
                self._last = endpoint
                self._is_avoided = False
                return connection
        raise JournalUnavailable(f"the database cannot be reached: {'; '.join(reasons)}")

    async def _connect_to(self, endpoint: Endpoint) -> PGconn:
        connection = pq.PGconn.connect_start(self._url.connection_string(endpoint))
        try:
            wanted = pq.PollingStatus.WRITING
            while wanted != pq.PollingStatus.OK:
                if connection.status == pq.ConnStatus.BAD or wanted == pq.PollingStatus.FAILED:
                    raise OperationalError(connection.get_error_message())
                await _wait(connection.socket, wanted == pq.PollingStatus.READING)
                wanted = pq.PollingStatus(connection.connect_poll())
        except BaseException:
            connection.finish()
            raise
        if connection.server_version < _OLDEST:
            version = connection.server_version // 10_000
            connection.finish()
            raise OperationalError(f"{endpoint} is PostgreSQL {version}: 14 or newer is needed")
        connection.nonblocking = 1
        return connection


async def _wait(descriptor: int, for_input: bool) -> None:
    """Wait until a socket can be read, or written."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    stop: Callable[[], object]
    # The future is done once; the callback may come again before the task goes on.
    if for_input:
        loop.add_reader(descriptor, _set, ready)
        stop = functools.partial(loop.remove_reader, descriptor)
    else:
        loop.add_writer(descriptor, _set, ready)
        stop = functools.partial(loop.remove_writer, descriptor)
    try:
        await ready
    finally:
        stop()


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
