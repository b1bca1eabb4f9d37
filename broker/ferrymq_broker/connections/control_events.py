"""Events of a connection that do not come once for every message: its life and that of its links.

Messages, outcomes and credit are for the handler itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.events import (
    AttachReceived,
    AuthenticationRequested,
    BeginReceived,
    CloseReceived,
    DeliveryAborted,
    DetachReceived,
    EndReceived,
    Event,
    LinkFailed,
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
from ferrymq_broker.connections.authentication import authenticate, end_login, provide_scram_keys
from ferrymq_broker.connections.client_limits import forget_begin, is_over_limit
from ferrymq_broker.connections.consumer_link import ConsumerLink
from ferrymq_broker.connections.durable_links.target import TargetTerminus
from ferrymq_broker.connections.link_lifecycle import (
    SessionLinks,
    attach_link,
    close_in_slices,
    close_link,
    end_session,
)
from ferrymq_broker.connections.open_connection import on_open
from ferrymq_broker.connections.producer_link import ProducerLink
from ferrymq_broker.event_log import log
from ferrymq_broker.transactions.coordinator import Coordinator
from ferrymq_types.transactions import TransactionalState

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler


def on_control_event(handler: ConnectionHandler, event: Event) -> bool:
    """Everything that does not happen once for every message.

    False if there is more to do than the present slice allows: it is to be called again."""
    if isinstance(event, TransactionalStateReceived):
        consumer = event.delivery.link.context
        if isinstance(consumer, ConsumerLink) and not consumer.closed:
            handler.transactions.state(consumer, event.delivery, event.state, event.settled)
        else:
            handler.transactions.miss_outcome(event.state)
    elif isinstance(event, TransactionalStateIgnored):
        handler.transactions.miss_outcome(event.state)
    elif isinstance(event, SettlementReceived):
        producer = event.delivery.link.context
        if isinstance(producer, ProducerLink | TargetTerminus):
            producer.on_settlement(event.delivery)
    elif isinstance(event, AttachReceived):
        attach_link(handler, event.link)
    elif isinstance(event, DetachReceived):
        # What is to be gone with the link is gone before the client hears of it.
        if not close_in_slices(handler, event.link, False, event.closed):
            return False
        event.link.detach(closed=event.closed)
    elif isinstance(event, LinkFailed):
        log.warning(
            "link failed", peer=handler.client.peer, link=event.link.name, reason=str(event.error)
        )
        if is_over_limit(event.error):
            handler.broker.counters.links_over_limit += 1
        close_link(handler, event.link, False, False)
    elif isinstance(event, BeginReceived):
        event.session.context = SessionLinks(handler.broker.numbers.next())
        handler.allowance.divide(len(handler.connection.channels.by_remote))
        event.session.accept()
        forget_begin(event.session)
    elif isinstance(event, EndReceived):
        # As with a link: the client hears of the end when all of it is done.
        if not end_session(handler, event.session, False):
            return False
        event.session.end()
    elif isinstance(event, SessionTerminated):
        if not end_session(handler, event.session, event.error is not None):
            return False
        handler.ended_sessions.append(event.session)
        if not len(handler.transactions):
            handler.forget_sessions()
        handler.allowance.divide(len(handler.connection.channels.by_remote))
    elif isinstance(event, AuthenticationRequested):
        authenticate(handler, event)
    elif isinstance(event, ScramKeysRequested):
        provide_scram_keys(handler, event)
    elif isinstance(event, TlsAgreed):
        if handler.on_tls is not None:
            handler.on_tls()
    elif isinstance(event, OpenReceived):
        on_open(handler, event.open)
    elif isinstance(event, CloseReceived):
        # Answered when the sessions, which are gone with it, have come to their ends.
        handler.close_asked = True
    elif isinstance(event, PostingBegun):
        handler.transactions.begin_posting(event.link, event.state)
    elif isinstance(event, TransferIgnored):
        if isinstance(event.state, TransactionalState):
            handler.transactions.miss(event.link, event.state)
    elif isinstance(event, DeliveryAborted):
        handler.transactions.end_posting(event.link)
        producer = event.link.context
        if isinstance(producer, ProducerLink):
            producer.on_abort(event.delivery)
    elif isinstance(event, Terminated):
        _on_terminated(handler, event)
    return True


def _on_terminated(handler: ConnectionHandler, event: Terminated) -> None:
    error = event.error
    if error is None:
        log.info("connection closed", peer=handler.client.peer)
    else:
        log.info("connection lost", peer=handler.client.peer, reason=str(error))
    end_login(handler, error)
    handler.broker.handlers.pop(handler, None)
    handler.client.space.publishers.pop(int(handler.client.id), None)
    handler.broker.users.leave(handler.client)
    if handler.token_expiry is not None:
        handler.token_expiry.cancel()
    handler.client.space.party_gone(handler.client.id)
    handler.broker.termini.party_gone(handler.client.id)
    handler.stalled = {}
    handler.windowed = {}
    handler.crowded = {}
    handler.unsupplied = {}
    handler.forget_sessions()
    handler.connection.drop_references()
    handler.touch()


def on_control(context: object, delivery: IncomingDelivery) -> None:
    """A message has come on a link that is to no node: a control link."""
    if isinstance(context, Coordinator):
        context.on_delivery(delivery)
