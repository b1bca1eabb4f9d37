"""The links of one connection: how they are attached, detached, stolen and ended.

The steps of an attach are in `attach.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sender import SenderLink
from ferrymq.errors import LocalProtocolError
from ferrymq_broker.connections.attach_coordinator import CoordinatorAttach
from ferrymq_broker.connections.attach_source import SourceAttach
from ferrymq_broker.connections.attach_target import TargetAttach
from ferrymq_broker.connections.client_limits import EXCEEDED, count_walk, forget_attach
from ferrymq_broker.connections.dynamic_nodes import DynamicNodes
from ferrymq_broker.connections.link_names import LinkHolder
from ferrymq_broker.connections.message_rate import MessageTraffic
from ferrymq_broker.connections.permissions import put_on_record, require_source, require_target
from ferrymq_broker.connections.traced_links import consumer_context, producer_context
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.node import ClaimWaiter, no_session
from ferrymq_broker.slices import LINK, MESSAGE
from ferrymq_broker.values.names import PART
from ferrymq_types.transactions import Coordinator as CoordinatorTarget
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection
    from ferrymq.engine.link import Link
    from ferrymq.engine.session import Session
    from ferrymq_broker.connections.consumer_link import ConsumerLink
    from ferrymq_broker.connections.durable_links.terminus import Terminus
    from ferrymq_broker.connections.parts import ConnectionParts
    from ferrymq_broker.connections.producer_link import ProducerLink
    from ferrymq_broker.transactions.coordinator import Coordinator


DETACH_FORCED: Final = "amqp:link:detach-forced"


@final
class SessionLinks:
    """The links of one session at the broker. `id` is unique in the broker."""

    __slots__ = (
        "id",
        "incoming",
        "outgoing",
        "coordinators",
        "waiting",
        "suspended",
        "_ending",
        "_at",
    )

    def __init__(self, id: i64) -> None:
        self.id: i64 = id
        self.incoming: dict[Link, ProducerLink] = {}
        self.outgoing: dict[Link, ConsumerLink] = {}
        self.coordinators: dict[Link, Coordinator] = {}
        # Links whose attaches wait for a session of a queue.
        self.waiting: dict[Link, WaitingAttach] = {}
        # Detached links whose termini still exist.
        self.suspended: dict[Link, Terminus] = {}
        # Links that are closed one after the other, and the position of the next one.
        self._ending: list[Link] | None = None
        self._at: i64 = 0

    def weight(self) -> i64:
        """Return the cost of closing all links, in units of `Slices`."""
        count: i64 = len(self.outgoing) + len(self.incoming) + len(self.coordinators)
        count += len(self.waiting)
        units: i64 = count * LINK
        for endpoint in self.outgoing.values():
            units += endpoint.held * MESSAGE
        return units

    def first_to_close(self) -> Link | None:
        """Return the next link to close at the end of the session: first links on which the broker
        sends, then those on which it receives, and control links last. Attaches that wait come
        before all others."""
        ending = self._ending
        if ending is None:
            ending = [*self.waiting, *self.outgoing, *self.incoming, *self.coordinators]
            self._ending = ending
        while self._at < len(ending):
            link = ending[self._at]
            if (
                link in self.outgoing
                or link in self.incoming
                or link in self.coordinators
                or link in self.waiting
            ):
                return link
            # Another connection has taken the link's name meanwhile.
            self._at += 1
        return None


@final
class WaitingAttach(ClaimWaiter):
    """An attach of a link of `session`, which waits for a session of a queue."""

    __slots__ = ("attach", "session", "_links")

    def __init__(self, attach: SourceAttach, session: SessionLinks, links: ConnectionLinks) -> None:
        super().__init__()
        self.attach: SourceAttach = attach
        self.session: SessionLinks = session
        self._links = links

    def proceed(self) -> None:
        """Go on with the attach."""
        self._links.resume_attach(self)

    def fail(self, error: BrokerError) -> None:
        """Refuse the link."""
        self._links.fail_attach(self, error)

    def cancel(self) -> None:
        """Undo the attach, which waits no more."""
        self.attach.source.stop_waiting(self)
        self.attach.undo()


@final
class ConnectionLinks(LinkHolder):
    """The sessions and links of one connection; `dynamic_nodes` are the nodes created for its
    links."""

    __slots__ = (
        "parts",
        "connection",
        "dynamic_nodes",
        "_ended_sessions",
        "_received_before",
        "_sent_before",
    )

    def __init__(self, parts: ConnectionParts, connection: Connection) -> None:
        super().__init__(parts.client)
        self.parts: ConnectionParts = parts
        self.connection: Connection = connection
        self.dynamic_nodes: DynamicNodes = DynamicNodes(parts.client, parts.allowance)
        # Open transactions may have deliveries of these sessions.
        self._ended_sessions: list[Session] = []
        # The messages of links that have ended.
        self._received_before: i64 = 0
        self._sent_before: i64 = 0

    # -- attach --------------------------------------------------------------------------

    def attach(self, link: Link) -> None:
        """Accept or refuse a link that the client has attached."""
        links = link.session.context
        if link.initiated or not isinstance(links, SessionLinks):
            return
        try:
            try:
                self._attach(link, links)
            except BrokerError as refusal:
                self._refuse(link, refusal)
                forget_attach(link, True)
            else:
                if link not in links.waiting:
                    forget_attach(link, False)
        except LocalProtocolError as error:
            self._end_session(link, error)

    def _attach(self, link: Link, links: SessionLinks) -> None:
        parts = self.parts
        nodes = self.dynamic_nodes
        if isinstance(link, SenderLink):
            source = SourceAttach(parts, self, nodes, link, links.id)
            source.run()
            if source.waits:
                waiting = WaitingAttach(source, links, self)
                links.waiting[link] = waiting
                source.source.await_claim(waiting, source.terms)
                log.debug("link waits", peer=self.client.peer, link=link.name)
                return
            link.context = consumer_context(source.consumer)
            links.outgoing[link] = source.consumer
        elif isinstance(link, ReceiverLink):
            target = None if link.remote_attach is None else link.remote_attach.target
            if isinstance(target, CoordinatorTarget):
                control = CoordinatorAttach(parts, self, nodes, link, links.id)
                control.run()
                link.context = control.coordinator
                links.coordinators[link] = control.coordinator
                return
            incoming = TargetAttach(parts, self, nodes, link, links.id)
            incoming.run()
            link.context = producer_context(incoming.producer, parts)
            links.incoming[link] = incoming.producer
        log.debug("link attached", peer=self.client.peer, link=link.name, sends=link.is_sender)

    def resume_attach(self, waiting: WaitingAttach) -> None:
        """Attach or refuse a link that has waited for a session, because one is free."""
        attach = waiting.attach
        link = attach.sender
        changes = self.parts.output.changes
        before = changes.total
        try:
            attach.resume()
            if attach.waits:
                attach.undo()
                raise no_session()
        except BrokerError as refusal:
            self.fail_attach(waiting, refusal)
            return
        except LocalProtocolError as error:
            self._end_session(link, error)
            return
        consumer = attach.consumer
        del waiting.session.waiting[link]
        link.context = consumer_context(consumer)
        waiting.session.outgoing[link] = consumer
        forget_attach(link, False)
        if changes.total != before:
            self.parts.output.need_latest()
        self.parts.output.touch()
        log.debug("link attached", peer=self.client.peer, link=link.name, sends=True)
        # The client may have given credit while the attach waited.
        consumer.on_credit(None)

    def fail_attach(self, waiting: WaitingAttach, refusal: BrokerError) -> None:
        """Refuse a link that has waited for a session."""
        link = waiting.attach.sender
        waiting.session.waiting.pop(link, None)
        waiting.cancel()
        try:
            self._refuse(link, refusal)
            forget_attach(link, True)
        except LocalProtocolError as error:
            self._end_session(link, error)
        self.parts.output.touch()

    def _end_session(self, link: Link, error: LocalProtocolError) -> None:
        """End the session of a link: the client has no handle left for the broker's answer."""
        self.close(link, False, False)
        link.session.end(Error(condition=error.condition, description=error.description))
        self.parts.output.touch()

    def _refuse(self, link: Link, refusal: BrokerError) -> None:
        counters = self.parts.shared.counters
        counters.links_refused += 1
        if refusal.condition == EXCEEDED:
            counters.links_over_limit += 1
        log.info("link refused", peer=self.client.peer, link=link.name, reason=str(refusal))
        put_on_record(self.client, refusal, "link")
        link.refuse(
            self.parts.error(refusal.condition, refusal.description, refusal.info),
            bare=self.client.space.personality is not None,
        )

    # -- detach --------------------------------------------------------------------------

    def close(self, link: Link, lost: bool, closed: bool) -> None:
        """Release what a link has. The link is `lost` with its connection, `closed` for good, or
        detached."""
        links = link.session.context
        if not isinstance(links, SessionLinks):
            return
        parts = self.parts
        parts.transactions.cut_posting(link)
        memory: Terminus | None = None
        waiting = links.waiting.pop(link, None)
        if waiting is not None:
            waiting.cancel()
        outgoing = links.outgoing.pop(link, None)
        if outgoing is not None:
            outgoing.close(lost, closed)
            memory = outgoing.memory
            self._sent_before += outgoing.rate.total(link.deliveries)
        incoming = links.incoming.pop(link, None)
        if incoming is not None:
            incoming.close(closed, lost)
            memory = incoming.memory
            self._received_before += incoming.rate.total(incoming.message_count())
        coordinator = links.coordinators.pop(link, None)
        if coordinator is not None:
            coordinator.close(lost)
        if memory is None or memory.link is not link:
            # Unsettled deliveries are gone with the link, or another link has them.
            link.context = None
            link.expire()
        elif lost or not link.session.mapped:
            memory.forget_link(link)
            link.context = None
        else:
            # The client may still settle its deliveries while the session exists.
            link.context = memory
            links.suspended[link] = memory
        parts.allowance.leave(link)
        parts.shared.names.release(self, link)
        self.dynamic_nodes.release(link)

    def close_in_slices(self, link: Link, lost: bool, closed: bool) -> bool:
        """Release what a link has, as far as the present slice allows; return false if this must be
        called again."""
        links = link.session.context
        if not isinstance(links, SessionLinks):
            return True
        slices = self.parts.shared.agenda.slices
        if slices.is_spent():
            return False
        outgoing = links.outgoing.get(link)
        if outgoing is not None and (outgoing.closed or not slices.fits(outgoing.held * MESSAGE)):
            outgoing.begin_close(lost, closed, True)
            while outgoing.give_back_next():
                slices.spend(MESSAGE)
                if slices.is_spent():
                    return False
            self.close(link, lost, closed)
        else:
            if outgoing is not None:
                slices.spend(outgoing.held * MESSAGE)
            self.close(link, lost, closed)
        count_walk(slices, link)
        slices.spend(LINK)
        return True

    def force_detach(self, link: Link, reason: str) -> None:
        """End a link because an operator wants it (``amqp:link:detach-forced``).

        Messages that the link holds return. A terminus that outlives its link stays.
        """
        links = link.session.context
        if link.local_detached or not isinstance(links, SessionLinks):
            return
        slices = self.parts.shared.agenda.slices
        log.info("link detached by management", peer=self.client.peer, link=link.name)
        waiting = links.waiting.get(link)
        consumer = links.outgoing.get(link)
        producer = links.incoming.get(link)
        coordinator = links.coordinators.get(link)
        if waiting is not None:
            self.fail_attach(waiting, BrokerError(DETACH_FORCED, reason))
        elif consumer is not None:
            slices.spend(consumer.held * MESSAGE)
            consumer.refuse(DETACH_FORCED, reason)
        elif producer is not None:
            producer.refuse(DETACH_FORCED, reason)
        elif coordinator is not None:
            coordinator.end(DETACH_FORCED, reason)
        slices.spend(LINK)
        count_walk(slices, link)

    def link_stolen(self, link: Link) -> None:
        """End a link that the same container has attached on another connection (AMQP 1.0
        §2.6.1)."""
        log.info("link stolen", peer=self.client.peer, link=link.name)
        description = f"link {link.name!r} was attached on another connection"
        link.detach(closed=False, error=self.parts.error("amqp:link:stolen", description))
        # The client may be disconnected already and may have seen the messages of the link.
        self.close(link, True, False)
        self.parts.output.touch()

    # -- sessions ------------------------------------------------------------------------

    def begin_session(self, session: Session) -> None:
        """Add a session that the client has begun."""
        session.context = SessionLinks(self.parts.shared.numbers.next())
        self._divide_allowance()

    def end_session(self, session: Session, lost: bool) -> bool:
        """Release what all links of a session have, which is gone with or without its connection.

        Return false if that is more than the present slice allows: call this again then.
        """
        links = session.context
        if not isinstance(links, SessionLinks):
            return True
        link = links.first_to_close()
        while link is not None:
            if not self.close_in_slices(link, lost, False):
                return False
            link = links.first_to_close()
        for link, memory in links.suspended.items():
            if memory.link is link:
                memory.forget_link(link)
        session.context = None
        self.client.space.party_gone(links.id)
        self.parts.shared.termini.party_gone(links.id)
        return True

    def forget_session(self, session: Session) -> None:
        """Free a session that is over, once no transaction has deliveries of it."""
        self._ended_sessions.append(session)
        if not len(self.parts.transactions):
            self.free_sessions()
        self._divide_allowance()

    def free_sessions(self) -> None:
        """Free the sessions that have ended: no transaction has deliveries of them."""
        for session in self._ended_sessions:
            session.drop_references()
        self._ended_sessions = []

    def _divide_allowance(self) -> None:
        self.parts.allowance.divide(len(self.connection.channels.by_remote))

    def sessions(self) -> list[SessionLinks]:
        """Return the links of each session that the client has begun."""
        found = (session.context for session in self.connection.channels.by_remote.values())
        return [links for links in found if isinstance(links, SessionLinks)]

    # -- all links -----------------------------------------------------------------------

    def holds_messages(self) -> bool:
        """Return whether the client has messages that it has not settled."""
        held = (one for links in self.sessions() for one in links.outgoing.values())
        return any(consumer.held > 0 for consumer in held)

    def consumer_of(self, link: Link) -> ConsumerLink | None:
        """Return the consumer of a link on which the broker sends; None for other links."""
        links = link.session.context
        return links.outgoing.get(link) if isinstance(links, SessionLinks) else None

    def producer_of(self, link: Link) -> ProducerLink | None:
        """Return the producer of a link on which the broker receives; None for other links."""
        links = link.session.context
        return links.incoming.get(link) if isinstance(links, SessionLinks) else None

    def read_rates(self, now: i64) -> i64:
        """Read the counters of all links, for their rates; return how many links there are."""
        count: i64 = 0
        for links in self.sessions():
            for link, consumer in links.outgoing.items():
                consumer.rate.read(link.deliveries, now)
            for producer in links.incoming.values():
                producer.rate.read(producer.message_count(), now)
            count += len(links.outgoing) + len(links.incoming)
        return count

    def traffic(self) -> MessageTraffic:
        """Return the messages of all links so far, and their rates."""
        now = self.parts.shared.agenda.now
        traffic = MessageTraffic()
        traffic.received = self._received_before
        traffic.sent = self._sent_before
        for links in self.sessions():
            for link, consumer in links.outgoing.items():
                traffic.sent += consumer.rate.total(link.deliveries)
                traffic.sent_rate += consumer.rate.rate(link.deliveries, now)
            for producer in links.incoming.values():
                count = producer.message_count()
                traffic.received += producer.rate.total(count)
                traffic.received_rate += producer.rate.rate(count, now)
        return traffic

    def withdraw_credit(self) -> i64:
        """Take back the credit of all producers, and return how many there are."""
        producers = [one for links in self.sessions() for one in links.incoming.values()]
        for producer in producers:
            producer.withdraw()
        return len(producers)

    def reauthorize(self) -> int:
        """Detach the links that the client may not have any more, and return how many there were.

        Messages that the links held go back, as always when the broker ends a link. Subscriptions
        and termini that outlive their links stay: their owner may come back with a better token.
        Links to the anonymous terminus stay, because the right is checked for each of their
        messages. Call this within a pass.
        """
        if self.client.access.open:
            return 0
        gone = 0
        for links in self.sessions():
            for consumer in list(links.outgoing.values()):
                gone += self._review_consumer(consumer)
            for producer in list(links.incoming.values()):
                gone += self._review_producer(producer)
        return gone

    def _review_consumer(self, consumer: ConsumerLink) -> int:
        if consumer.closed:
            return 0
        terms = consumer.terms
        address = consumer.asked.address
        if terms.part:
            address = f"{address}{PART}{terms.part}"
        try:
            require_source(self.client, address, address, terms.distribution_mode == "copy")
        except BrokerError as lacking:
            put_on_record(self.client, lacking, "link")
            consumer.refuse(lacking.condition, lacking.description)
            return 1
        return 0

    def _review_producer(self, producer: ProducerLink) -> int:
        if producer.closed or not producer.address:
            return 0
        try:
            require_target(self.client, producer.address, producer.address)
        except BrokerError as lacking:
            put_on_record(self.client, lacking, "link")
            producer.refuse(lacking.condition, lacking.description)
            return 1
        producer.check_messages()
        return 0
