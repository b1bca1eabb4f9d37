"""Sessions of the links that the user has put into none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ferrymq.engine.settings import DEFAULT_CHANNEL_MAX
from ferrymq.errors import LocalProtocolError

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq.aio.session import Session

R = TypeVar("R")


class LinkSessions:
    """Default session of a connection; or a session for each link, where the peer would end all
    links of a session because of one (`Peer.ends_sessions`)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._default: Session | None = None
        self._turn = asyncio.Lock()

    async def default(self) -> Session:
        """Return the default session; begin it if there is none."""
        connection = self._connection
        connection.check_loop()
        async with self._turn:
            if self._default is None or self._default.closed:
                # A peer that refuses transactions may end their session.
                self._default = await connection.open_session(connection.peer.ends_sessions)
            return self._default

    async def attach(self, open: Callable[[Session], Awaitable[R]]) -> R:
        """Attach links by a function, in a session that is chosen here."""
        connection = self._connection
        if not connection.peer.ends_sessions:
            return await open(await self.default())
        connection.check_loop()
        async with self._turn:
            own = [one for one in connection.sessions if one.own and not one.restoring]
            if not own or len(own) < self._most:
                try:
                    own = [await connection.open_session(own=True)]
                except LocalProtocolError:
                    # The user has taken the other channels.
                    if not own:
                        raise
            # Nothing waits between here and `for_links`, so that the session is not ended as idle.
            attaching = min(own, key=lambda session: session.load).for_links(open)
        return await attaching

    @property
    def _most(self) -> int:
        """Most sessions that are begun for links; the others are left to the user. Beyond them the
        links share the sessions that have the fewest."""
        channel_max = min(self._connection.remote_channel_max, DEFAULT_CHANNEL_MAX)
        return (channel_max + 1) * 3 // 4
