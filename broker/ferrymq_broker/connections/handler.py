"""One connection of a client: what the engine reports becomes calls on nodes.

The handler is handed bytes, time and the state of the transport by the server, and hands back
bytes to `write`; it knows neither sockets nor the event loop.

A connection is *blocked* when it should not be given more to send: its transport is full
(`paused`), it has had its share of the pass or some of what it was given waits for room in the
output (`congested`), or the broker is about to end (`quiet`). Its consumers then wait in `stalled`,
and its producers that would get credit in `unsupplied`; a client that does not read is thus not
served, at no cost to the others. Consumers in `windowed` wait for the window of their session.

A congested connection waits for its turn (`OutputTurns`). Then it first writes what it has begun,
a share at a time, and is given more only when all of that has gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from ferrymq.engine.connection import Connection
from ferrymq.engine.events import (
    CreditReceived,
    DeliveryReceived,
    EndReceived,
    Event,
    OutcomeReceived,
    SessionTerminated,
)
from ferrymq.engine.frames import EMPTY_FRAME
from ferrymq.engine.link import Link
from ferrymq.engine.session import Session
from ferrymq.engine.settings import ConnectionSettings
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.broker import Broker
from ferrymq_broker.connections.authentication import (
    Authenticator,
    ClientTransport,
    Login,
    settle,
)
from ferrymq_broker.connections.client_limits import Allowance
from ferrymq_broker.connections.connected_client import ConnectedClient
from ferrymq_broker.connections.consumer_link import ConsumerLink
from ferrymq_broker.connections.control_events import on_control, on_control_event
from ferrymq_broker.connections.deferred_events import DeferredEvents
from ferrymq_broker.connections.durable_links.source import SourceTerminus
from ferrymq_broker.connections.held_output import HeldOutput
from ferrymq_broker.connections.link_lifecycle import SessionLinks, close_link
from ferrymq_broker.connections.link_names import LinkHolder
from ferrymq_broker.connections.output_turns import OUTPUT_LIMIT
from ferrymq_broker.connections.producer_link import ProducerLink
from ferrymq_broker.connections.token_expiry import TokenExpiry
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.node import Node, Producer
from ferrymq_broker.slices import CONNECTION, LOST_LINK
from ferrymq_broker.transactions.transaction_table import Transactions
from ferrymq_types.transport import Error

_NO_EVENTS: Final[list[Event]] = []


def _ignore(*_: object) -> None:
    """Take no notice: there is no transport."""


@final
class ConnectionHandler(LinkHolder):
    """The broker's side of one connection, over a `transport`.

    `write` is called with bytes for the client, `hang_up` once, when all are written and the
    connection is over. `deadline_moved` is true when `next_deadline` may have come closer.
    """

    __slots__ = (
        "broker",
        "connection",
        "authenticator",
        "login",
        "_decision",
        "token_expiry",
        "max_message_size",
        "credit_window",
        "blocked",
        "paused",
        "congested",
        "waits_turn",
        "quiet",
        "dirty",
        "changes",
        "need",
        "held_output",
        "_begun",
        "stalled",
        "windowed",
        "unsupplied",
        "crowded",
        "dynamic_nodes",
        "ended_sessions",
        "transactions",
        "allowance",
        "events",
        "_at",
        "_remainder",
        "_held_back",
        "_puts_off",
        "close_asked",
        "_eof",
        "_eof_at",
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
        super().__init__(ConnectedClient(broker.numbers.next(), transport, broker.default))
        self.broker = broker
        # One window of output for each client, however large its messages are.
        settings.max_output = OUTPUT_LIMIT
        self.connection = Connection(settings, now)
        self.authenticator = authenticator
        # What the client has said about itself, as long as nobody has decided on it.
        self.login: Login | None = None
        self._decision: tuple[Login, UserIdentity | None, str] | None = None
        # When that ends; None for never.
        self.token_expiry: TokenExpiry | None = None
        self.max_message_size = max_message_size
        self.credit_window: i64 = credit_window
        self.blocked = False
        self.paused = False
        self.congested = False
        # Whether it is among those that wait for a turn.
        self.waits_turn = False
        self.quiet = False
        # True while the handler waits for its flush at the end of the pass.
        self.dirty = False
        self.changes = broker.agenda.changes
        # What the client is told next says that this batch is on disk.
        self.need: i64 = 0
        self.held_output = HeldOutput()
        # Whether the client has been sent our open.
        self._begun = False
        # Each of them once, however often the client sends a flow meanwhile.
        self.stalled: dict[ConsumerLink, None] = {}
        self.windowed: dict[ConsumerLink, None] = {}
        self.unsupplied: dict[Producer, None] = {}
        self.transactions = Transactions(broker)
        self.allowance = Allowance(broker.client_limits)
        # Producers that have too much unsettled themselves to be given credit.
        self.crowded: dict[ProducerLink, None] = {}
        # Those of the read that is being processed.
        self.events: list[Event] = _NO_EVENTS
        # The next of them; what goes on with them in another slice.
        self._at: i64 = 0
        self._remainder = DeferredEvents()
        # Nodes that hand out nothing until all that the client held has returned.
        self._held_back: dict[Node, None] = {}
        self._puts_off = False
        # Whether the client has asked for the end of the connection, and has not been answered.
        self.close_asked = False
        # The transport ended at that time, and the connection is to hear of it.
        self._eof = False
        self._eof_at = 0.0
        self.dynamic_nodes: dict[Link, Node] = {}
        # Open transactions may have deliveries of these.
        self.ended_sessions: list[Session] = []
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
        slices = self.broker.agenda.slices
        if slices.is_spent():
            # Many connections have ended at once. Until its turn comes it gets nothing more.
            self._eof = True
            self._eof_at = now
            self.paused = True
            self.blocked = True
            self._remainder.wait(self)
        else:
            slices.spend(CONNECTION + len(self.connection.channels.links) * LOST_LINK)
            self.connection.receive_eof(now)
            self._process()
            if self.connection.has_output:
                self.touch()
        self.broker.finish_pass()

    def forget_sessions(self) -> None:
        """No transaction has deliveries of the sessions that have ended."""
        for session in self.ended_sessions:
            session.drop_references()
        self.ended_sessions = []

    def forget_transport(self) -> None:
        """The transport is gone and has been reported: nobody is called any more."""
        self._write = self._hang_up = _ignore
        self.rearm = self.on_tls = None

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
        if self.held_output.held and self._begun and not self.paused:
            # A slow disk is no reason to be taken for dead: this may overtake what waits.
            self._write(EMPTY_FRAME)
        self.broker.finish_pass()

    def pause(self) -> None:
        """The transport takes no more bytes for now."""
        self.paused = True
        self.blocked = True

    def resume(self, now: float) -> None:
        """The transport takes bytes again."""
        self.paused = False
        self.broker.output_turns.wait(self)

    def quiesce(self) -> None:
        """Send no more messages and ask for none: the client settles what it has."""
        self.quiet = True
        self.blocked = True

    def holds_messages(self) -> bool:
        """Whether the client has messages that it has not settled."""
        held = (one for links in self._sessions() for one in links.outgoing.values())
        return any(endpoint.held > 0 for endpoint in held)

    def withdraw_credit(self) -> i64:
        """Producers are to send nothing more; how many there are."""
        asked = [one for links in self._sessions() for one in links.incoming.values()]
        for endpoint in asked:
            endpoint.withdraw()
        return len(asked)

    def _sessions(self) -> list[SessionLinks]:
        found = (session.context for session in self.connection.channels.by_remote.values())
        return [links for links in found if isinstance(links, SessionLinks)]

    def close(self, error: Error | None, now: float) -> None:
        """Close the connection from our side; the client has `close_timeout` to answer."""
        self.broker.begin_pass(now)
        self.connection.close(error, now)
        self.deadline_moved = True
        self._process()
        self.touch()
        self.broker.finish_pass()

    def settle_login(self, login: Login, identity: UserIdentity | None, reason: str) -> None:
        """It has been decided who the client is, in the pass in which it said so."""
        settle(self, login, identity, reason)

    def settle_login_later(self, login: Login, identity: UserIdentity | None, reason: str) -> None:
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

    def link_stolen(self, link: Link) -> None:
        """The same container has attached the link on another connection (AMQP 1.0 §2.6.1)."""
        log.info("link stolen", peer=self.client.peer, link=link.name)
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
        """Write what has gathered and may be told by now."""
        self.dirty = False
        connection = self.connection
        held_output = self.held_output
        data = b""
        # What waits for room goes on in its turn, and if what is before it can be written.
        unfinished = connection.holds_back
        proceeds = unfinished and not self.congested and not self.paused
        if held_output.pieces or self.need > self.changes.stable:
            if held_output.bytes > OUTPUT_LIMIT:
                proceeds = False
            data = held_output.take(connection, self.need, self.changes.stable, proceeds)
        elif connection.has_output:
            data = connection.data_to_send(proceeds)
        if unfinished:
            self.congested = True
            self.blocked = True
            if proceeds:
                self.broker.output_turns.count()
        if data:
            self._begun = connection.opened
            self.broker.counters.bytes_sent += len(data)
            self._write(data)
        if held_output.pieces:
            self._hold()
            return
        if self.congested and not self.paused:
            self.broker.output_turns.wait(self)
        if connection.finished and not self.over:
            self.over = True
            self._hang_up()

    def _hold(self) -> None:
        """Some output waits for the disk; too much of it is a reason to send no more."""
        held_output = self.held_output
        if not held_output.held:
            held_output.held = True
            self.broker.held.append(self)
        if held_output.bytes > OUTPUT_LIMIT:
            self.congested = True
            self.blocked = True
        elif self.congested and not self.paused:
            self.broker.output_turns.wait(self)

    def stop_sending(self) -> None:
        """The connection has had its share of the pass."""
        self.congested = True
        self.blocked = True
        self.broker.output_turns.count()

    def stand_by(self) -> None:
        """Others have had what there is in this round: wait for a turn."""
        self.congested = True
        self.blocked = True
        self.broker.output_turns.wait(self)

    def resume_sending(self) -> None:
        """It is the connection's turn: a new share."""
        self.congested = False
        if self.connection.holds_back:
            # What has begun comes before anything new.
            self.touch()
        else:
            self._unblock()

    def _unblock(self) -> None:
        self.blocked = self.paused or self.quiet
        if self.transactions.waiting:
            # What they wait for may have gone out.
            self._recheck_transactions()
            self.touch()
        if self.blocked:
            return
        if self.windowed:
            self._recheck_windows()
        if self.stalled:
            stalled = self.stalled
            self.stalled = {}
            for consumer in stalled:
                if not consumer.closed:
                    consumer.go_on()
        if self.unsupplied:
            unsupplied = self.unsupplied
            self.unsupplied = {}
            for producer in unsupplied:
                producer.supply()
            self.touch()

    def _recheck_windows(self) -> None:
        self.allowance.review()
        waiting = self.windowed
        self.windowed = {}
        for consumer in waiting:
            if not consumer.closed and consumer.is_held_up():
                self.windowed[consumer] = None
            elif not consumer.closed:
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
            self.events = _NO_EVENTS
            self._at = 0
            self._let_go()
            raise
        if changes.total != before or changes.claims != claims:
            self.need = changes.latest()

    def _put_off(self) -> None:
        """The event that is next takes more than the present slice: go on in another one.

        What its sessions hold returns in several passes: nobody is to get newer messages before.
        """
        if not self._puts_off:
            self._puts_off = True
            for event in self.events[self._at :]:
                if isinstance(event, SessionTerminated | EndReceived):
                    links = event.session.context
                    if isinstance(links, SessionLinks):
                        for endpoint in links.outgoing.values():
                            if endpoint.held > 0 and endpoint.node not in self._held_back:
                                self._held_back[endpoint.node] = None
                                endpoint.node.pause_dispatch()
        self._remainder.wait(self)

    def _let_go(self) -> None:
        """What was to return has returned."""
        held_back = self._held_back
        self._held_back = {}
        self._puts_off = False
        for node in held_back:
            node.resume_dispatch()

    def catch_up(self) -> bool:
        """Go on with what was put off; whether all of it is done."""
        if self._eof:
            self._eof = False
            links = len(self.connection.channels.links)
            self.broker.agenda.slices.spend(CONNECTION + links * LOST_LINK)
            self.connection.receive_eof(self._eof_at)
        self._process()
        if not self.dirty:
            self.touch()
        if self._at < len(self.events):
            return False
        if self.rearm is not None:
            self.rearm()
        return True

    @property
    def is_behind(self) -> bool:
        """Whether something the client caused is put off: it may cause no more for now."""
        return self._remainder.waits

    def _work_off(self) -> i64:
        """Everything that has arrived; how many changes nobody needs to hear of."""
        connection = self.connection
        changes = self.changes
        agenda = self.broker.agenda
        slices = agenda.slices
        left, letters = slices.left, agenda.letters
        quiet: i64 = 0
        while True:
            events = self.events
            at = self._at
            if at >= len(events):
                if self.close_asked:
                    self.close_asked = False
                    connection.close()
                events = connection.take_events()
                self._at = 0
                at = 0
                if not events:
                    # Not the list that the engine goes on filling.
                    self.events = _NO_EVENTS
                    if self._puts_off:
                        self._let_go()
                    return quiet
                self.events = events
            event = events[at]
            if slices.left <= 0 and slices.left < left and slices.is_spent():
                # What this client causes takes long: others go first.
                self._remainder.after_letters = agenda.letters > letters
                self._put_off()
                return quiet
            # After a mistake it is not tried again.
            self._at = at + 1
            if isinstance(event, OutcomeReceived):
                consumer = event.delivery.link.context
                if isinstance(consumer, ConsumerLink):
                    before = changes.total
                    consumer.on_outcome(event.delivery)
                    if event.delivery.remote_settled:
                        quiet += changes.total - before
                elif isinstance(consumer, SourceTerminus):
                    consumer.on_outcome(event.delivery)
            elif isinstance(event, DeliveryReceived):
                producer = event.link.context
                if isinstance(producer, ProducerLink):
                    producer.on_delivery(event.delivery)
                else:
                    on_control(producer, event.delivery)
            elif isinstance(event, CreditReceived):
                consumer = event.link.context
                if isinstance(consumer, ConsumerLink):
                    consumer.on_credit(event.properties)
            elif not on_control_event(self, event):
                self._at = at
                self._put_off()
                return quiet
