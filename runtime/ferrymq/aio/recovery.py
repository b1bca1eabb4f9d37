"""Recovery: connecting again and putting sessions and links back (see `ReconnectPolicy`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ferrymq.aio.failover import is_final
from ferrymq.aio.waiting import Signal, fresh
from ferrymq.errors import AmqpError, ConnectionClosed, SessionEnded
from ferrymq.reconnect import ReconnectPolicy

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.aio.failover import Failover
    from ferrymq.aio.session import Session
    from ferrymq.url import Url

LOGGER: Final = logging.getLogger("ferrymq")


class Recovery:
    """Restores one connection as often as its policy allows."""

    def __init__(
        self,
        connection: Connection,
        policy: ReconnectPolicy,
        failover: Failover,
        open_transport: Callable[[Connection, Failover, Url, float | None], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self.policy = policy
        self._failover = failover
        self._open_transport = open_transport
        self._task: asyncio.Task[None] | None = None
        self._done = Signal()
        # Tasks that restore sessions which the peer has ended.
        self._sessions: dict[Session, asyncio.Task[None]] = {}
        # Losses of the connection while it was being restored: that attempt has failed. The first
        # one states the reason.
        self._losses: list[ConnectionClosed] = []

    def start(self, error: ConnectionClosed) -> None:
        """Suspend the sessions of a lost connection and restore it in a task."""
        for session in list(self._connection.sessions):
            session.suspend(error)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(error))
        else:
            self._losses.append(error)

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
        # A broker that moves says where to: that is only the first place to look.
        first = self._failover.place_of(connection.url, error)
        try:
            for pause in self.policy.pauses():
                await self.policy.sleep(pause)
                try:
                    await self._failover.connect(self._attempt, first)
                    return
                except (AmqpError, OSError) as failed:
                    if is_final(failed):
                        error = ConnectionClosed(f"the connection failed: {failed}")
                        error.__cause__ = failed
                        break
                    # The next attempt may succeed; the reason of the last one is reported.
                    error.__cause__ = failed
                first = None
            self._stop_sessions()
            connection.give_up(error)
        finally:
            self._task = None
            self._done.wake()

    async def _attempt(self, url: Url, timeout: float | None) -> None:
        """Restore the connection at one URL."""
        connection = self._connection
        self._losses.clear()
        try:
            await self._open_transport(connection, self._failover, url, timeout)
            if not self._losses:
                await self._restore()
            if self._losses:
                raise fresh(self._losses[0])
        except (AmqpError, OSError) as error:
            lost = next(iter(self._losses), None)
            transport = connection.transport
            transport.abort()
            # What this transport still reports is no loss of the next one.
            await asyncio.shield(transport.ended)
            if lost is None or is_final(error):
                raise
            # Calls that met the loss may only say that there is no session.
            raise fresh(lost) from lost.__cause__

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
