"""Dispatching: each event of the engine goes to the client object that it concerns."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from ferrymq.aio.delivery import Delivery
from ferrymq.aio.link import owner_of
from ferrymq.aio.receiver import Receiver
from ferrymq.aio.sender import Sender
from ferrymq.aio.session import Session
from ferrymq.engine import events
from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq.errors import AmqpError, LinkDetached, SessionEnded
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection

_NOT_ALLOWED = "a client takes no sessions and no links of the peer's making"


def dispatch(connection: Connection, event: events.BareEvent) -> None:
    """Handle one event of the connection's engine; the most frequent ones come first."""
    if isinstance(event, IncomingDelivery):
        receiver = owner_of(event.link)
        if isinstance(receiver, Receiver):
            receiver.on_delivery(event)
    elif isinstance(event, OutgoingDelivery):
        sender = owner_of(event.link)
        if isinstance(sender, Sender):
            sender.on_outcome(event)
    elif isinstance(event, events.TransactionalStateReceived):
        sender = owner_of(event.delivery.link)
        if isinstance(sender, Sender):
            sender.on_outcome(event.delivery)
    elif isinstance(event, events.SettlementReceived):
        delivery = _delivery_of(event.delivery)
        if delivery is not None:
            delivery.on_settlement()
    elif isinstance(event, events.CreditReceived):
        sender = event.link.context
        if isinstance(sender, Sender):
            sender.on_credit(event.link)
    elif isinstance(event, events.DrainCompleted):
        receiver = owner_of(event.link)
        if isinstance(receiver, Receiver):
            receiver.on_drained()
    elif isinstance(event, events.DeliveryAborted):
        delivery = _delivery_of(event.delivery)
        if delivery is not None:
            delivery.on_aborted()
    else:
        _dispatch_link(connection, event)


def _delivery_of(engine: IncomingDelivery | OutgoingDelivery) -> Delivery | None:
    """Return the user's delivery; a new one if the user has dropped it but holds its receiver."""
    reference = engine.context
    if not isinstance(engine, IncomingDelivery) or not isinstance(reference, ref):
        return None
    delivery = reference()
    if isinstance(delivery, Delivery):
        return delivery
    receiver = owner_of(engine.link)
    return receiver.delivery_type(receiver, engine) if isinstance(receiver, Receiver) else None


def _dispatch_link(connection: Connection, event: events.Event) -> None:
    if isinstance(event, events.AttachReceived):
        link = event.link
        owner = owner_of(link)
        if not link.initiated:
            link.refuse(Error(condition="amqp:not-allowed", description=_NOT_ALLOWED))
        elif isinstance(owner, (Sender, Receiver)):
            owner.on_attach()
    elif isinstance(event, events.DetachReceived):
        link = event.link
        owner = owner_of(link)
        if isinstance(owner, (Sender, Receiver)):
            owner.on_detach(event.closed, event.error)
        elif not link.local_detached:
            link.detach(closed=event.closed)
        connection.freed.wake()
    elif isinstance(event, events.LinkFailed):
        owner = owner_of(event.link)
        if isinstance(owner, (Sender, Receiver)):
            failed = LinkDetached(f"{owner.place}: the link was closed: {event.error}")
            failed.__cause__ = event.error
            owner._end(failed)
    else:
        _dispatch_session(connection, event)


def _dispatch_session(connection: Connection, event: events.Event) -> None:
    if isinstance(event, events.BeginReceived):
        session = event.session.context
        if isinstance(session, Session):
            if session.has(event.session):
                session.on_begin()
            else:
                event.session.end()
        elif not event.session.initiated:
            event.session.end(Error(condition="amqp:not-allowed", description=_NOT_ALLOWED))
    elif isinstance(event, events.EndReceived):
        session = event.session.context
        if isinstance(session, Session) and session.has(event.session):
            session.on_end(
                SessionEnded(f"{connection.url}: the peer ended the session", event.error)
            )
        event.session.end()
    elif isinstance(event, events.SessionTerminated):
        session = event.session.context
        if isinstance(session, Session) and session.has(event.session):
            connection.on_session_terminated(session, event.error)
    elif isinstance(event, events.OpenReceived):
        connection.on_open(event.open)
    elif isinstance(event, events.CloseReceived):
        connection.on_close(event.error)
    elif isinstance(event, events.Terminated):
        connection.on_terminated(event.error)


def session_error(error: AmqpError | None) -> SessionEnded:
    """Return the error to raise for a session that the engine ended."""
    if isinstance(error, SessionEnded):
        return error
    ended = SessionEnded(
        "the session has ended" if error is None else f"the session has ended: {error}"
    )
    ended.__cause__ = error
    return ended
