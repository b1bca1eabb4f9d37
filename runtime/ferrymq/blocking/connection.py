"""Connections and sessions for code that blocks."""

from __future__ import annotations

import itertools
from types import TracebackType
from typing import Final, Self, Unpack

from ferrymq import aio
from ferrymq.blocking.chunks import ChunkReader
from ferrymq.blocking.links import Receiver, Sender
from ferrymq.blocking.portal import Portal
from ferrymq.blocking.transaction import Transaction
from ferrymq.fence import Committed, Fence
from ferrymq.options import (
    ChunkReaderArguments,
    ConnectionArguments,
    ReceiverArguments,
    SenderArguments,
    Timeout,
)
from ferrymq_types.transport import Error

_numbers: Final = itertools.count(1)


def connect(url: str = "amqp://localhost", **options: Unpack[ConnectionArguments]) -> Connection:
    """Open a connection; arguments and errors are those of `ferrymq.connect`.

    with ferrymq.blocking.connect("amqp://localhost") as connection:
        connection.sender("orders").send(Message(b"..."))
        for delivery in connection.receiver("orders"):
            delivery.accept()
    """
    opening = aio.connect(url, **options)
    portal = Portal(f"ferrymq-{next(_numbers)}")
    try:
        return portal.open(opening.open, Connection, aio.Connection.close)
    except BaseException:
        portal.stop()
        raise


class Session:
    """One session of a connection; the blocking face of `ferrymq.aio.Session`."""

    def __init__(self, portal: Portal, session: aio.Session) -> None:
        self._portal = portal
        self._session = session

    @property
    def closed(self) -> bool:
        """Whether the session is over."""
        return self._session.closed

    def sender(self, address: str | None, **options: Unpack[SenderArguments]) -> Sender:
        """Attach a link that sends to `address`; see `aio.Session.sender`."""
        opening = self._session.sender(address, **options)
        return self._portal.open(opening.open, Sender, aio.Sender.take_back)

    def receiver(self, address: str | None, **options: Unpack[ReceiverArguments]) -> Receiver:
        """Attach a link that receives from `address`; see `aio.Session.receiver`."""
        opening = self._session.receiver(address, **options)
        return self._portal.open(opening.open, Receiver, aio.Receiver.take_back)

    def chunk_reader(self, address: str, **options: Unpack[ChunkReaderArguments]) -> ChunkReader:
        """Read a partition of a stream in chunks; see `aio.Session.chunk_reader`."""
        opening = self._session.chunk_reader(address, **options)
        return self._portal.open(opening.open, ChunkReader, aio.ChunkReader.close)

    def transaction(
        self, *, fence: Fence | None = None, timeout: Timeout = "default"
    ) -> Transaction:
        """Declare a transaction; see `aio.Session.transaction`."""
        opening = self._session.transaction(fence=fence, timeout=timeout)
        return self._portal.open(opening.open, Transaction, aio.Transaction.rollback)

    def close(self, *, error: Error | None = None, timeout: Timeout = "default") -> None:
        """End the session with its links; see `aio.Session.close`."""
        # A session made before a fork is the parent's to end.
        if not self._session.closed and not self._portal.foreign:
            self._portal.run(lambda: self._session.close(error=error, timeout=timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Connection:
    """A connection to one container; the blocking face of `ferrymq.aio.Connection`.

    All its threads may use it at once. It does not survive a fork: a child makes its own. It must
    be closed; the thread behind it is a daemon, so a program that forgets to can still end.
    """

    def __init__(self, portal: Portal, connection: aio.Connection) -> None:
        self._portal = portal
        self._connection = connection

    def __repr__(self) -> str:
        return f"<blocking {repr(self._connection)[1:]}"

    @property
    def closed(self) -> bool:
        """Whether the connection is over, for good."""
        return self._connection.closed

    @property
    def container_id(self) -> str:
        """Our name towards the peer (AMQP 1.0 §2.4.1)."""
        return self._connection.container_id

    @property
    def remote_container_id(self) -> str:
        """The peer's name (AMQP 1.0 §2.4.1)."""
        return self._connection.remote_container_id

    @property
    def remote_properties(self) -> dict[str, object]:
        """The properties in the peer's open (AMQP 1.0 §2.7.1)."""
        return self._connection.remote_properties

    def session(self, *, timeout: Timeout = "default") -> Session:
        """Begin a session of its own; see `aio.Connection.session`."""
        opening = self._connection.session(timeout=timeout)
        return self._portal.open(opening.open, Session, aio.Session.close)

    def sender(self, address: str | None, **options: Unpack[SenderArguments]) -> Sender:
        """Attach a link that sends to `address`; see `aio.Connection.sender`."""
        opening = self._connection.sender(address, **options)
        return self._portal.open(opening.open, Sender, aio.Sender.take_back)

    def receiver(self, address: str | None, **options: Unpack[ReceiverArguments]) -> Receiver:
        """Attach a link that receives from `address`; see `aio.Connection.receiver`."""
        opening = self._connection.receiver(address, **options)
        return self._portal.open(opening.open, Receiver, aio.Receiver.take_back)

    def chunk_reader(self, address: str, **options: Unpack[ChunkReaderArguments]) -> ChunkReader:
        """Read a partition of a stream in chunks; see `aio.Session.chunk_reader`."""
        opening = self._connection.chunk_reader(address, **options)
        return self._portal.open(opening.open, ChunkReader, aio.ChunkReader.close)

    def transaction(
        self, *, fence: Fence | None = None, timeout: Timeout = "default"
    ) -> Transaction:
        """Declare a transaction; see `aio.Connection.transaction`."""
        opening = self._connection.transaction(fence=fence, timeout=timeout)
        return self._portal.open(opening.open, Transaction, aio.Transaction.rollback)

    def fence(
        self, group: str, member: str, *, target: str = "", timeout: float | None = None
    ) -> int | None:
        """Return the sequence a member has committed last; see `aio.Connection.fence`."""
        return self._portal.run(
            lambda: self._connection.fence(group, member, target=target, timeout=timeout)
        )

    def committed(
        self, group: str, member: str, *, target: str = "", timeout: float | None = None
    ) -> Committed | None:
        """Return what a member has committed last; see `aio.Connection.committed`."""
        return self._portal.run(
            lambda: self._connection.committed(group, member, target=target, timeout=timeout)
        )

    def close(self, *, error: Error | None = None, timeout: Timeout = "default") -> None:
        """Close the connection and end its thread; see `aio.Connection.close`."""
        try:
            # A connection made before a fork is the parent's to close.
            if self._portal.usable:
                self._portal.run(lambda: self._connection.close(error=error, timeout=timeout))
        finally:
            self._portal.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
