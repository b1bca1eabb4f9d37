"""The links of a connection: how they come and how they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sender import SenderLink
from ferrymq.errors import LocalProtocolError
from ferrymq_broker.connections.attach import attach_incoming, attach_outgoing
from ferrymq_broker.connections.client_limits import EXCEEDED, count_walk, forget_attach
from ferrymq_broker.connections.durable_links.grant import forget_target
from ferrymq_broker.connections.durable_links.terminus import Terminus
from ferrymq_broker.connections.dynamic_nodes import end_creation
from ferrymq_broker.connections.permissions import put_on_record
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.slices import LINK, MESSAGE
from ferrymq_broker.transactions.coordinator import Coordinator, attach_coordinator
from ferrymq_types.transactions import Coordinator as CoordinatorTarget
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq.engine.session import Session
    from ferrymq_broker.connections.consumer_link import ConsumerLink
    from ferrymq_broker.connections.handler import ConnectionHandler
    from ferrymq_broker.connections.producer_link import ProducerLink


@final
class SessionLinks:
    """The endpoints of one session, by link. `id` is unique in the broker."""

    __slots__ = ("id", "incoming", "outgoing", "coordinators", "suspended", "_ending", "_at")

    def __init__(self, id: i64) -> None:
        self.id: i64 = id
        self.incoming: dict[Link, ProducerLink] = {}
        self.outgoing: dict[Link, ConsumerLink] = {}
        self.coordinators: dict[Link, Coordinator] = {}
        # Detached links with termini that are still there.
        self.suspended: dict[Link, Terminus] = {}
        # Those that are closed one after the other, and the next of them.
        self._ending: list[Link] | None = None
        self._at: i64 = 0

    def weight(self) -> i64:
        """What it costs to close all of them, in units of `Slices`."""
        count: i64 = len(self.outgoing) + len(self.incoming) + len(self.coordinators)
        units: i64 = count * LINK
        for endpoint in self.outgoing.values():
            units += endpoint.held * MESSAGE
        return units

    def first_to_close(self) -> Link | None:
        """The next link to be closed at the end of the session: those on which the broker sends,
        those on which it receives, and control links last."""
        ending = self._ending
        if ending is None:
            ending = [*self.outgoing, *self.incoming, *self.coordinators]
            self._ending = ending
        while self._at < len(ending):
            link = ending[self._at]
            if link in self.outgoing or link in self.incoming or link in self.coordinators:
                return link
            # Another connection has taken its name meanwhile.
            self._at += 1
        return None


def attach_link(handler: ConnectionHandler, link: Link) -> None:
    """The client has attached a link: accept or refuse it."""
    links = link.session.context
    if link.initiated or not isinstance(links, SessionLinks):
        return
    try:
        try:
            handler.allowance.enter(link)
            if isinstance(link, SenderLink):
                outgoing = attach_outgoing(handler, link)
                link.context = outgoing
                links.outgoing[link] = outgoing
            elif isinstance(link, ReceiverLink):
                target = None if link.remote_attach is None else link.remote_attach.target
                if isinstance(target, CoordinatorTarget):
                    coordinator = attach_coordinator(handler, link)
                    forget_target(handler, link)
                    link.context = coordinator
                    links.coordinators[link] = coordinator
                    forget_attach(link, False)
                    return
                incoming = attach_incoming(handler, link)
                link.context = incoming
                links.incoming[link] = incoming
            log.debug(
                "link attached", peer=handler.client.peer, link=link.name, sends=link.is_sender
            )
        except BrokerError as refusal:
            handler.broker.link_names.release(handler, link)
            handler.allowance.leave(link)
            handler.broker.counters.links_refused += 1
            if refusal.condition == EXCEEDED:
                handler.broker.counters.links_over_limit += 1
            log.info("link refused", peer=handler.client.peer, link=link.name, reason=str(refusal))
            put_on_record(handler.client, refusal, "link")
            link.refuse(
                Error(
                    condition=refusal.condition,
                    description=refusal.description,
                    info=refusal.info,
                )
            )
            forget_attach(link, True)
        else:
            forget_attach(link, False)
    except LocalProtocolError as error:
        # The client has no handle left for our answer.
        close_link(handler, link, False, False)
        link.session.end(Error(condition=error.condition, description=error.description))


def close_link(handler: ConnectionHandler, link: Link, lost: bool, closed: bool) -> None:
    """The link is gone: `lost` with its connection, or `closed` for good, or only detached."""
    links = link.session.context
    if not isinstance(links, SessionLinks):
        return
    handler.transactions.cut_posting(link)
    memory: Terminus | None = None
    outgoing = links.outgoing.pop(link, None)
    if outgoing is not None:
        outgoing.close(lost, closed)
        memory = outgoing.memory
    incoming = links.incoming.pop(link, None)
    if incoming is not None:
        incoming.close(closed, lost)
        memory = incoming.memory
    coordinator = links.coordinators.pop(link, None)
    if coordinator is not None:
        coordinator.close(lost)
    if memory is None or memory.link is not link:
        # What was unsettled is gone with the link, or another link has it.
        link.context = None
        link.expire()
    elif lost or not link.session.mapped:
        memory.forget_link(link)
        link.context = None
    else:
        # While the session lasts the client may still say something of it.
        link.context = memory
        links.suspended[link] = memory
    handler.allowance.leave(link)
    handler.broker.link_names.release(handler, link)
    end_creation(handler, link)


def close_in_slices(handler: ConnectionHandler, link: Link, lost: bool, closed: bool) -> bool:
    """As `close_link`, as far as the present slice allows: False if it is to be called again."""
    links = link.session.context
    if not isinstance(links, SessionLinks):
        return True
    slices = handler.broker.agenda.slices
    if slices.is_spent():
        return False
    outgoing = links.outgoing.get(link)
    if outgoing is not None and (outgoing.closed or not slices.fits(outgoing.held * MESSAGE)):
        outgoing.begin_close(lost, closed, True)
        while outgoing.give_back_next():
            slices.spend(MESSAGE)
            if slices.is_spent():
                return False
        close_link(handler, link, lost, closed)
    else:
        if outgoing is not None:
            slices.spend(outgoing.held * MESSAGE)
        close_link(handler, link, lost, closed)
    count_walk(slices, link)
    slices.spend(LINK)
    return True


def end_session(handler: ConnectionHandler, session: Session, lost: bool) -> bool:
    """The session is gone with all of its links, with or without its connection.

    False if there is more of that than the present slice allows: it is to be called again."""
    links = session.context
    if not isinstance(links, SessionLinks):
        return True
    link = links.first_to_close()
    while link is not None:
        if not close_in_slices(handler, link, lost, False):
            return False
        link = links.first_to_close()
    for link, memory in links.suspended.items():
        if memory.link is link:
            memory.forget_link(link)
    session.context = None
    handler.client.space.party_gone(links.id)
    handler.broker.termini.party_gone(links.id)
    return True
