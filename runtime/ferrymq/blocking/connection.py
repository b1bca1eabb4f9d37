"""Connections and sessions for code that blocks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, TypeVar, Unpack

from ferrymq import aio
from ferrymq.arguments import OtherNames
from ferrymq.blocking.chunks import ChunkReader
from ferrymq.blocking.face import Face, blocking
from ferrymq.blocking.links import PartitionedSender, Receiver, Sender
from ferrymq.blocking.management import ManagementClient, Pair
from ferrymq.blocking.portal import Portal, refuse_loop
from ferrymq.blocking.transaction import Transaction
from ferrymq.durations import Duration
from ferrymq.errors import ConnectionClosed
from ferrymq.fence import Fence
from ferrymq.management import ADDRESS, Replies
from ferrymq.options import (
    ChunkReaderArguments,
    ConnectionArguments,
    ConnectionOptions,
    ReceiverArguments,
    SenderArguments,
    Timeout,
)
from ferrymq.peers import Peer
from ferrymq.url import Url, parse_urls, shown_urls
from ferrymq_types.transport import Error

Opener = TypeVar("Opener", bound=aio.Session | aio.Connection)

_numbers: Final = itertools.count(1)


def connect(
    url: str | Sequence[str] = "amqp://localhost", **options: Unpack[ConnectionArguments]
) -> Connection:
    """Open a connection; arguments and errors are those of `ferrymq.connect`.

    with ferrymq.blocking.connect("amqp://localhost") as connection:
        connection.sender("orders").send(Message(b"..."))
        for delivery in connection.receiver("orders"):
            delivery.accept()

    Also raises RuntimeError in a thread that runs an event loop: such a call would stop the loop.
    """
    refuse_loop()
    return _connect(url, options, beside_loops=False)


def connect_beside_loop(
    url: str | Sequence[str], **options: Unpack[ConnectionArguments]
) -> Connection:
    """Open a connection as `connect` does, which may be used in a thread that runs an event loop.

    It is for libraries that are used in notebooks, where each cell runs inside a loop.
    """
    return _connect(url, options, beside_loops=True)


def _connect(
    url: str | Sequence[str], options: ConnectionArguments, *, beside_loops: bool
) -> Connection:
    opening = aio.connect(url, **options)
    shown = shown_urls(parse_urls(url))
    portal = Portal(f"ferrymq-{next(_numbers)}", url=shown, beside_loops=beside_loops)
    try:
        return portal.open(opening.opener(), Connection, aio.Connection.close)
    except BaseException:
        portal.stop()
        raise


class _Opener(Face[Opener]):
    """Common part of sessions and connections: opening links and transactions."""

    @property
    def closed(self) -> bool:
        """Whether the session or connection is over and will not be restored."""
        return self._behind.closed

    def sender(self, address: str | None, **options: Unpack[SenderArguments]) -> Sender:
        """Attach a link that sends to `address`; see `aio.Session.sender`."""
        opening = self._behind.sender(address, **options)
        return self._portal.open(opening.opener(), Sender, aio.Sender.take_back)

    def receiver(self, address: str | None, **options: Unpack[ReceiverArguments]) -> Receiver:
        """Attach a link that receives from `address`; see `aio.Session.receiver`."""
        opening = self._behind.receiver(address, **options)
        return self._portal.open(opening.opener(), Receiver, aio.Receiver.take_back)

    def chunk_reader(self, address: str, **options: Unpack[ChunkReaderArguments]) -> ChunkReader:
        """Read a partition of a stream in chunks; see `aio.Session.chunk_reader`."""
        opening = self._behind.chunk_reader(address, **options)
        return self._portal.open(opening.opener(), ChunkReader, aio.ChunkReader.close)

    def pair(self, address: str, *, name: str | None = None, credit: int = 10) -> Pair:
        """Attach a pair of links for requests to `address`; see `aio.Session.pair`."""
        opening = self._behind.pair(address, name=name, credit=credit)
        return self._portal.open(opening.opener(), Pair, aio.Pair.close)

    def management(
        self,
        address: str = ADDRESS,
        *,
        replies: Replies = "auto",
        timeout: Timeout = "default",
    ) -> ManagementClient:
        """Attach a client of a management node; see `aio.Session.management`."""
        opening = self._behind.management(address, replies=replies, timeout=timeout)
        return self._portal.open(opening.opener(), ManagementClient, aio.ManagementClient.close)

    def transaction(
        self, *, fence: Fence | None = None, timeout: Timeout = "default"
    ) -> Transaction:
        """Declare a transaction; see `aio.Session.transaction`."""
        opening = self._behind.transaction(fence=fence, timeout=timeout)
        return self._portal.open(opening.opener(), Transaction, aio.Transaction.rollback)


class Session(_Opener[aio.Session]):
    """One session of a connection; the blocking face of `ferrymq.aio.Session`."""

    def close(self, *, error: Error | None = None, timeout: Timeout = "default") -> None:
        """End the session with its links; see `aio.Session.close`."""
        # A session made before a fork belongs to the parent process.
        if not self._behind.closed and not self._portal.foreign:
            self._portal.run(lambda: self._behind.close(error=error, timeout=timeout))


class Connection(OtherNames, _Opener[aio.Connection]):
    """Blocking face of `ferrymq.aio.Connection`: a connection to one container.

    All threads may use it at once. It does not survive a fork: a child process makes its own. It
    must be closed; its thread is a daemon, so a program that does not close it can still end.
    """

    elsewhere: ClassVar[Mapping[str, str]] = aio.Connection.elsewhere

    def __repr__(self) -> str:
        return f"<blocking {repr(self._behind)[1:]}"

    @property
    def url(self) -> Url:
        """URL of the peer; see `aio.Connection.url`."""
        return self._behind.url

    @property
    def options(self) -> ConnectionOptions:
        """Options that the connection was made with."""
        return self._behind.options

    @property
    def container_id(self) -> str:
        """Our name towards the peer (AMQP 1.0 §2.4.1)."""
        return self._behind.container_id

    @property
    def remote_container_id(self) -> str:
        """The peer's name (AMQP 1.0 §2.4.1)."""
        return self._behind.remote_container_id

    @property
    def remote_properties(self) -> dict[str, object]:
        """The properties in the peer's open (AMQP 1.0 §2.7.1)."""
        return self._behind.remote_properties

    @property
    def peer(self) -> Peer:
        """Facts that are known about the broker; see `aio.Connection.peer`."""
        return self._behind.peer

    @property
    def remote_offered_capabilities(self) -> list[str]:
        """Capabilities that the peer offers in its open (AMQP 1.0 §2.7.1)."""
        return self._behind.remote_offered_capabilities

    def partitioned_sender(
        self,
        address: str,
        *,
        placement_max_age: Duration | None = 300,
        **options: Unpack[SenderArguments],
    ) -> PartitionedSender:
        """Open a sender to a stream on several brokers; see `aio.Connection.partitioned_sender`."""
        opening = self._behind.partitioned_sender(
            address, placement_max_age=placement_max_age, **options
        )
        return self._portal.open(opening.opener(), PartitionedSender, aio.PartitionedSender.close)

    def session(self, *, timeout: Timeout = "default") -> Session:
        """Begin a new session; see `aio.Connection.session`."""
        opening = self._behind.session(timeout=timeout)
        return self._portal.open(opening.opener(), Session, aio.Session.close)

    request: Final = blocking(aio.Connection.request)
    fence: Final = blocking(aio.Connection.fence)
    committed: Final = blocking(aio.Connection.committed)

    def wait_closed(self, *, timeout: Duration | None = None) -> None:
        """Wait until the connection is over; see `aio.Connection.wait_closed`."""
        try:
            self._portal.run(lambda: self._behind.wait_closed(timeout=timeout))
        except ConnectionClosed:
            # The portal is stopped only when this side has closed the connection.
            if self._portal.usable:
                raise

    def close(self, *, error: Error | None = None, timeout: Timeout = "default") -> None:
        """Close the connection and end its thread; see `aio.Connection.close`."""
        if self._portal.usable:
            self._portal.check()
        try:
            # A connection made before a fork belongs to the parent process.
            if self._portal.usable:
                self._portal.run(lambda: self._behind.close(error=error, timeout=timeout))
        finally:
            self._portal.stop()
