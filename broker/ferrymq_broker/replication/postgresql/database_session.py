"""A session with a server, from its connecting to its end, in the event loop.

libpq's functions that do not block are called when the socket can be read or written. A thread
would wait for the interpreter's lock beside a busy event loop, several times for each statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from psycopg import OperationalError, pq

from ferrymq_broker.replication.postgresql.server_errors import (
    error_of,
    is_breaking,
    message_of,
    sqlstate,
)
from ferrymq_broker.replication.postgresql.statements import ROLLBACK, DatabaseCall, Step

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

_BINARY: Final = 1
_GOOD: Final = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


class DatabaseSession:
    """A session that carries out one call at a time.

    `ended` is called with the call and its result. `broken` is called when the session has ended by
    itself, with the reason and the call under way, whose result is then unknown. `notified` gets
    the payload of each notification. A step may take `timeout` seconds.
    """

    def __init__(
        self,
        connection: PGconn,
        loop: asyncio.AbstractEventLoop,
        timeout: float,
        ended: Callable[[DatabaseCall, PGresult | Exception], None],
        broken: Callable[[DatabaseCall | None, str], None],
        notified: Callable[[bytes], None],
    ) -> None:
        self.call: DatabaseCall | None = None
        self._connection = connection
        self._descriptor = connection.socket
        self._loop = loop
        self._timeout = timeout
        self._ended = ended
        self._broken = broken
        self._notified = notified
        self._result: PGresult | Exception | None = None
        self._at = 0
        self._prepared: set[bytes] = set()
        self._preparing = False
        self._rolling_back = False
        self._writing = False
        self._warning = ""
        # Whether the server has said that the session is of no use any more.
        self._unusable = False
        # Whether the session has ended because the server did not answer.
        self.has_timed_out: bool = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        connection.notice_handler = self._take_notice
        loop.add_reader(self._descriptor, self._readable)

    def begin(self, call: DatabaseCall) -> None:
        """Send the first step of a call. There must be none under way."""
        self.call = call
        self._at = 0
        self._warning = ""
        self._rolling_back = False
        try:
            self._send(call.steps[0])
        except OperationalError as error:
            self._loop.call_soon(self._fail, error)

    def close(self) -> None:
        """Close the connection. Nothing is called any more."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._descriptor)
        if self._writing:
            self._loop.remove_writer(self._descriptor)
        self._connection.finish()

    # -- output ------------------------------------------------------------------------------

    def _send(self, step: Step) -> None:
        statement, parameters = step
        self._result = None
        if not statement.name:
            self._connection.send_query(statement.sql)
        elif statement.name in self._prepared:
            self._connection.send_query_prepared(
                statement.name, parameters, statement.formats, result_format=_BINARY
            )
        else:
            self._preparing = True
            self._connection.send_prepare(statement.name, statement.sql)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._timeout, self._time_out)
        self._flush()

    def _flush(self) -> None:
        unsent = self._connection.flush() != 0
        if unsent == self._writing:
            return
        self._writing = unsent
        if unsent:
            self._loop.add_writer(self._descriptor, self._writable)
        else:
            self._loop.remove_writer(self._descriptor)

    def _writable(self) -> None:
        try:
            self._flush()
        except OperationalError as error:
            self._fail(error)

    # -- input -------------------------------------------------------------------------------

    def _readable(self) -> None:
        connection = self._connection
        try:
            connection.consume_input()
            while self.call is not None and not connection.is_busy():
                result = connection.get_result()
                if result is None:
                    self._end_step(self.call)
                    break
                self._take_result(result)
            while not self._closed and (notification := connection.notifies()) is not None:
                self._notified(notification.extra)
        except OperationalError as error:
            self._fail(error)

    def _take_notice(self, notice: PGresult) -> None:
        if notice.error_field(pq.DiagnosticField.SEVERITY_NONLOCALIZED) == b"WARNING":
            self._warning = message_of(notice)

    def _take_result(self, result: PGresult) -> None:
        if self._rolling_back:
            return
        if result.status not in _GOOD:
            self._result = error_of(result)
            self._unusable = is_breaking(sqlstate(result))
        elif not isinstance(self._result, Exception):
            self._result = result

    def _end_step(self, call: DatabaseCall) -> None:
        """Go on after the server has carried out a step, or the preparation of its statement."""
        result = self._result
        if self._preparing:
            self._preparing = False
            if not isinstance(result, Exception):
                self._prepared.add(call.steps[self._at][0].name)
                self._send(call.steps[self._at])
                return
        if not self._rolling_back:
            # The count of rows is None if a step changes none by its nature.
            more = self._at + 1 < len(call.steps)
            if more and result is not None and not isinstance(result, Exception):
                if result.command_tuples != 0:
                    self._at += 1
                    self._send(call.steps[self._at])
                    return
            if self._connection.transaction_status != pq.TransactionStatus.IDLE:
                self._rolling_back = True
                self._send((ROLLBACK, ()))
                self._result = result
                return
        self._end_call(call, result)

    def _end_call(self, call: DatabaseCall, result: PGresult | Exception | None) -> None:
        if self._warning:
            # For one, a canceled wait for the synchronous standby is reported as a success with a
            # warning.
            self._break(f"its result is unknown: the database warned, {self._warning}")
        elif self._unusable or result is None:
            self._break(str(result))
        else:
            self.call = None
            if self._timer is not None:
                self._timer.cancel()
            self._ended(call, result)

    # -- the end -----------------------------------------------------------------------------

    def _fail(self, error: OperationalError) -> None:
        self._break(f"the connection to the database broke: {error}")

    def _time_out(self) -> None:
        self.has_timed_out = True
        self._break(f"the database has not answered for {self._timeout:g} s")

    def _break(self, reason: str) -> None:
        if not self._closed:
            self.close()
            self._broken(self.call, reason)
