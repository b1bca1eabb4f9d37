"""A broker without a network: client engines joined to connection handlers in memory.

    net = Network()
    alice = net.connect()
    sender = alice.sender("orders")
    sender.send(b"one")
    receiver = alice.receiver("orders", credit=10)
    assert receiver.bodies() == [b"one"]

Every call that may cause traffic moves bytes both ways until nothing is left to do, so that what a
test asserts next has already happened. Time stands still unless the test moves `net.now`.

With a `ManualStore` the broker can be stopped and started (`Network.restart`). `make test-all`
gives each `Network` one, unless it is to have none (`memory=True`), and starts it anew in the end.

One module because the network, its clients and their links call each other at every step.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

from librt.strings import BytesWriter

from ferrymq.engine.connection import Connection
from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq.engine.events import (
    AttachReceived,
    CloseReceived,
    DeliveryReceived,
    DetachReceived,
    DrainCompleted,
    EndReceived,
    Event,
    Terminated,
)
from ferrymq.engine.link import Link
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sasl import SaslMechanism
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.session import Session
from ferrymq.engine.settings import ConnectionSettings
from ferrymq_broker.broker import Broker
from ferrymq_broker.config.apply.declare import declare, make_hosts
from ferrymq_broker.config.model import Config
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport
from ferrymq_broker.connections.capabilities import OFFERED
from ferrymq_broker.connections.handler import ConnectionHandler
from ferrymq_broker.nodes.personality import Personality
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.recovery.recover import recover
from ferrymq_broker.slices import SLICE
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_codec.reader import Reader
from ferrymq_servicebus.hub_tables import HUB_TABLES
from ferrymq_types.messaging import Data, Header, MessageAnnotations, Source, Target
from ferrymq_types.transport import Error, ReceiverSettleMode, SenderSettleMode
from ferrymq_types.unions import DeliveryState, Outcome, Section, decode_section
from tests.broker.stores import ManualStore
from tests.support.known_users import KnownUsers

_names = itertools.count()

_STORED = os.environ.get("FERRYMQ_TEST_STORE") == "1"  # `make test-all`
# Brokers with a store only because of that, since the test began.
started: list[Network] = []

# What the clock of the day is ahead of the clock of the passes, in seconds.
EPOCH = 1_700_000_000.0


def encode(*sections: Section) -> bytes:
    """The encoded message made of these sections."""
    w = BytesWriter()
    for section in sections:
        section.encode(w)
    return w.getvalue()


def decode(payload: bytes) -> list[Section]:
    """The sections of an encoded message."""
    reader = Reader(payload)
    sections = []
    while reader.remaining():
        sections.append(decode_section(reader, "message"))
    return sections


def text(payload: bytes) -> bytes:
    """The data section of an encoded message."""
    return next(s.value for s in decode(payload) if isinstance(s, Data))


def header(payload: bytes) -> Header:
    """The header of an encoded message, one of defaults if it has none."""
    return next((s for s in decode(payload) if isinstance(s, Header)), Header())


def message_annotations(payload: bytes) -> dict[str | int, object]:
    """The message-annotations of an encoded message."""
    return next((s.value for s in decode(payload) if isinstance(s, MessageAnnotations)), {})


class Network:
    """One broker and its clients."""

    def __init__(
        self,
        *,
        auto_create: bool = True,
        max_nodes: int = 1000,
        credit: int = 1000,
        idle_time_out: float | None = None,
        max_message_size: int = 100_000_000,
        authenticator: Authenticator | None = None,
        incoming_window: int = 2048,
        store: ManualStore | None = None,
        memory: bool = False,
        slice_size: int = SLICE,
    ) -> None:
        self.now = 1000.0
        # By how many seconds the wall clock is off the monotonic one, and how often that changed.
        self.stepped = 0.0
        self.steps = 0
        # For how long the machine has been suspended, and had been when the broker began.
        self.suspended = 0.0
        self._suspended_before = 0.0
        self.slice_size = slice_size
        self.later: list[Callable[[], None]] = []
        self.wakes: list[float] = []
        added = _STORED and store is None and not memory
        self.store = ManualStore() if added else store
        self.max_nodes = max_nodes
        self.auto_create = auto_create
        self.credit = credit
        self.idle_time_out = idle_time_out
        self.max_message_size = max_message_size
        # Makes the personality of the virtual host at each start.
        self.personality: Callable[[], Personality] | None = None
        self.authenticator = authenticator or KnownUsers({}, True, True)
        # How the next client comes.
        self.transport = ClientTransport("test")
        self.incoming_window = incoming_window
        self.clients: list[Client] = []
        if added:
            started.append(self)
        self._start(None)

    def _start(self, config: Config | None) -> None:
        """A new broker, with what was stored."""
        self.later.clear()
        self.wakes.clear()
        self.broker = Broker(
            self.later.append, self.wakes.append, EPOCH + self.stepped, max_nodes=self.max_nodes
        )
        self._suspended_before = self.suspended
        slices = self.broker.agenda.slices
        slices.size = slices.left = self.slice_size
        self.space = self.broker.default
        if not self.auto_create:
            self.space.auto_create = None
        if config is not None:
            make_hosts(config, self.broker)
        if self.personality is not None:
            self.space.personality = self.personality()
        HUB_TABLES.add_words(self.broker)
        store = self.store
        if store is not None:
            store.open(self.broker.agenda.changes, lambda: self.later.append(self._complete))
            if store.records:
                self.broker.begin_pass(self.now)
                recover(self.broker, store)
            else:
                self.broker.keep(store)
        if config is not None:
            self.broker.begin_pass(self.now)
            declare(config, self.broker)

    def restart(self, config: Config | None = None) -> None:
        """The broker stops without a word, and starts with what its store has completed."""
        self.clients.clear()
        self._start(config)
        self.broker.finish_pass()
        self.advance(0)
        self.run()

    def _complete(self) -> None:
        """The disk has done what there was to do."""
        if self.store is not None and self.store.complete():
            self.broker.on_stable(self.now)
            self.store.push()

    def queue(self, address: str) -> Queue:
        """The queue at an address that has one."""
        queue = self.space.nodes[address]
        assert isinstance(queue, Queue)
        return queue

    def declare(self, address: str, policy: QueuePolicy | None = None) -> Queue:
        """A new queue."""
        queue = self.space.create(address, policy or QueuePolicy())
        assert isinstance(queue, Queue)
        return queue

    @property
    def wall(self) -> int:
        """The time of the day: milliseconds since the epoch."""
        # Added up as the broker does it: else the two may be a millisecond apart.
        return int((self.now + (EPOCH + self.stepped)) * 1000)

    @property
    def elapsed(self) -> int:
        """Milliseconds that have passed: whatever the wall clock says, suspensions included."""
        return int((self.now + self.suspended) * 1000)

    def set_clock(self, seconds: float) -> None:
        """Set the wall clock forward, or back if `seconds` is negative."""
        self.stepped += seconds
        self.steps += 1
        suspended = self.suspended - self._suspended_before
        self.broker.clock.set(EPOCH + self.stepped, suspended)
        self.broker.handle_timeout(self.now)
        self.run()

    def suspend(self, seconds: float) -> None:
        """Let the machine sleep: the wall clock goes on, the monotonic one does not."""
        self.suspended += seconds
        self.set_clock(seconds)

    def connect(self, **options: object) -> Client:
        """A client with an open connection and a session."""
        client = Client(self, **options)  # type: ignore[arg-type]
        client.open()
        return client

    def run(self) -> None:
        """Move bytes and do what is due, until nothing happens any more."""
        busy = True
        while busy:
            busy = False
            for client in list(self.clients):
                busy = client.step() or busy
            while self.later:
                todo = self.later.copy()
                self.later.clear()
                busy = True
                for call in todo:
                    call()

    def finish(self) -> None:
        """End the pass, and move the bytes of it."""
        self.broker.finish_pass()
        self.run()

    def advance(self, seconds: float) -> None:
        """Let time pass, and every timer with it."""
        end = self.now + seconds
        while True:
            dues = [
                due
                for client in self.clients
                for due in (client.handler.next_deadline(), client.next_deadline())
                if due is not None and due <= end
            ]
            dues += [due for due in self.wakes if due <= end]
            if not dues:
                break
            self.now = max(self.now, min(dues))
            for client in list(self.clients):
                client.tick()
            if any(due <= self.now for due in self.wakes):
                self.wakes.clear()
                self.broker.handle_timeout(self.now)
            self.run()
        self.now = end


class Client:
    """A client: an engine, one session, and what it has been told."""

    def __init__(
        self,
        net: Network,
        *,
        sasl: SaslMechanism | None = None,
        idle_time_out: float | None = None,
        incoming_window: int = 2048,
        handle_max: int = 1023,
        max_frame_size: int = 65536,
        container_id: str | None = None,
        hostname: str | None = None,
    ) -> None:
        self.net = net
        self.engine = Connection(
            ConnectionSettings(
                container_id=container_id or f"client-{next(_names)}",
                hostname=hostname,
                initiator=True,
                sasl=sasl,
                idle_time_out=idle_time_out,
                incoming_window=incoming_window,
                handle_max=handle_max,
                max_frame_size=max_frame_size,
            ),
            net.now,
        )
        self.inbox: list[bytes] = []
        self.hung_up = False
        self.silent = False
        # What went over the wire, if somebody wants to know: whether the client sent it, and what.
        self.wire: list[tuple[bool, bytes]] | None = None
        self.events: list[Event] = []
        self.links: dict[Link, Endpoint] = {}
        self.terminated: Terminated | None = None
        self.closed_with: Error | None = None
        transport = net.transport
        self.handler = ConnectionHandler(
            net.broker,
            ConnectionSettings(
                container_id="broker",
                initiator=False,
                idle_time_out=net.idle_time_out,
                incoming_window=net.incoming_window,
                offered_capabilities=list(OFFERED),
                sasl_mechanisms=net.authenticator.mechanisms(transport),
                sasl_required=net.authenticator.is_required(transport),
            ),
            net.authenticator,
            transport,
            self.inbox.append,
            self._on_hang_up,
            net.now,
            net.max_message_size,
            net.credit,
        )
        net.clients.append(self)

    def _on_hang_up(self) -> None:
        self.hung_up = True

    # -- the network -----------------------------------------------------------------

    def step(self) -> bool:
        """Move what there is to move; whether there was anything."""
        busy = False
        if self.inbox and not self.handler.output.paused:
            data = b"".join(self.inbox)
            self.inbox.clear()
            if self.wire is not None:
                self.wire.append((False, data))
            self.engine.receive_data(data, self.net.now)
            busy = True
        for event in self.engine.take_events():
            busy = True
            self._on_event(event)
        if not self.silent:
            data = self.engine.data_to_send()
            if data and not self.hung_up:
                if self.wire is not None:
                    self.wire.append((True, data))
                self.handler.receive_data(data, self.net.now)
                busy = True
        return busy

    def tick(self) -> None:
        """Call what is due."""
        due = self.handler.next_deadline()
        if due is not None and due <= self.net.now:
            self.handler.handle_timeout(self.net.now)
        due = self.next_deadline()
        if due is not None and due <= self.net.now:
            self.engine.handle_timeout(self.net.now)

    def next_deadline(self) -> float | None:
        """The client's own timers; a silent client has none."""
        return None if self.silent else self.engine.next_deadline()

    def lose(self) -> None:
        """The transport breaks, without a word."""
        self.net.clients.remove(self)
        self.handler.receive_eof(self.net.now)
        self.net.run()

    def pause(self) -> None:
        """The client stops reading."""
        self.handler.output.pause()

    def resume(self) -> None:
        """The client reads again."""
        self.handler.output.resume()
        self.net.run()

    # -- connection, session, links ----------------------------------------------------

    def open(self) -> None:
        """Open the connection and begin a session."""
        self.engine.open()
        self.net.run()
        if self.engine.opened:
            self.session = self.engine.begin()
            self.net.run()

    def begin(self) -> Session:
        """Begin a further session."""
        session = self.engine.begin()
        self.net.run()
        return session

    def close(self) -> None:
        """Close the connection in good order."""
        self.engine.close()
        self.net.run()

    def sender(
        self,
        address: str | None,
        *,
        target: Target | None = None,
        snd: SenderSettleMode = SenderSettleMode.MIXED,
        rcv: ReceiverSettleMode = ReceiverSettleMode.FIRST,
        name: str | None = None,
        session: Session | None = None,
        source: Source | None = None,
        properties: dict[str, object] | None = None,
    ) -> Sender:
        """Attach a link that sends to `address`."""
        link = (session or self.session).attach_sender(
            name or f"link-{next(_names)}",
            target=target or Target(address=address),
            source=source or Source(),
            snd_settle_mode=snd,
            rcv_settle_mode=rcv,
            properties=properties,
        )
        sender = Sender(self, link)
        self.links[link] = sender
        self.net.run()
        return sender

    def receiver(
        self,
        address: str | None,
        *,
        credit: int = 0,
        source: Source | None = None,
        mode: str | None = None,
        default_outcome: Outcome | None = None,
        snd: SenderSettleMode = SenderSettleMode.MIXED,
        rcv: ReceiverSettleMode = ReceiverSettleMode.FIRST,
        max_message_size: int = 0,
        name: str | None = None,
        session: Session | None = None,
        properties: dict[str, object] | None = None,
    ) -> Receiver:
        """Attach a link that receives from `address` and give it credit."""
        link = (session or self.session).attach_receiver(
            name or f"link-{next(_names)}",
            source=source
            or Source(address=address, distribution_mode=mode, default_outcome=default_outcome),
            target=Target(),
            snd_settle_mode=snd,
            rcv_settle_mode=rcv,
            max_message_size=max_message_size,
            properties=properties,
        )
        receiver = Receiver(self, link)
        self.links[link] = receiver
        self.net.run()
        if credit:
            receiver.credit(credit)
        return receiver

    def _on_event(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, AttachReceived | DetachReceived | DrainCompleted):
            self.links[event.link].on_event(event)
        elif isinstance(event, DeliveryReceived):
            receiver = self.links[event.link]
            assert isinstance(receiver, Receiver)
            receiver.deliveries.append(event.delivery)
        elif isinstance(event, EndReceived):
            event.session.end()
        elif isinstance(event, CloseReceived):
            self.closed_with = event.error
            self.engine.close()
        elif isinstance(event, Terminated):
            self.terminated = event


class Endpoint:
    """What senders and receivers share."""

    def __init__(self, client: Client, link: Link) -> None:
        self.client = client
        self.net = client.net
        self.attached = False
        self.detached = False
        self.error: Error | None = None
        self.drained = 0
        self._link = link

    @property
    def remote_source(self) -> Source:
        """The source as the broker answered it."""
        attach = self._link.remote_attach
        assert attach is not None and attach.source is not None
        return attach.source

    @property
    def remote_target(self) -> Target:
        """The target as the broker answered it."""
        attach = self._link.remote_attach
        assert attach is not None and isinstance(attach.target, Target)
        return attach.target

    def on_event(self, event: Event) -> None:
        """An event of this link."""
        if isinstance(event, AttachReceived):
            self.attached = True
        elif isinstance(event, DetachReceived):
            self.detached = True
            self.error = event.error
            self._link.detach(closed=event.closed)
        elif isinstance(event, DrainCompleted):
            self.drained += 1

    def close(self, closed: bool = True) -> None:
        """Close the link, or only detach it."""
        self._link.detach(closed=closed)
        self.net.run()


class Sender(Endpoint):
    """A link that sends."""

    def __init__(self, client: Client, link: SenderLink) -> None:
        super().__init__(client, link)
        self.link = link

    def send(self, *bodies: bytes, settled: bool = False) -> list[OutgoingDelivery]:
        """Send messages that consist of one data section."""
        sent = [self.link.send(encode(Data(value=body)), settled=settled) for body in bodies]
        self.net.run()
        return sent

    def send_sections(self, *sections: Section, settled: bool = False) -> OutgoingDelivery:
        """Send one message made of these sections."""
        return self.send_encoded(encode(*sections), settled=settled)

    def send_encoded(
        self,
        payload: bytes,
        *,
        settled: bool = False,
        message_format: int = 0,
        state: DeliveryState | None = None,
    ) -> OutgoingDelivery:
        """Send these bytes as a message."""
        delivery = self.link.send(
            payload, settled=settled, message_format=message_format, state=state
        )
        self.net.run()
        return delivery


class Receiver(Endpoint):
    """A link that receives. `deliveries` are those that have come and were not taken out."""

    def __init__(self, client: Client, link: ReceiverLink) -> None:
        super().__init__(client, link)
        self.link = link
        self.deliveries: list[IncomingDelivery] = []

    def credit(self, count: int) -> None:
        """Allow `count` messages from now on."""
        self.link.set_credit(count)
        self.net.run()

    def drain(self) -> None:
        """Ask for what there is within the credit."""
        self.link.drain_credit()
        self.net.run()

    def take(self) -> list[IncomingDelivery]:
        """The deliveries that have come since the last call."""
        taken = self.deliveries
        self.deliveries = []
        return taken

    def bodies(self) -> list[bytes]:
        """The bodies of the deliveries that have come; they stay."""
        return [text(delivery.payload) for delivery in self.deliveries]

    def settle(self, state: DeliveryState | None, *deliveries: IncomingDelivery) -> None:
        """Settle these deliveries, or all that have come, with this state."""
        for delivery in deliveries or self.take():
            delivery.settle(state)
        self.net.run()


__all__ = [
    "Client",
    "Endpoint",
    "Network",
    "Receiver",
    "Sender",
    "decode",
    "encode",
    "header",
    "message_annotations",
    "text",
]
