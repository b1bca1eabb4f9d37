"""One connection of a client: what the engine reports becomes calls on nodes.

The handler is handed bytes, time and the state of the transport by the server, and hands back
bytes to `write`; it knows neither sockets nor the event loop.

A connection is *blocked* when it should not be given more to send: its transport is full
(`paused`), it has had its share of the pass (`congested`), or the broker is about to end (`quiet`).
Its consumers then wait in `stalled`,
and its producers that would get credit in `unsupplied`; a client that does not read is thus not
served, at no cost to the others. Consumers in `windowed` wait for the window of their session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from mypy_extensions import i64

from ferrymq.engine.connection import Connection
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.events import (
    AttachReceived,
    AuthenticationRequested,
    BeginReceived,
    CloseReceived,
    CreditReceived,
    DeliveryAborted,
    DeliveryReceived,
    DetachReceived,
    EndReceived,
    Event,
    LinkFailed,
    OpenReceived,
    OutcomeReceived,
    ScramKeysRequested,
    SessionTerminated,
    SettlementReceived,
    Terminated,
    TlsAgreed,
    TransactionalStateReceived,
    TransferIgnored,
)
from ferrymq.engine.frames import EMPTY_FRAME
from ferrymq.engine.link import Link
from ferrymq.engine.session import Session
from ferrymq.engine.settings import ConnectionSettings
from ferrymq_broker.access.access import Access
from ferrymq_broker.access.identity import Identity
from ferrymq_broker.broker import Broker
from ferrymq_broker.connections.authentication import (
    Authenticator,
    ClientTransport,
    Login,
    authenticate,
    end_login,
    provide_scram_keys,
    settle,
)
from ferrymq_broker.connections.incoming import IncomingEndpoint
from ferrymq_broker.connections.lapses import Lapses
from ferrymq_broker.connections.limits import Allowance, forget_begin, is_over_limit
from ferrymq_broker.connections.links import SessionLinks, attach_link, close_link, end_session
from ferrymq_broker.connections.opening import on_open
from ferrymq_broker.connections.outgoing import OUTPUT_LIMIT, OutgoingEndpoint
from ferrymq_broker.connections.remembered.source import SourceTerminus
from ferrymq_broker.connections.remembered.target import TargetTerminus
from ferrymq_broker.journal import log
from ferrymq_broker.nodes.node import Node, Producer
from ferrymq_broker.transactions.coordinator import Coordinator
from ferrymq_broker.transactions.table import Transactions
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Error


@final
class ConnectionHandler:
    """The broker's side of one connection, over a `transport`.

    `write` is called with bytes for the client, `hang_up` once, when all are written and the
    connection is over. `deadline_moved` is true when `next_deadline` may have come closer.
    """

    __slots__ = (
        "broker",
        "space",
        "id",
        "connection",
        "authenticator",
        "transport",
        "peer",
        "login",
        "_decision",
        "identity",
        "user",
        "access",
        "lapses",
        "container_id",
        "max_message_size",
        "credit_window",
        "blocked",
        "paused",
        "congested",
        "quiet",
        "dirty",
        "changes",
        "need",
        "held",
        "_kept",
        "_kept_bytes",
        "_begun",
        "stalled",
        "windowed",
        "unsupplied",
        "crowded",
        "dynamic_nodes",
        "transactions",
        "allowance",
        "events",
        "deadline_moved",
        "rearm",
        "on_tls",
        "over",
        "_write",
        "_hang_up",
    )

    def __init__(
        self,
        broker: Broker,
        settings: ConnectionSettings,
        authenticator: Authenticator,
        transport: ClientTransport,
        write: Callable[[bytes], object],
        hang_up: Callable[[], object],
        now: float,
        max_message_size: int,
        credit_window: int,
    ) -> None:
        self.broker = broker
        # The virtual host of the connection.
        self.space = broker.default
        self.id: i64 = broker.new_id()
        self.connection = Connection(settings, now)
        self.authenticator = authenticator
        self.transport = transport
        self.peer = transport.peer
        # What the client has said about itself, as long as nobody has decided on it.
        self.login: Login | None = None
        self._decision: tuple[Login, Identity | None, str] | None = None
        # Who the client has proved to be, None before that; its name, None if it is anonymous.
        self.identity: Identity | None = None
        self.user: str | None = None
        # What it may do in its virtual host: nothing before its open.
        self.access = Access(Identity(None), [])
        # When that ends; None for never.
        self.lapses: Lapses | None = None
        self.container_id = ""
        self.max_message_size = max_message_size
        self.credit_window: i64 = credit_window
        self.blocked = False
        self.paused = False
        self.congested = False
        self.quiet = False
        # True while the handler waits for its flush at the end of the pass.
        self.dirty = False
        self.changes = broker.agenda.changes
        # What the client is told next says that this batch is on disk; whether output waits for it.
        self.need: i64 = 0
        self.held = False
        # The output that waits, each piece with the batch it waits for.
        self._kept: list[tuple[int, bytes]] = []
        self._kept_bytes: i64 = 0
        # Whether the client has been sent our open.
        self._begun = False
        # Each of them once, however often the client sends a flow meanwhile.
        self.stalled: dict[OutgoingEndpoint, None] = {}
        self.windowed: dict[OutgoingEndpoint, None] = {}
        self.unsupplied: list[Producer] = []
        self.transactions = Transactions(self)
        self.allowance = Allowance(broker.client_limits)
        # Producers that have too much unsettled themselves to be given credit.
        self.crowded: dict[IncomingEndpoint, None] = {}
        # Those of the read that is being processed.
        self.events: list[Event] = []
        self.dynamic_nodes: dict[Link, Node] = {}
        self.deadline_moved = True
        # To be called when `next_deadline` may have come closer in a pass of its own.
        self.rearm: Callable[[], object] | None = None
        # To be called when TLS begins with the next byte (AMQP 1.0 §5.2).
        self.on_tls: Callable[[], object] | None = None
        self.over = False
        self._write = write
        self._hang_up = hang_up
        broker.handlers[self] = None

    # -- what the server calls -----------------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> None:
        """Bytes arrived: one whole pass."""
        connection = self.connection
        broker = self.broker
        broker.begin_pass(now)
        broker.counters.bytes_received += len(data)
        connection.receive_data(data, now)
        self._process()
        if connection.failure is not None or connection.unread:
            # The client has a time to answer the close in, or has given us more to do.
            self.deadline_moved = True
        if self.windowed:
            self._recheck_windows()
        if self.crowded:
            self._recheck_crowded()
        if self.transactions.waiting:
            self._recheck_transactions()
        if not self.dirty:
            self.touch()
        broker.finish_pass()

    def receive_eof(self, now: float) -> None:
        """The transport has ended, in whatever way."""
        self.broker.begin_pass(now)
        self.connection.receive_eof(now)
        self._process()
        self.broker.finish_pass()

    def next_deadline(self) -> float | None:
        """When `handle_timeout` is to be called, by the clock that gives `now`."""
        self.deadline_moved = False
        return self.connection.next_deadline()

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        self.broker.begin_pass(now)
        self.connection.handle_timeout(now)
        self._process()
        self.touch()
        if self.held and self._begun and not self.paused:
            # A slow disk is no reason to be taken for dead: this may overtake what waits.
            self._write(EMPTY_FRAME)
        self.broker.finish_pass()

    def pause(self) -> None:
        """The transport takes no more bytes for now."""
        self.paused = True
        self.blocked = True

    def resume(self, now: float) -> None:
        """The transport takes bytes again."""
        self.broker.begin_pass(now)
        self.paused = False
        self._unblock()
        self.broker.finish_pass()

    def quiesce(self) -> None:
        """Send no more messages and ask for none: the client settles what it has."""
        self.quiet = True
        self.blocked = True

    def holds_messages(self) -> bool:
        """Whether the client has messages that it has not settled."""
        for session in self.connection.channels.by_remote.values():
            links = session.context
            if isinstance(links, SessionLinks):
                for endpoint in links.outgoing.values():
                    if endpoint.held > 0:
                        return True
        return False

    def withdraw_credit(self) -> None:
        """Producers are to send nothing more."""
        for session in self.connection.channels.by_remote.values():
            links = session.context
            if isinstance(links, SessionLinks):
                for endpoint in links.incoming.values():
                    endpoint.withdraw()

    def close(self, error: Error | None, now: float) -> None:
        """Close the connection from our side; the client has `close_timeout` to answer."""
        self.broker.begin_pass(now)
        self.connection.close(error, now)
        self.deadline_moved = True
        self._process()
        self.touch()
        self.broker.finish_pass()

    def settle_login(self, login: Login, identity: Identity | None, reason: str) -> None:
        """It has been decided who the client is, in the pass in which it said so."""
        settle(self, login, identity, reason)

    def settle_login_later(self, login: Login, identity: Identity | None, reason: str) -> None:
        """It has been decided who the client is, when it has waited for that."""
        self._decision = (login, identity, reason)
        self.broker.soon(self._go_on)

    def _go_on(self) -> None:
        """What was decided has its consequences: a pass of its own."""
        decision = self._decision
        if decision is not None:
            self._decision = None
            settle(self, *decision)
            self._process()
            self.touch()
        self.broker.finish_pass()
        if self.rearm is not None:
            self.rearm()

    # -- what the broker calls -----------------------------------------------------------

    def lose_to_thief(self, link: Link) -> None:
        """The same container has attached the link on another connection (AMQP 1.0 §2.6.1)."""
        log.info("link stolen", peer=self.peer, link=link.name)
        description = f"link {link.name!r} was attached on another connection"
        link.detach(
            closed=False, error=Error(condition="amqp:link:stolen", description=description)
        )
        # Its client may be dead already, and may have seen the messages it held.
        close_link(self, link, True, False)
        self.touch()

    def touch(self) -> None:
        """There may be something to write at the end of this pass."""
        if not self.dirty:
            self.dirty = True
            self.broker.dirty_handlers.append(self)

    def flush(self) -> None:
        """Write what has gathered."""
        self.dirty = False
        connection = self.connection
        if self._kept or self.need > self.changes.stable:
            if not self._let_go():
                return
        elif connection.has_output:
            self._begun = connection.opened
            data = connection.data_to_send()
            self.broker.counters.bytes_sent += len(data)
            self._write(data)
        if self.congested:
            self.broker.continue_later(self)
        if connection.finished and not self.over:
            self.over = True
            self._hang_up()

    def _let_go(self) -> bool:
        """Write what may be told by now, and keep the rest; whether that was all.

        A client that causes changes all the time is told of the first while the next are on their
        way to the disk.
        """
        connection = self.connection
        kept = self._kept
        if connection.has_output:
            data = connection.data_to_send()
            kept.append((int(self.need), data))
            self._kept_bytes += len(data)
        stable = self.changes.stable
        count: i64 = 0
        while count < len(kept) and kept[count][0] <= stable:
            count += 1
        if count > 0:
            data = b"".join([piece for _, piece in kept[:count]])
            del kept[:count]
            self._kept_bytes -= len(data)
            self._begun = connection.opened
            self.broker.counters.bytes_sent += len(data)
            self._write(data)
        if not kept:
            return True
        if not self.held:
            self.held = True
            self.broker.held.append(self)
        if self._kept_bytes > OUTPUT_LIMIT:
            self.congested = True
            self.blocked = True
        elif self.congested:
            self.broker.continue_later(self)
        return False

    def decongest(self) -> None:
        """A new pass, a new share."""
        self.congested = False
        self._unblock()

    def _unblock(self) -> None:
        self.blocked = self.paused or self.congested or self.quiet
        if self.blocked:
            return
        if self.stalled:
            stalled = self.stalled
            self.stalled = {}
            for consumer in stalled:
                if not consumer.closed:
                    consumer.go_on()
        if self.unsupplied:
            unsupplied = self.unsupplied
            self.unsupplied = []
            for producer in unsupplied:
                producer.supply()
            self.touch()

    def _recheck_windows(self) -> None:
        waiting = self.windowed
        self.windowed = {}
        for consumer in waiting:
            if consumer.closed:
                continue
            link = consumer.link
            if link.parked > 0 or link.session.outgoing.remote_window <= 0 or consumer.is_full():
                self.windowed[consumer] = None
            else:
                consumer.go_on()

    def _recheck_crowded(self) -> None:
        waiting = self.crowded
        self.crowded = {}
        for producer in waiting:
            producer.supply()

    def _recheck_transactions(self) -> None:
        before = self.changes.total
        self.transactions.recheck()
        if self.changes.total != before:
            self.need = self.changes.latest()

    def session_id(self, session: Session) -> i64:
        """The number of one of its sessions, unique in the broker."""
        links = session.context
        return links.id if isinstance(links, SessionLinks) else 0

    # -- events --------------------------------------------------------------------------

    def _process(self) -> None:
        changes = self.changes
        # Whatever a client causes it is told when it is on disk; but of what it has settled by
        # itself it is told nothing.
        before = changes.total
        claims = changes.claims
        try:
            before += self._work_off()
        except BaseException:
            # What it was told of before the mistake is told all the same.
            self.need = changes.latest()
            raise
        if changes.total != before or changes.claims != claims:
            self.need = changes.latest()

    def _work_off(self) -> i64:
        """Everything that has arrived; how many changes nobody needs to hear of."""
        connection = self.connection
        changes = self.changes
        quiet: i64 = 0
        while True:
            events = connection.take_events()
            self.events = events
            if not events:
                return quiet
            for event in events:
                if isinstance(event, OutcomeReceived):
                    consumer = event.delivery.link.context
                    if isinstance(consumer, OutgoingEndpoint):
                        before = changes.total
                        consumer.on_outcome(event.delivery)
                        if event.delivery.remote_settled:
                            quiet += changes.total - before
                    elif isinstance(consumer, SourceTerminus):
                        consumer.on_outcome(event.delivery)
                elif isinstance(event, DeliveryReceived):
                    producer = event.link.context
                    if isinstance(producer, IncomingEndpoint):
                        producer.on_delivery(event.delivery)
                    else:
                        _on_control(producer, event.delivery)
                elif isinstance(event, CreditReceived):
                    consumer = event.link.context
                    if isinstance(consumer, OutgoingEndpoint):
                        consumer.on_credit(event.properties)
                else:
                    self._on_rare(event)

    def _on_rare(self, event: Event) -> None:
        """Everything that does not happen once for every message."""
        if isinstance(event, TransactionalStateReceived):
            consumer = event.delivery.link.context
            if isinstance(consumer, OutgoingEndpoint) and not consumer.closed:
                self.transactions.state(consumer, event.delivery, event.state, event.settled)
        elif isinstance(event, SettlementReceived):
            producer = event.delivery.link.context
            if isinstance(producer, IncomingEndpoint | TargetTerminus):
                producer.on_settlement(event.delivery)
        elif isinstance(event, AttachReceived):
            attach_link(self, event.link)
        elif isinstance(event, DetachReceived):
            # What is to be gone with the link is gone before the client hears of it.
            close_link(self, event.link, False, event.closed)
            event.link.detach(closed=event.closed)
        elif isinstance(event, LinkFailed):
            log.warning(
                "link failed", peer=self.peer, link=event.link.name, reason=str(event.error)
            )
            if is_over_limit(event.error):
                self.broker.counters.links_over_limit += 1
            close_link(self, event.link, False, False)
        elif isinstance(event, BeginReceived):
            event.session.context = SessionLinks(self.broker.new_id())
            self.allowance.divide(len(self.connection.channels.by_remote))
            event.session.accept()
            forget_begin(event.session)
        elif isinstance(event, EndReceived):
            event.session.end()
        elif isinstance(event, SessionTerminated):
            end_session(self, event.session, event.error is not None)
            self.allowance.divide(len(self.connection.channels.by_remote))
        elif isinstance(event, AuthenticationRequested):
            authenticate(self, event)
        elif isinstance(event, ScramKeysRequested):
            provide_scram_keys(self, event)
        elif isinstance(event, TlsAgreed):
            if self.on_tls is not None:
                self.on_tls()
        elif isinstance(event, OpenReceived):
            on_open(self, event.open)
        elif isinstance(event, CloseReceived):
            self.connection.close()
        elif isinstance(event, TransferIgnored):
            if isinstance(event.state, TransactionalState):
                self.transactions.miss(event.state)
        elif isinstance(event, DeliveryAborted):
            producer = event.link.context
            if isinstance(producer, IncomingEndpoint):
                producer.on_abort(event.delivery)
        elif isinstance(event, Terminated):
            self._on_terminated(event)

    def _on_terminated(self, event: Terminated) -> None:
        error = event.error
        if error is None:
            log.info("connection closed", peer=self.peer)
        else:
            log.info("connection lost", peer=self.peer, reason=str(error))
        end_login(self, error)
        self.broker.handlers.pop(self, None)
        self.broker.users.leave(self)
        if self.lapses is not None:
            self.lapses.cancel()
        self.space.party_gone(self.id)
        self.broker.termini.party_gone(self.id)
        self.stalled = {}
        self.windowed = {}
        self.crowded = {}
        self.unsupplied = []
        self.touch()


def _on_control(context: object, delivery: IncomingDelivery) -> None:
    """A message has come on a link that is to no node: a control link."""
    if isinstance(context, Coordinator):
        context.on_delivery(delivery)
