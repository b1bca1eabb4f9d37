"""Recovery: connecting again and putting sessions and links back (see `ReconnectPolicy`)."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ferrymq.aio.waiting import Signal
from ferrymq.errors import (
    AmqpError,
    AuthenticationError,
    ConnectionClosed,
    SessionEnded,
    TransportError,
)
from ferrymq.reconnect import ReconnectPolicy
from ferrymq_types.security import SaslCode

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.aio.session import Session

LOGGER: Final = logging.getLogger("ferrymq")

# Conditions of a peer that may take the connection later.
_PASSING: Final = ("amqp:connection:forced", "amqp:internal-error", "amqp:resource-limit-exceeded")
# What a web server answers whose service is not up.
_NOT_UP: Final = (502, 503, 504)


class Recovery:
    """Restores one connection as often as its policy allows."""

    def __init__(
        self,
        connection: Connection,
        policy: ReconnectPolicy,
        open_transport: Callable[[Connection], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self.policy = policy
        self._open_transport = open_transport
        self._task: asyncio.Task[None] | None = None
        self._done = Signal()
        # Tasks that restore sessions which the peer has ended.
        self._sessions: dict[Session, asyncio.Task[None]] = {}
        # True if the connection was lost again while it was being restored: that attempt has
        # failed.
        self._lost_again = False

    def start(self, error: ConnectionClosed) -> None:
        """Suspend the sessions of a lost connection and restore it in a task."""
        for session in list(self._connection.sessions):
            session.suspend(error)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(error))
        else:
            self._lost_again = True

    async def wait(self) -> None:
        """Wait until the connection is usable; return at once if it is, and for what the restoring
        itself calls."""
        while self._task is not None and self._task is not asyncio.current_task():
            await self._done.wait()
        self._connection.check()

    @property
    def active(self) -> bool:
        """Whether the connection is being restored."""
        return self._task is not None

    def stop(self) -> None:
        """Stop restoring."""
        if self._task is not None:
            self._task.cancel()
        self._stop_sessions()

    def _stop_sessions(self) -> None:
        for task in self._sessions.values():
            task.cancel()

    async def ended(self) -> None:
        """Wait until the restoring has ended."""
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    async def _run(self, error: ConnectionClosed) -> None:
        connection = self._connection
        try:
            for pause in self.policy.pauses():
                await self.policy.sleep(pause)
                self._lost_again = False
                try:
                    await self._open_transport(connection)
                    await self._restore()
                except AuthenticationError as refused:
                    if refused.code is None or refused.code == SaslCode.SYS_TEMP:
                        # This is no refusal: the transport was lost during the login, or the server
                        # asks to try again later (AMQP 1.0 §5.3.3.6).
                        error.__cause__ = refused
                        connection.transport.abort()
                        continue
                    error = ConnectionClosed(f"the connection failed: {refused}")
                    error.__cause__ = refused
                    break
                except (AmqpError, OSError) as failed:
                    # The next attempt may succeed; the reason of the last one is reported.
                    error.__cause__ = failed
                    connection.transport.abort()
                    continue
                if not self._lost_again:
                    return
            self._stop_sessions()
            connection.give_up(error)
        finally:
            self._task = None
            self._done.wake()

    async def _restore(self) -> None:
        """Begin the sessions and attach the links again; a refused link has ended."""
        for session in list(self._connection.sessions):
            try:
                await session.restore()
            except SessionEnded as ended:
                # Not again at once: that is for the session's own task.
                self._restore_later(session, ended)

    # ── Single sessions ────────────────────────────────────────────────────────────────────────

    def start_session(self, session: Session, error: SessionEnded) -> None:
        """Suspend a session that the peer has ended, and restore it in a task."""
        LOGGER.debug("%s", error)
        session.suspend(error)
        if not self.active:
            self._restore_later(session, error)

    def _restore_later(self, session: Session, error: SessionEnded) -> None:
        if session not in self._sessions and not session.closed:
            task = asyncio.get_running_loop().create_task(self._run_session(session, error))
            self._sessions[session] = task
            task.add_done_callback(lambda _: self._sessions.pop(session, None))

    async def _run_session(self, session: Session, error: SessionEnded) -> None:
        """Restore a session that has ended."""
        while (pause := next(session.pauses(self.policy), None)) is not None:
            await self.policy.sleep(pause)
            while self.active:
                await self._done.wait()
            if not session.restoring:
                # It was closed, or was restored together with the connection.
                return
            try:
                await session.restore()
            except SessionEnded as ended:
                error = ended
            except TimeoutError as late:
                error.__cause__ = late
            except AmqpError:
                # The connection is lost.
                return
            else:
                return
        session.give_up(error)


def may_come_up(error: Exception) -> bool:
    """Return whether a first attempt to connect failed for a reason that may pass, as when a broker
    is started: and not because of a login, a certificate or another setting."""
    if isinstance(error, AuthenticationError):
        # The server asks to try again later (AMQP 1.0 §5.3.3.6), or has gone away.
        return error.lost or error.code == SaslCode.SYS_TEMP
    if isinstance(error, ConnectionClosed):
        return error.condition is None or error.condition in _PASSING
    if isinstance(error, TransportError):
        cause = error.__cause__
        if isinstance(cause, ssl.SSLError):
            return isinstance(cause, ssl.SSLEOFError)
        return isinstance(cause, OSError) or getattr(cause, "status", None) in _NOT_UP
    return isinstance(error, TimeoutError)
