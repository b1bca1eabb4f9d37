"""Connection of a client: events of the engine become calls of nodes.

The server gives the handler bytes, time and the state of the transport, and the handler gives bytes
to `write`; it knows neither sockets nor the event loop. It is composed of parts that own their
state: the `login`, the `links` and the `output` of the connection.

One module because it is one class: events, time and the transport act on one connection, in passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq.engine.connection import Connection
from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq.engine.events import (
    AttachReceived,
    AuthenticationRequested,
    BareEvent,
    BeginReceived,
    CloseReceived,
    CreditReceived,
    DeliveryAborted,
    DetachReceived,
    EndReceived,
    Event,
    LinkFailed,
    MessageTooLarge,
    OpenReceived,
    PostingBegun,
    ScramKeysRequested,
    SessionTerminated,
    SettlementReceived,
    Terminated,
    TlsAgreed,
    TransactionalStateIgnored,
    TransactionalStateReceived,
    TransferIgnored,
)
from ferrymq.engine.settings import ConnectionSettings
from ferrymq.errors import AuthenticationError
from ferrymq_broker.broker import Broker
from ferrymq_broker.connections.attached_links import AttachedLink, BegunSession
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport
from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.connections.client_limits import Allowance, forget_begin, is_over_limit
from ferrymq_broker.connections.connected_client import ConnectedClient
from ferrymq_broker.connections.consumer_link import ConsumerLink
from ferrymq_broker.connections.deferred_events import DeferredEvents
from ferrymq_broker.connections.durable_links.source import SourceTerminus
from ferrymq_broker.connections.durable_links.target import TargetTerminus
from ferrymq_broker.connections.links import ConnectionLinks, SessionLinks
from ferrymq_broker.connections.login import ConnectionLogin
from ferrymq_broker.connections.message_rate import MessageTraffic
from ferrymq_broker.connections.output import ConnectionOutput
from ferrymq_broker.connections.output_turns import OUTPUT_LIMIT
from ferrymq_broker.connections.parts import ConnectionParts
from ferrymq_broker.connections.producer_link import ProducerLink
from ferrymq_broker.connections.redirects import keep_virtual_host
from ferrymq_broker.connections.traced_links import TracedConsumer, TracedProducer
from ferrymq_broker.event_log import log
from ferrymq_broker.slices import CONNECTION, LOST_LINK
from ferrymq_broker.transactions.coordinator import Coordinator
from ferrymq_broker.transactions.transaction_table import Transactions
from ferrymq_types.transactions import TransactionalState

if TYPE_CHECKING:
    from ferrymq_broker.connections.client_login import ClientLogin
    from ferrymq_broker.connections.link_names import LinkHolder
    from ferrymq_broker.connections.shown_links import ShownLink, ShownSession
    from ferrymq_broker.nodes.node import Node
    from ferrymq_types.transport import Error

_NO_EVENTS: Final[list[BareEvent]] = []


@final
class ConnectionHandler(ClientHandler):
    """The broker's side of one connection of AMQP 1.0.

    `write` is called with bytes for the client; `hang_up` is called once, when all bytes are
    written and the connection is over.
    """

    __slots__ = (
        "connection",
        "parts",
        "links",
        "login",
        "events",
        "_at",
        "_remainder",
        "_held_back",
        "_puts_off",
        "_close_asked",
        "_eof",
        "_eof_at",
        "on_tls",
    )

    # Attributes of `ClientHandler` that the methods assign: their types for type checkers.
    deadline_moved: bool

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
        # Each client gets one window of output, however large its messages are.
        settings.max_output = OUTPUT_LIMIT
        connection = Connection(settings, now)
        shared = broker.shared
        agenda = broker.agenda
        since = i64((now + broker.clock.epoch) * 1000.0)
        client = ConnectedClient(shared.numbers.next(), transport, broker.default, since)
        allowance = Allowance(broker.client_limits)
        transactions = Transactions(
            broker.transaction_limits, shared.numbers, broker.timers, agenda
        )
        output = ConnectionOutput(
            connection,
            allowance,
            transactions,
            broker.output,
            agenda.changes,
            broker.counters,
            write,
            hang_up,
        )
        super().__init__(broker, client, output, authenticator)
        self.connection: Connection = connection
        self.parts: ConnectionParts = ConnectionParts(
            client,
            output,
            allowance,
            transactions,
            shared,
            max_message_size,
            credit_window,
        )
        self.links: ConnectionLinks = ConnectionLinks(self.parts, connection)
        self.login: ConnectionLogin = ConnectionLogin(broker, self.parts, connection, authenticator)
        # The events of the read that is being processed.
        self.events: list[BareEvent] = _NO_EVENTS
        # The position of the next event; the task that continues with the events in another slice.
        self._at: i64 = 0
        self._remainder = DeferredEvents(agenda)
        # Nodes that do not dispatch until all messages that the client held have returned.
        self._held_back: dict[Node, None] = {}
        self._puts_off = False
        # Whether the client has asked to close the connection and has no answer yet.
        self._close_asked = False
        # Whether the end of the transport is still to be processed, and when that was.
        self._eof = False
        self._eof_at = 0.0
        # The callback for TLS that begins with the next byte (AMQP 1.0 §5.2).
        self.on_tls: Callable[[], object] | None = None

    # -- calls from the server -----------------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> None:
        """Process bytes that have arrived: one whole pass."""
        connection = self.connection
        broker = self.broker
        output = self.parts.output
        broker.begin_pass(now)
        broker.counters.bytes_received += len(data)
        connection.receive_data(data, now)
        self.process()
        if connection.failure is not None or connection.unread:
            # The client has a limited time to answer the close, or has sent more events.
            self.deadline_moved = True
        throttle = self.client.throttle
        if throttle is not None:
            throttle.count_input(len(data), 0)
        output.recheck()
        if not output.dirty and (connection.has_output or connection.finished or output.blocked):
            output.touch()
        broker.finish_pass()

    def read_size(self, most: i64) -> i64:
        """Return how many bytes should be read next: whole frames, if they are large."""
        return self.connection.read_size(most)

    def receive_eof(self, now: float) -> None:
        """Process the end of the transport, however it has ended."""
        self.broker.begin_pass(now)
        slices = self.broker.agenda.slices
        if slices.is_spent():
            # Many connections have ended at once. This one gets no more input until its turn comes.
            self._eof = True
            self._eof_at = now
            self.output.pause()
            self._remainder.wait(self)
        else:
            slices.spend(CONNECTION + len(self.connection.channels.links) * LOST_LINK)
            self.connection.receive_eof(now)
            self.process()
            if self.connection.has_output:
                self.output.touch()
        self.broker.finish_pass()

    def forget_transport(self) -> None:
        """Stop all callbacks: the transport is gone, and its end has been reported."""
        super().forget_transport()
        self.on_tls = None

    def abandon(self) -> None:
        """Forget the connection, which another handler takes over."""
        super().abandon()
        self.connection.drop_references()

    def next_deadline(self) -> float | None:
        """Return when `handle_timeout` must be called, by the clock that gives `now`."""
        self.deadline_moved = False
        return self.connection.next_deadline()

    def handle_timeout(self, now: float) -> None:
        """Do what is due at this time."""
        self.broker.begin_pass(now)
        if self._is_throttled():
            # Nothing is read from the client, so its silence says nothing.
            self.connection.note_input(now)
        self.connection.handle_timeout(now)
        self.process()
        self.output.touch()
        self.output.keep_alive()
        self.broker.finish_pass()

    def close(self, error: Error | None, now: float) -> None:
        """Close the connection from the broker's side; the client has `close_timeout` to answer."""
        self.broker.begin_pass(now)
        self.connection.close(error, now)
        self.deadline_moved = True
        self.process()
        self.output.touch()
        self.broker.finish_pass()

    def last_words(self, error: Error) -> bytes:
        """See `ClientHandler.last_words`."""
        connection = self.connection
        if not self.output.begun:
            return b""
        connection.data_to_send(False)
        connection.close(keep_virtual_host(error, connection.remote_open, self.broker))
        return connection.data_to_send(False)

    def is_behind(self) -> bool:
        """Return whether no more input is read for now: events wait, or a rate limit is reached."""
        return self._remainder.waits or self._is_throttled()

    def _is_throttled(self) -> bool:
        throttle = self.client.throttle
        return throttle is not None and throttle.holds_input()

    def resume_input(self) -> None:
        """See `ConnectionPort.resume_input`."""
        self.connection.note_input(self.broker.clock.now)
        if self.rearm is not None:
            self.rearm()

    def is_lingering(self) -> bool:
        """Return whether the client must have the time to read the close."""
        return self.connection.lingering

    def holds_messages(self) -> bool:
        """Return whether the client has messages without an outcome."""
        return self.links.holds_messages()

    def client_login(self) -> ClientLogin:
        """Return the login of the connection."""
        return self.login

    def holder(self) -> LinkHolder:
        """Return the links of the connection."""
        return self.links

    def on_secured(self) -> None:
        """Note that TLS is established: other SASL mechanisms may be allowed now."""
        settings = self.connection.settings
        settings.sasl_mechanisms = self.authenticator.mechanisms(self.client.transport)
        settings.sasl_required = self.authenticator.is_required(self.client.transport)

    # -- for management --------------------------------------------------------------------

    def describe(self) -> dict[str, object]:
        """Return the attributes of the connection by their public names."""
        sessions = self.connection.channels.by_local.values()
        attributes: dict[str, object] = {
            "protocol": "AMQP 1.0",
            "container-id": self.client.container_id,
            "sessions": len(sessions),
            "links": sum(len(session.links) for session in sessions),
        }
        remote = self.connection.remote_open
        if remote is not None:
            attributes["hostname"] = remote.hostname
            attributes["max-frame-size"] = remote.max_frame_size
            attributes["channel-max"] = remote.channel_max
            attributes["idle-time-out"] = remote.idle_time_out
            attributes["properties"] = remote.properties
        return attributes

    def shown_sessions(self) -> list[ShownSession]:
        """Return the sessions by their channels."""
        sessions = self.connection.channels.by_local
        return [BegunSession(self.client, sessions[channel]) for channel in sorted(sessions)]

    def shown_links(self) -> list[ShownLink]:
        """Return the links that are not detached on both sides."""
        sessions = self.connection.channels.by_local
        return [
            AttachedLink(self.links, link)
            for channel in sorted(sessions)
            for link in sessions[channel].links.values()
        ]

    def unsettled(self) -> i64:
        """Return how many deliveries are not settled, in both directions."""
        count: i64 = 0
        for session in self.connection.channels.by_local.values():
            count += session.outgoing.unsettled.count + session.incoming.unsettled.count
        return count

    def traffic(self) -> MessageTraffic:
        """Return the messages so far, and their rates."""
        return self.links.traffic()

    def read_rates(self, now: i64) -> i64:
        """Read the counters of the links, for their rates."""
        return self.links.read_rates(now)

    # -- callbacks from its parts --------------------------------------------------------

    def is_finished(self) -> bool:
        """Return whether the connection is over."""
        return self.connection.finished

    def close_soon(self, error: Error) -> None:
        """Close the connection from the broker's side, in another pass."""
        super().close_soon(self.parts.told(error))

    def catch_up(self) -> bool:
        """Process events that were put off, and return whether all of them are done."""
        if self._eof:
            self._eof = False
            links = len(self.connection.channels.links)
            self.broker.agenda.slices.spend(CONNECTION + links * LOST_LINK)
            self.connection.receive_eof(self._eof_at)
        self.process()
        if not self.output.dirty:
            self.output.touch()
        if self._at < len(self.events):
            return False
        if self.rearm is not None:
            self.rearm()
        return True

    # -- events --------------------------------------------------------------------------

    def process(self) -> None:
        """See `ClientHandler.process`."""
        changes = self.output.changes
        # The client is told of changes only when they are on disk. Settlements that it made itself
        # need no answer, so they do not count.
        before = changes.total
        claims = changes.claims
        try:
            before += self._work_off()
        except BaseException:
            # The client is told of everything before the bug.
            self.output.need_latest()
            self.events = _NO_EVENTS
            self._at = 0
            self._let_go()
            raise
        if changes.total != before or changes.claims != claims:
            self.output.need_latest()

    def _put_off(self) -> None:
        """Continue in another slice, because the next event needs more than the present slice.

        Messages that its sessions hold return in several passes: no consumer may get newer messages
        before that.
        """
        if not self._puts_off:
            self._puts_off = True
            for event in self.events[self._at :]:
                if isinstance(event, SessionTerminated | EndReceived):
                    links = event.session.context
                    if isinstance(links, SessionLinks):
                        for consumer in links.outgoing.values():
                            if consumer.held > 0 and consumer.node not in self._held_back:
                                self._held_back[consumer.node] = None
                                consumer.node.pause_dispatch()
        self._remainder.wait(self)

    def _let_go(self) -> None:
        """Resume dispatching at the nodes that were stopped, because all messages have returned."""
        held_back = self._held_back
        self._held_back = {}
        self._puts_off = False
        for node in held_back:
            node.resume_dispatch()

    def _work_off(self) -> i64:
        """Process all events that have arrived, and return how many changes need no answer to the
        client."""
        connection = self.connection
        changes = self.output.changes
        agenda = self.broker.agenda
        slices = agenda.slices
        left, letters = slices.left, agenda.letters
        quiet: i64 = 0
        while True:
            events = self.events
            at = self._at
            if at >= len(events):
                if self._close_asked:
                    self._close_asked = False
                    connection.close()
                events = connection.take_bare_events()
                self._at = 0
                at = 0
                if not events:
                    # The engine appends to the list that it has returned.
                    self.events = _NO_EVENTS
                    if self._puts_off:
                        self._let_go()
                    return quiet
                self.events = events
            event = events[at]
            if slices.left <= 0 and slices.left < left and slices.is_spent():
                # The work of this client takes long: other clients go first.
                self._remainder.after_letters = agenda.letters > letters
                self._put_off()
                return quiet
            # An event in which a bug has raised is not processed again.
            self._at = at + 1
            if isinstance(event, OutgoingDelivery):
                consumer = event.link.context
                if isinstance(consumer, ConsumerLink):
                    before = changes.total
                    consumer.on_outcome(event)
                    if event.remote_settled:
                        quiet += changes.total - before
                elif isinstance(consumer, SourceTerminus):
                    consumer.on_outcome(event)
                elif isinstance(consumer, TracedConsumer):
                    before = changes.total
                    consumer.on_outcome(event)
                    if event.remote_settled:
                        quiet += changes.total - before
            elif isinstance(event, IncomingDelivery):
                producer = event.link.context
                if isinstance(producer, ProducerLink):
                    producer.on_delivery(event)
                else:
                    _on_other_delivery(producer, event)
            elif isinstance(event, CreditReceived):
                consumer = event.link.context
                if isinstance(consumer, ConsumerLink):
                    consumer.on_credit(event.properties)
                elif isinstance(consumer, TracedConsumer):
                    consumer.link.on_credit(event.properties)
            elif not self._on_control_event(event):
                self._at = at
                self._put_off()
                return quiet

    def _on_control_event(self, event: Event) -> bool:
        """Process an event that does not come with every message.

        Return false if there is more to do than the present slice allows: call this again then.
        """
        links = self.links
        if self._on_delivery_event(event):
            return True
        if isinstance(event, AttachReceived):
            links.attach(event.link)
        elif isinstance(event, DetachReceived):
            # The answer is sent when everything of the link has been released.
            if not links.close_in_slices(event.link, False, event.closed):
                return False
            event.link.detach(closed=event.closed)
        elif isinstance(event, LinkFailed):
            self._on_link_failed(event)
        elif isinstance(event, BeginReceived):
            links.begin_session(event.session)
            event.session.accept()
            forget_begin(event.session)
        elif isinstance(event, EndReceived):
            # The answer is sent when everything of the session has been released.
            if not links.end_session(event.session, False):
                return False
            event.session.end()
        elif isinstance(event, SessionTerminated):
            if not links.end_session(event.session, event.error is not None):
                return False
            links.forget_session(event.session)
        elif isinstance(event, AuthenticationRequested):
            self.login.authenticate(self, event)
        elif isinstance(event, ScramKeysRequested):
            self.login.provide_scram_keys(self, event)
        elif isinstance(event, TlsAgreed):
            if self.on_tls is not None:
                self.on_tls()
        elif isinstance(event, OpenReceived):
            self.deadline_moved = True
            self.login.open(self, links, event.open)
            if self.moves_to >= 0:
                del self.events[self._at :]
        elif isinstance(event, CloseReceived):
            # The close is answered when all sessions have ended.
            self._close_asked = True
        elif isinstance(event, Terminated):
            self._on_terminated(event)
        return True

    def _on_delivery_event(self, event: Event) -> bool:
        """Process an event of a delivery that is settled late, aborted, too large or part of a
        transaction.

        Return false if the event is none of these.
        """
        transactions = self.parts.transactions
        if isinstance(event, TransactionalStateReceived):
            consumer = event.delivery.link.context
            if isinstance(consumer, ConsumerLink) and not consumer.closed:
                transactions.state(consumer, event.delivery, event.state, event.settled)
            elif isinstance(consumer, TracedConsumer) and not consumer.link.closed:
                consumer.on_transactional_state(
                    transactions, event.delivery, event.state, event.settled
                )
            else:
                transactions.miss_outcome(event.state)
        elif isinstance(event, TransactionalStateIgnored):
            transactions.miss_outcome(event.state)
        elif isinstance(event, SettlementReceived):
            producer = _untraced(event.delivery.link.context)
            if isinstance(producer, ProducerLink | TargetTerminus):
                producer.on_settlement(event.delivery)
        elif isinstance(event, PostingBegun):
            transactions.begin_posting(event.link, event.state)
        elif isinstance(event, TransferIgnored):
            if isinstance(event.state, TransactionalState):
                transactions.miss(event.link, event.state)
        elif isinstance(event, DeliveryAborted):
            transactions.end_posting(event.link)
            producer = _untraced(event.link.context)
            if isinstance(producer, ProducerLink):
                producer.on_abort(event.delivery)
        elif isinstance(event, MessageTooLarge):
            producer = _untraced(event.link.context)
            if isinstance(producer, ProducerLink):
                producer.on_too_large(event.delivery)
        else:
            return False
        return True

    def _on_link_failed(self, event: LinkFailed) -> None:
        log.warning(
            "link failed", peer=self.client.peer, link=event.link.name, reason=str(event.error)
        )
        if is_over_limit(event.error):
            self.broker.counters.links_over_limit += 1
        self.links.close(event.link, False, False)

    def _on_terminated(self, event: Terminated) -> None:
        """Remove the connection from the broker, because it is over."""
        error = event.error
        client = self.client
        if error is None:
            log.info("connection closed", peer=client.peer)
        else:
            log.info("connection lost", peer=client.peer, reason=str(error))
        self.leave()
        self.login.end(str(error) if isinstance(error, AuthenticationError) else "")
        client.space.party_gone(client.id)
        self.broker.shared.termini.party_gone(client.id)
        self.parts.output.forget_waiting()
        self.links.free_sessions()
        self.connection.drop_references()
        self.output.touch()


def _on_other_delivery(context: object, delivery: IncomingDelivery) -> None:
    """Process a message on a control link, or on a link with tracing."""
    if isinstance(context, TracedProducer | Coordinator):
        context.on_delivery(delivery)


def _untraced(context: object) -> object:
    """Return the producer of a link, with or without tracing."""
    return context.link if isinstance(context, TracedProducer) else context
