"""The sessions of a connection by channel, ours and the peer's (AMQP 1.0 §2.5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.numbers import FreeNumbers
from ferrymq.engine.session import Session
from ferrymq.engine.unfinished import Unfinished
from ferrymq.errors import RemoteProtocolError

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection
    from ferrymq.engine.link import Link
    from ferrymq_types.transport import Begin


@final
class Channels:
    """Two maps of channels to sessions: each direction numbers its channels independently."""

    __slots__ = ("by_remote", "by_local", "links", "unfinished", "numbers", "_latest")

    def __init__(self, unfinished: Unfinished) -> None:
        self.by_remote: dict[int, Session] = {}
        self.by_local: dict[int, Session] = {}
        # The channels that this side has not taken.
        self.numbers: FreeNumbers = FreeNumbers()
        # Every link that is not detached on both sides, by (name, we are the sender): a name
        # identifies one link in all sessions of the connection (AMQP 1.0 §2.6.1).
        self.links: dict[tuple[str, bool], Link] = {}
        self.unfinished: Unfinished = unfinished
        # The session of the latest frame, as long as it has its channel: most frames follow a frame
        # of the same session.
        self._latest: Session | None = None

    def allocate(self, session: Session, limit: i64) -> bool:
        """Give the session a free channel; return false if all up to `limit` are in use."""
        channel = self.numbers.next(limit)
        if channel < 0:
            return False
        self.numbers.take(channel)
        session.channel = channel
        self.by_local[channel] = session
        return True

    def map_remote(self, session: Session, channel: i64) -> None:
        """Map the peer's `channel` to the session."""
        self._latest = None
        session.remote_channel = channel
        self.by_remote[channel] = session

    def begun(self, connection: Connection, begin: Begin, channel: i64) -> Session:
        """Map `channel` to the session that the peer begins or answers there, and return it.

        Raises `RemoteProtocolError` if the channel is taken, or there is none of ours to answer.
        """
        if channel in self.by_remote:
            raise RemoteProtocolError(
                "amqp:illegal-state", f"begin on channel {channel}, which has a session"
            )
        answered = begin.remote_channel
        if answered is None:
            session = Session(connection, False)
            if not self.allocate(session, connection._channel_limit()):
                raise RemoteProtocolError(
                    "amqp:resource-limit-exceeded", "no channel is left to answer the begin on"
                )
        else:
            session = self.answered(answered)
        self.map_remote(session, channel)
        return session

    def answered(self, channel: i64) -> Session:
        """Return our session that the peer's begin answers. Raises `RemoteProtocolError`."""
        session = self.by_local.get(channel)
        if session is None or session.remote_channel >= 0 or not session.initiated:
            raise RemoteProtocolError(
                "amqp:not-found", f"begin in answer to channel {channel}, where none was begun"
            )
        return session

    def get(self, channel: i64, code: i64) -> Session:
        """Return the session of a frame with descriptor `code`. Raises `RemoteProtocolError`."""
        session = self._latest
        if session is None or session.remote_channel != channel:
            session = self.by_remote.get(channel)
            if session is None:
                raise RemoteProtocolError(
                    "amqp:connection:framing-error",
                    f"frame with descriptor 0x{code:02x} on channel {channel}, which has no"
                    " session",
                )
            self._latest = session
        return session

    def release(self, session: Session) -> None:
        """Free both channels of a session that both sides have ended."""
        if self.by_local.pop(session.channel, None) is not None:
            self.numbers.give_back(session.channel)
        self.unmap_remote(session)

    def unmap_remote(self, session: Session) -> None:
        """Free the peer's channel of a session that the peer has ended: it may begin another
        (§2.5.2)."""
        if self._latest is session:
            self._latest = None
        if self.by_remote.get(session.remote_channel) is session:
            del self.by_remote[session.remote_channel]

    def clear(self) -> list[Session]:
        """Forget all sessions and return them."""
        sessions = list(self.by_local.values())
        self.by_local.clear()
        self.numbers.clear()
        self._latest = None
        self.by_remote.clear()
        self.links.clear()
        self.unfinished.clear()
        return sessions
