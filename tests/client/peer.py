"""A scripted AMQP peer on loopback: the engine in the server's role, over a real socket.

By itself it accepts everything, keeps what it is sent, and sends what `messages` holds. A test
changes what happens at one kind of event with `on`:

    peer.on[AttachReceived] = lambda connection, event: event.link.refuse(...)
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

from ferrymq.engine import Connection, ConnectionSettings, events
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sender import SenderLink
from ferrymq.message import Message
from ferrymq_types.messaging import Accepted, Source, Target

E = TypeVar("E", bound=events.Event)
Handler = Callable[["PeerConnection", Any], None]


class PeerConnection(asyncio.Protocol):
    """One connection of the peer. `links` are the links attached over it, by name."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.links: dict[str, SenderLink | ReceiverLink] = {}
        self.lost = asyncio.get_running_loop().create_future()
        # While false, bytes that arrive wait unread.
        self.reading = True
        self._unread: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.loop = asyncio.get_running_loop()
        self.engine = Connection(self.peer.settings(), self.loop.time())
        self.peer.connections.append(self)

    def data_received(self, data: bytes) -> None:
        if not self.reading:
            self._unread.append(data)
            return
        self.engine.receive_data(data, self.loop.time())
        self.process()

    def read_again(self) -> None:
        self.reading = True
        unread, self._unread = self._unread, []
        for data in unread:
            self.data_received(data)

    def eof_received(self) -> None:
        self.engine.receive_eof(self.loop.time())
        self.process()

    def connection_lost(self, exc: Exception | None) -> None:
        self.engine.receive_eof(self.loop.time())
        self.process()
        self.lost.set_result(None)

    def process(self) -> None:
        while taken := self.engine.take_events():
            for event in taken:
                self.peer.handle(self, event)
        if data := self.engine.data_to_send():
            self.transport.write(data)
        if self.engine.finished:
            self.transport.close()

    def send(self, name: str, payload: bytes, **named: Any) -> Any:
        """Send a message on a link, whatever the script says."""
        link = self.links[name]
        assert isinstance(link, SenderLink)
        delivery = link.send(payload, **named)
        self.process()
        return delivery


class Peer:
    """The server. `url` is where it listens; `events` is what happened on all connections."""

    def __init__(self, tls: ssl.SSLContext | None = None, **settings: Any) -> None:
        self.tls = tls
        self.connections: list[PeerConnection] = []
        self.events: list[events.Event] = []
        self.on: dict[type[events.Event], Handler] = {}
        self.credit = 100
        # What is to be sent on links from an address.
        self.messages: defaultdict[str | None, deque[bytes]] = defaultdict(deque)
        # What was received, by the address of the target.
        self.received: defaultdict[str | None, list[Message]] = defaultdict(list)
        self._settings = {
            "container_id": "peer",
            "initiator": False,
            "sasl_mechanisms": ["ANONYMOUS", "PLAIN"],
            **settings,
        }
        self._changed: list[asyncio.Future[None]] = []

    def make_connection(self) -> PeerConnection:
        """What speaks on a transport that a client has opened."""
        return PeerConnection(self)

    def settings(self) -> ConnectionSettings:
        return ConnectionSettings(**self._settings)

    async def __aenter__(self) -> Self:
        self.server = await asyncio.get_running_loop().create_server(
            self.make_connection, "127.0.0.1", 0, ssl=self.tls
        )
        self.port = self.server.sockets[0].getsockname()[1]
        scheme = "amqp" if self.tls is None else "amqps"
        self.url = f"{scheme}://localhost:{self.port}"
        return self

    async def listen_again(self) -> None:
        """Listen at the same port, after `server.close()`."""
        self.server = await asyncio.get_running_loop().create_server(
            self.make_connection, "127.0.0.1", self.port, ssl=self.tls
        )

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        for connection in self.connections:
            connection.transport.abort()
        for connection in self.connections:
            await connection.lost
        await self.server.wait_closed()

    @property
    def connection(self) -> PeerConnection:
        """The latest connection."""
        return self.connections[-1]

    def put(self, address: str, *bodies: object) -> None:
        """Have messages sent on links from the address."""
        for body in bodies:
            self.messages[address].append(Message(body).encode())

    def count(self, kind: type[events.Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    async def seen(self, kind: type[E], count: int = 1) -> E:
        """Wait until `count` events of a kind have happened, and give the latest."""
        while True:
            found = [event for event in self.events if isinstance(event, kind)]
            if len(found) >= count:
                return found[-1]
            changed = asyncio.get_running_loop().create_future()
            self._changed.append(changed)
            await changed

    # ── The script ─────────────────────────────────────────────────────────────────────────────

    def handle(self, connection: PeerConnection, event: events.Event) -> None:
        self.events.append(event)
        handler = self.on.get(type(event))
        if handler is not None:
            handler(connection, event)
        else:
            self.default(connection, event)
        changed, self._changed = self._changed, []
        for future in changed:
            if not future.done():
                future.set_result(None)

    def default(self, connection: PeerConnection, event: events.Event) -> None:
        """What the peer does where the test says nothing."""
        match event:
            case events.AuthenticationRequested():
                connection.engine.accept_authentication()
            case events.OpenReceived():
                connection.engine.open()
            case events.BeginReceived():
                if not event.session.initiated:
                    event.session.accept()
            case events.AttachReceived():
                self.attach(connection, event)
            case events.CreditReceived():
                self.feed(event.link)
            case events.DeliveryReceived():
                target = event.link.target
                address = target.address if isinstance(target, Target) else None
                self.received[address].append(Message.decode(event.delivery.payload))
                event.delivery.settle(Accepted())
                if event.link.credit * 2 <= self.credit:
                    event.link.set_credit(self.credit)
            case events.OutcomeReceived():
                event.delivery.settle()
            case events.DetachReceived():
                event.link.detach(closed=event.closed)
            case events.EndReceived():
                event.session.end()
            case events.CloseReceived():
                connection.engine.close()

    def attach(
        self, connection: PeerConnection, event: events.AttachReceived, **named: Any
    ) -> None:
        """Accept a link, and give credit if it brings messages."""
        link = event.link
        assert isinstance(link, SenderLink | ReceiverLink)
        connection.links[link.name] = link
        remote = link.remote_attach
        assert remote is not None
        if isinstance(remote.source, Source) and remote.source.dynamic:
            named["source"] = Source(address="made-up", dynamic=True)
        if isinstance(remote.target, Target) and remote.target.dynamic:
            named["target"] = Target(address="made-up", dynamic=True)
        link.accept(**named)
        if isinstance(link, ReceiverLink) and self.credit:
            link.set_credit(self.credit)

    def feed(self, link: SenderLink) -> None:
        """Send what there is, as far as credit goes."""
        assert link.source is not None
        messages = self.messages[link.source.address]
        while messages and link.credit > 0 and link.usable:
            link.send(messages.popleft())
        if link.drain:
            link.drained()
