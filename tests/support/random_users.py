"""The two users of `random_wire`: what they do about events, and of their own accord."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import product
from random import Random

from ferrymq.engine import (
    Connection,
    Link,
    OutgoingDelivery,
    ReceiverLink,
    SenderLink,
    Session,
)
from ferrymq.engine.events import (
    AttachReceived,
    AuthenticationRequested,
    BeginReceived,
    CloseReceived,
    CreditReceived,
    DeliveryAborted,
    DeliveryReceived,
    DetachReceived,
    DrainCompleted,
    EndReceived,
    Event,
    LinkFailed,
    OpenReceived,
    OutcomeReceived,
    SessionTerminated,
    SettlementReceived,
    Terminated,
)
from ferrymq.engine.resumption import Resolution, is_outcome
from ferrymq.engine.states import LinkState
from ferrymq_types.messaging import (
    Accepted,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
)
from ferrymq_types.transport import ReceiverSettleMode, SenderSettleMode
from ferrymq_types.unions import DeliveryState
from tests.support.random_model import ReceiverEnd, Record, SenderEnd, Stream
from tests.support.wire import Wire

# Most messages fit any frame; the largest take a dozen of the smallest.
SIZES = (0, 1, 20, 100, 100, 100, 300, 480, 700, 2500, 5000)
OUTCOMES: tuple[DeliveryState, ...] = (
    Accepted(),
    Accepted(),
    Accepted(),
    Released(),
    Rejected(),
    Modified(delivery_failed=True),
)
SESSIONS = 4
# An unsettled map of this many entries does not fit the smallest frame.
MAX_PENDING = 40
# The first section is here.
_SEEN = Received(section_number=1, section_offset=0)


class Users:
    """Both users, who know of each other; what the wire does between them they do not."""

    wire: Wire

    def __init__(self, random: Random) -> None:
        # How often each thing happened; a play that leaves something out proves little.
        self.seen: dict[str, int] = {}
        self._random = random
        modes = product((0, 1), SenderSettleMode, ReceiverSettleMode)
        self.streams = [Stream(i, side, snd, rcv) for i, (side, snd, rcv) in enumerate(modes)]
        self._ends: dict[tuple[int, str, bool], SenderEnd | ReceiverEnd] = {}
        for stream in self.streams:
            for end in (stream.sender, stream.receiver):
                self._ends[end.side, stream.name, isinstance(end, SenderEnd)] = end
        self._later: tuple[deque[Callable[[], None]], deque[Callable[[], None]]] = (
            deque(),
            deque(),
        )
        self._closing = False
        self._torn = False
        self._patience = 1.0

    def _count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    # -- what the users do about events ----------------------------------------------------

    def _on_event(self, engine: Connection, event: Event) -> None:
        assert engine.failure is None or self._torn, f"{engine.failure}"
        side = 0 if engine is self.wire.ends[0] else 1
        match event:
            case DeliveryReceived():
                self._count("multi-frame" if len(event.delivery.payload) > 700 else "message")
                end = self._receiver(event.link, side)
                end.stream.arrived(event.delivery)
            case OutcomeReceived():
                self._on_outcome(event.delivery)
            case SettlementReceived():
                self._on_settlement(event, side)
            case CreditReceived():
                end = self._sender(event.link, side)
                if end.link is event.link:
                    self._resume(end)
                    if event.link.drain:
                        self._answer(side, event.link.drained)
            case DrainCompleted():
                assert event.link.credit == 0
                self._count("drained")
            case DeliveryAborted():
                self._count("aborted")
                end = self._receiver(event.link, side)
                end.stream.receiver.unsettled.pop(event.delivery.tag, None)
            case AttachReceived():
                self._on_attach(event.link, side)
            case DetachReceived():
                self._on_detach(event, side)
            case BeginReceived():
                if not event.session.initiated:
                    self._answer(side, event.session.accept)
            case EndReceived():
                assert event.error is None
                self._lose_links(side, event.session)
                self._answer(side, event.session.end)
            case SessionTerminated():
                assert event.error is None or self._torn, event.error
                self._lose_links(side, event.session)
            case OpenReceived():
                if not engine.settings.initiator:
                    engine.open()
            case AuthenticationRequested():
                self._count("sasl")
                engine.accept_authentication()
            case CloseReceived():
                assert self._closing and event.error is None
                engine.close()
            case Terminated():
                assert self._torn or (self._closing and event.error is None), event.error
            case LinkFailed():
                raise AssertionError(f"{event.link} failed: {event.error}")

    def _answer(self, side: int, action: Callable[[], None]) -> None:
        """Now, or when the user gets round to it; never before an answer that is due already."""
        if self._later[side] or self._random.random() < 0.3 * self._patience:
            self._later[side].append(action)
        else:
            action()

    def _sender(self, link: Link, side: int) -> SenderEnd:
        end = self._ends[side, link.name, True]
        assert isinstance(end, SenderEnd)
        return end

    def _receiver(self, link: Link, side: int) -> ReceiverEnd:
        end = self._ends[side, link.name, False]
        assert isinstance(end, ReceiverEnd)
        return end

    def _on_attach(self, link: Link, side: int) -> None:
        end = self._ends[side, link.name, link.is_sender]
        if link.initiated:
            if isinstance(end, SenderEnd) and end.link is link:
                self._resume(end)
            return
        if link.state is LinkState.DETACHED:
            return
        if end.link is not None and not end.link.local_detached:
            # Our attach on another session has crossed one of the peer's that only serves to
            # close (AMQP 1.0 §2.6.6): its detach is next.
            assert end.link.session is not link.session, f"{link.name} is attached twice"
            assert end.link.initiated, f"{link.name} is attached twice"
            self._count("crossed a close")
            return
        if end.link is not None:
            # The peer attaches again at once; we had not answered its detach.
            end.lost()
        if isinstance(end, SenderEnd):
            assert isinstance(link, SenderLink)
            end.link = link
        else:
            assert isinstance(link, ReceiverLink)
            end.link = link

        def accept() -> None:
            if end.link is not link or link.state is not LinkState.ATTACH_RCVD:
                return
            self._count("accepted")
            if isinstance(link, SenderLink):
                assert isinstance(end, SenderEnd)
                link.resume_from(end.unsettled())
                link.accept()
                self._resume(end)
            else:
                assert isinstance(link, ReceiverLink) and isinstance(end, ReceiverEnd)
                for delivery in link.resume_from(end.unsettled):
                    end.stream.settled(delivery)
                link.accept()
                link.set_credit(self._random.randrange(20))

        self._answer(side, accept)

    def _on_detach(self, event: DetachReceived, side: int) -> None:
        link = event.link
        assert event.error is None, event.error
        end = self._ends[side, link.name, link.is_sender]

        def detach() -> None:
            link.detach(closed=event.closed)
            if end.link is link and link.state is LinkState.DETACHED:
                end.lost()

        if link.local_detached:
            detach()
        else:
            self._answer(side, detach)

    def _lose_links(self, side: int, session: Session) -> None:
        for end in self._ends.values():
            if end.side == side and end.link is not None and end.link.session is session:
                end.lost()

    def _on_outcome(self, delivery: OutgoingDelivery) -> None:
        record = delivery.context
        assert isinstance(record, Record)
        end = record.stream.sender
        state = delivery.remote_state
        assert state is None or state in record.told, f"{record}: {state} was never told"
        if delivery.remote_settled:
            self._count("outcome")
            end.done(delivery)
            delivery.settle()
        elif is_outcome(state):
            if self._random.random() < 0.5:
                end.owed.append(delivery)
            else:
                self._settle_outgoing(end, delivery)

    def _settle_outgoing(self, end: SenderEnd, delivery: OutgoingDelivery) -> None:
        # A link that resumes still has it in its map: it is settled by the resumption.
        record = delivery.context
        assert isinstance(record, Record)
        if record.number not in end.waiting:
            self._count("settled second")
            delivery.settle()
            end.done(delivery)

    def _on_settlement(self, event: SettlementReceived, side: int) -> None:
        delivery = event.delivery
        end = self._receiver(delivery.link, side)
        if delivery.settled or delivery.remote_settled:
            end.stream.settled(delivery)
        elif is_outcome(delivery.remote_state):
            self._count("restated")
            assert delivery.remote_state is not None
            end.stream.settle(delivery, delivery.remote_state)

    def _resume(self, end: SenderEnd) -> None:
        """Take up what was unsettled, oldest first."""
        link = end.link
        if link is None or link.resumption is None or link.remote_attach is None:
            return
        for number in end.waiting[:]:
            if not link.usable:
                return
            delivery = end.pending[number]
            record = delivery.context
            assert isinstance(record, Record)
            resolution = link.resumption.resolution(delivery)
            if resolution is Resolution.WAIT:
                continue
            if resolution is not Resolution.FORGET and link.credit <= 0:
                return
            resolution = link.resume(delivery, record.payload)
            self._count(f"resumed: {resolution.name}")
            end.waiting.remove(number)
            if resolution in (Resolution.RESEND, Resolution.CONTINUE):
                record.resent = True
            elif resolution in (Resolution.FORGET, Resolution.ABORT):
                record.may_lose = True
            elif resolution is Resolution.SETTLE:
                assert delivery.remote_state in record.told
            if delivery.settled:
                end.done(delivery)

    # -- what they do of their own accord ----------------------------------------------------

    def _pick_sender(self) -> SenderEnd:
        return self._random.choice(self.streams).sender

    def _pick_receiver(self) -> ReceiverEnd:
        return self._random.choice(self.streams).receiver

    def _send(self) -> None:
        end = self._pick_sender()
        link = end.link
        random = self._random
        if link is None or not link.usable or end.waiting:
            return
        if link.resumption is not None and not link.resumption.whole:
            return
        size = random.choice(SIZES)
        settled = random.random() < 0.3
        for _ in range(min(random.randrange(1, 8), int(link.credit))):
            if len(end.pending) < MAX_PENDING:
                end.stream.send(size, settled)

    def _credit(self) -> None:
        link = self._pick_receiver().link
        if link is not None:
            link.set_credit(self._random.randrange(30))

    def _drain(self) -> None:
        link = self._pick_receiver().link
        if link is not None:
            link.drain_credit()

    def _settle(self) -> None:
        end = self._pick_receiver()
        if not end.unsettled:
            return
        deliveries = list(end.unsettled.values())
        random = self._random
        start = random.randrange(len(deliveries))
        state = random.choice(OUTCOMES)
        for delivery in deliveries[start : start + random.randrange(1, 12)]:
            if (delivery.complete and delivery.state is None) or delivery.state == _SEEN:
                end.stream.settle(delivery, state)

    def _state(self) -> None:
        """The receiver says how far it is, and settles later."""
        end = self._pick_receiver()
        for delivery in list(end.unsettled.values()):
            if delivery.complete and delivery.state is None:
                record = delivery.context
                assert isinstance(record, Record)
                record.told.append(_SEEN)
                delivery.update(_SEEN)
                self._count("received")
                return

    def _answer_owed(self) -> None:
        end = self._pick_sender()
        while end.owed:
            self._settle_outgoing(end, end.owed.pop())

    def _answer_late(self) -> None:
        late = self._later[self._random.randrange(2)]
        while late:
            late.popleft()()

    def _begin(self) -> None:
        engine = self.wire.ends[self._random.randrange(2)]
        if engine.opened and len(engine.channels.by_local) < SESSIONS:
            engine.begin()

    def _attach(self) -> None:
        stream = self._random.choice(self.streams)
        ends: list[SenderEnd | ReceiverEnd] = [stream.sender, stream.receiver]
        self._random.shuffle(ends)
        end, other = ends
        old = end.link
        if old is not None and not (old.local_detached and old.remote_attach is not None):
            return
        session = self._session_for(end.side, other.link)
        if session is None:
            return
        names = session.connection.channels.links
        if names.get((stream.name, isinstance(end, SenderEnd))) not in (None, old):
            # The name is still held by a link that was attached only to be closed.
            return
        self._count("attached" if other.link is None else "attached by both")
        if old is not None:
            self._count("attached again at once")
            end.lost()
        # A link with nothing to resume need not say that it resumes.
        says = self._random.random() < 0.5
        if isinstance(end, SenderEnd):
            unsettled = end.unsettled()
            end.link = session.attach_sender(
                stream.name,
                target=Target(address="node"),
                snd_settle_mode=stream.snd,
                rcv_settle_mode=stream.rcv,
                unsettled=unsettled if unsettled or says else None,
            )
        else:
            end.link = session.attach_receiver(
                stream.name,
                source=Source(address="node"),
                snd_settle_mode=stream.snd,
                rcv_settle_mode=stream.rcv,
                unsettled=dict(end.unsettled) if end.unsettled or says else None,
            )
            end.link.set_credit(self._random.randrange(20))

    def _session_for(self, side: int, other: Link | None) -> Session | None:
        """A session to attach on: where the other end has attached, if it has, else any."""
        engine = self.wire.ends[side]
        if other is not None:
            theirs = other.session
            session = engine.channels.by_remote.get(theirs.channel)
            if session is None and theirs.remote_channel >= 0:
                session = engine.channels.by_local.get(theirs.remote_channel)
            return session if session is not None and session.open_for_output else None
        sessions = [s for s in engine.channels.by_local.values() if s.open_for_output]
        return self._random.choice(sessions) if sessions else None

    def _detach(self, closed: bool) -> None:
        link = self._random.choice(list(self._ends.values())).link
        if link is not None and link.state in (LinkState.ATTACH_SENT, LinkState.ATTACHED):
            self._count("closed" if closed else "suspended")
            link.detach(closed=closed)

    def _settle_early(self) -> None:
        """The sender does not want to know any more."""
        end = self._pick_sender()
        for number, delivery in list(end.pending.items()):
            record = delivery.context
            assert isinstance(record, Record)
            if delivery.sent and number not in end.waiting:
                self._count("settled early")
                delivery.settle()
                end.done(delivery)
                end.unconfirmed.append(record)
                if end.link is not delivery.link:
                    record.may_lose = True
                return

    def _end_session(self) -> None:
        side = self._random.randrange(2)
        session = self._session_for(side, None)
        # The attach of a link must not be on its way still: the other user might attach the same
        # name on another session before it comes.
        if session is not None and all(k.remote_attach for k in session.links.values()):
            self._count("ended")
            session.end()
            self._lose_links(side, session)

    def _change_of_mind(self, end: SenderEnd) -> None:
        """While there is no link, the sender may decide for itself what becomes of a message."""
        random = self._random
        for delivery in end.pending.values():
            what = random.random()
            if what < 0.02:
                delivery.state = Modified(undeliverable_here=True)
            elif what < 0.04:
                # What comes before this byte can no longer be sent.
                delivery.state = Received(section_number=0, section_offset=5)
