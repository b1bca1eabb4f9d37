"""Recovery: connecting again and putting sessions and links back (see `ReconnectPolicy`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ferrymq.aio.waiting import Signal
from ferrymq.errors import (
    AmqpError,
    AuthenticationError,
    ConnectionClosed,
    LinkDetached,
    SessionEnded,
)
from ferrymq.reconnect import ReconnectPolicy
from ferrymq_types.security import SaslCode

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection


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
        # A connection lost while it is being restored: the attempt that restored it is void.
        self._lost_again = False

    def start(self, error: ConnectionClosed) -> None:
        """The connection was lost: suspend what it carried and go on in a task."""
        for session in list(self._connection.sessions):
            session.suspend(error)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(error))
        else:
            self._lost_again = True

    async def wait(self) -> None:
        """Return when the connection is there; at once if it is."""
        while self._task is not None:
            await self._done.wait()
        self._connection.check()

    @property
    def active(self) -> bool:
        """Whether the connection is being restored."""
        return self._task is not None

    def stop(self) -> None:
        """Give up restoring."""
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until nothing is being restored any more."""
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
                        # Not refused: the transport was lost in the middle of it, or the server
                        # asks to try again later (AMQP 1.0 §5.3.3.6).
                        error.__cause__ = refused
                        connection.transport.abort()
                        continue
                    error = ConnectionClosed(f"the connection failed: {refused}")
                    error.__cause__ = refused
                    break
                except (AmqpError, OSError) as failed:
                    # The next attempt may fare better; the last one's reason is what is told.
                    error.__cause__ = failed
                    connection.transport.abort()
                    continue
                if not self._lost_again:
                    return
            connection.give_up(error)
        finally:
            self._task = None
            self._done.wake()

    async def _restore(self) -> None:
        """Begin the sessions and attach the links again; a link that is refused has ended."""
        for session in list(self._connection.sessions):
            try:
                await session.begin()
            except SessionEnded:
                continue
            for link in session.links:
                try:
                    await link._attach()
                except (LinkDetached, TimeoutError):
                    continue
