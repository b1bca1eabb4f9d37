"""A connection to PostgreSQL that is made again when it breaks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import psycopg

from ferrymq_broker.replication.errors import JournalUnavailable
from ferrymq_broker.replication.postgresql.connecting import Connector
from ferrymq_broker.replication.postgresql.database_session import DatabaseSession
from ferrymq_broker.replication.postgresql.endpoints import DatabaseUrl
from ferrymq_broker.replication.postgresql.statements import DatabaseCall, Step

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

# Seconds before the second attempt to connect; doubled with each attempt up to the most.
_FIRST_DELAY: Final = 0.05
_MOST_DELAY: Final = 1.0


class DatabaseConnection:
    """A connection that carries out one call after the other.

    A call waits while a connection is made. When an attempt to connect fails, all waiting calls get
    the reason, and the next attempt is made a moment later. If the connection breaks, or if the
    server does not answer a step within `timeout` seconds, the result of the call under way is
    unknown: it gets `JournalUnavailable`, and the calls behind it wait for the next connection.

    `set_up` are the steps for each new connection; `check` is given the last result, and returns an
    error if the database is not fit for use.
    """

    def __init__(
        self,
        url: DatabaseUrl,
        loop: asyncio.AbstractEventLoop,
        timeout: float,
        set_up: Sequence[Step],
        check: Callable[[PGresult], Exception | None],
    ) -> None:
        self._url = url
        self._loop = loop
        self._timeout = timeout
        self._set_up = DatabaseCall(set_up, self._take_set_up)
        self._check = check
        self._connector = Connector(url)
        self._connecting: asyncio.Task[None] | None = None
        # Attempts to connect since a call succeeded.
        self._attempts = 0
        self._session: DatabaseSession | None = None
        # Whether the session is set up.
        self._ready = False
        self._waiting: deque[DatabaseCall] = deque()
        self._notified: Callable[[bytes], None] | None = None
        self._closed = False

    def run(self, call: DatabaseCall) -> None:
        """Carry out a call after those that are waiting."""
        if self._session is not None and self._ready and self._session.call is None:
            self._session.begin(call)
        else:
            self._waiting.append(call)
            self._connect()

    def listen(self, notified: Callable[[bytes], None]) -> None:
        """Stay connected from now on, and call `notified` with what is notified. It is also called
        with b"" after each connecting: something may have been notified before."""
        self._notified = notified
        self._connect()

    def close(self) -> None:
        """Close the connection. No `done` is called any more."""
        self._closed = True
        self._waiting.clear()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._session is not None:
            self._session.close()
            self._session = None

    # -- connecting --------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._session is None and self._connecting is None and not self._closed:
            self._connecting = self._loop.create_task(self._keep_connecting())

    async def _keep_connecting(self) -> None:
        try:
            while self._waiting or self._notified is not None:
                if self._attempts:
                    # The exponent has a limit: a power of two may be too large for a float.
                    delay = _FIRST_DELAY * 2 ** min(self._attempts - 1, 10)
                    await asyncio.sleep(min(delay, _MOST_DELAY))
                self._attempts += 1
                try:
                    self._attach(await self._connector.connect())
                except JournalUnavailable as error:
                    self._fail_waiting(error)
                except (OSError, psycopg.Error) as error:
                    # No descriptor is free, for one. Whatever it is, calls get an answer.
                    reason = self._url.without_password(str(error))
                    self._fail_waiting(JournalUnavailable(reason))
                else:
                    return
        finally:
            self._connecting = None

    def _attach(self, connection: PGconn) -> None:
        self._session = DatabaseSession(
            connection, self._loop, self._timeout, self._take_result, self._lose, self._notify
        )
        self._session.begin(self._set_up)

    def _take_set_up(self, result: PGresult | Exception) -> None:
        error = result if isinstance(result, Exception) else self._check(result)
        if error is not None:
            if self._session is not None:
                self._session.close()
                self._session = None
            self._fail_waiting(error)
            self._connect_again()
            return
        self._ready = True
        self._next()
        self._notify(b"")

    def _fail_waiting(self, error: Exception) -> None:
        # The functions may make new calls, which are for the next attempt.
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            if not self._closed:
                call.done(error)

    def _connect_again(self) -> None:
        if self._waiting or self._notified is not None:
            self._connect()

    def _notify(self, payload: bytes) -> None:
        if self._notified is not None:
            self._notified(payload)

    # -- calls -------------------------------------------------------------------------------

    def _next(self) -> None:
        if self._session is not None and self._waiting:
            self._session.begin(self._waiting.popleft())

    def _take_result(self, call: DatabaseCall, result: PGresult | Exception) -> None:
        if call is not self._set_up:
            self._attempts = 0
            # The next one leaves first: `done` may take long.
            self._next()
        call.done(result)

    def _lose(self, call: DatabaseCall | None, reason: str) -> None:
        if self._session is not None and self._session.has_timed_out:
            # A primary whose standby was promoted still accepts connections, and confirms nothing.
            self._connector.avoid_last()
        self._session = None
        self._ready = False
        self._connect_again()
        if call is not None:
            call.done(JournalUnavailable(self._url.without_password(reason)))
