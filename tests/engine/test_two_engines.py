"""Two engines on a wire that cuts and joins bytes at will, and a model of what must hold.

Both sides begin, attach, send, settle, drain, detach and end whenever they like. On every link
the messages arrive in the order they were sent, none twice and none left out; and once the wire
is silent both sides see the same sessions, links, credit, deliveries and outcomes.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ferrymq.engine import Connection, ConnectionSettings, ReceiverLink, SenderLink, Session
from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery
from ferrymq.engine.events import (
    AttachReceived,
    BeginReceived,
    CloseReceived,
    CreditReceived,
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
from ferrymq.engine.states import LinkState, SessionState
from ferrymq_types.messaging import Accepted, Modified, Released, Source, Target
from ferrymq_types.transport import ReceiverSettleMode, SenderSettleMode
from tests.support.grammar import check_grammar
from tests.support.wire import Wire

pytestmark = pytest.mark.hypothesis

SIDES = st.integers(0, 1)
PICK = st.integers(0, 1 << 16)
STATES = st.sampled_from([Accepted(), Released(), Modified(delivery_failed=True), None])


class Model:
    """What both users know: one object for both, since it is compared in the end."""

    def __init__(self) -> None:
        self.numbers: dict[SenderLink, int] = {}
        self.sent: dict[int, list[bytes]] = {}
        self.received: dict[ReceiverLink, list[bytes]] = {}
        self.unsettled: list[IncomingDelivery] = []
        self.outcomes: dict[bytes, object] = {}
        self.payloads: dict[OutgoingDelivery, bytes] = {}

    def send(self, link: SenderLink, size: int, settled: bool) -> None:
        number = self.numbers.setdefault(link, len(self.numbers))
        sent = self.sent.setdefault(number, [])
        payload = b"%d/%d/" % (number, len(sent)) + b"." * size
        sent.append(payload)
        self.payloads[link.send(payload, settled=settled)] = payload

    def receive(self, link: ReceiverLink, delivery: IncomingDelivery) -> None:
        received = self.received.setdefault(link, [])
        received.append(delivery.payload)
        number = int(delivery.payload.split(b"/")[0])
        assert received == self.sent[number][: len(received)], "lost, doubled or out of order"
        if not delivery.remote_settled:
            self.unsettled.append(delivery)

    def settle(self, delivery: IncomingDelivery, state: object) -> None:
        self.unsettled.remove(delivery)
        self.outcomes[delivery.payload] = state
        delivery.settle(state)

    def outcome(self, delivery: OutgoingDelivery) -> None:
        payload = self.payloads[delivery]
        assert delivery.remote_state == self.outcomes[payload]
        if not delivery.link.settles_second:
            assert delivery.remote_settled
        delivery.settle()


class TwoEngines(RuleBasedStateMachine):
    @initialize(
        windows=st.tuples(st.integers(1, 6), st.integers(1, 6)),
        frames=st.tuples(st.sampled_from([512, 600, 65536]), st.sampled_from([512, 4096])),
    )
    def connect(self, windows: tuple[int, int], frames: tuple[int, int]) -> None:
        self.model = Model()
        self.closing = False
        engines = [
            Connection(
                ConnectionSettings(
                    container_id=str(side),
                    initiator=side == 0,
                    incoming_window=windows[side],
                    max_frame_size=frames[side],
                ),
                0.0,
            )
            for side in (0, 1)
        ]
        self.wire = Wire(engines[0], engines[1], self.on_event)
        engines[0].open()
        self.wire.drain(Random(0))
        # Where most things happen; more of everything may follow.
        for side, engine in enumerate(engines):
            session = engine.begin()
            for letter, mode in (("a", ReceiverSettleMode.FIRST), ("b", ReceiverSettleMode.SECOND)):
                # Names are unique between the containers: each side has its own.
                name = f"{letter}{side}"
                session.attach_sender(name, target=Target(address="q"), rcv_settle_mode=mode)
                session.attach_receiver(
                    name, source=Source(address="q"), rcv_settle_mode=mode
                ).set_credit(5)
        self.wire.drain(Random(0))

    # -- what a user does about events ------------------------------------------------

    def on_event(self, engine: Connection, event: Event) -> None:
        match event:
            case OpenReceived():
                if not engine.settings.initiator:
                    engine.open()
            case CloseReceived():
                assert self.closing
                engine.close()
            case Terminated():
                assert self.closing and event.error is None, event.error
            case BeginReceived():
                if not event.session.initiated:
                    event.session.accept()
            case EndReceived():
                assert event.error is None
                event.session.end()
            case SessionTerminated():
                assert event.error is None
            case AttachReceived():
                link = event.link
                if not link.initiated:
                    link.accept()
                    if isinstance(link, ReceiverLink):
                        link.set_credit(5)
            case DetachReceived():
                assert event.error is None
                event.link.detach(closed=event.closed)
            case CreditReceived():
                if event.link.drain:
                    event.link.drained()
            case DeliveryReceived():
                delivery = event.delivery
                self.model.receive(event.link, delivery)
                if delivery.id % 3 == 0 and not delivery.remote_settled:
                    self.model.settle(delivery, Accepted())
            case OutcomeReceived():
                self.model.outcome(event.delivery)
            case SettlementReceived():
                assert event.delivery.settled
            case LinkFailed():
                raise AssertionError(event.error)
            case DrainCompleted():
                assert event.link.credit == 0

    # -- what a user does of its own accord ------------------------------------------

    def sessions(self, side: int) -> list[Session]:
        return list(self.wire.ends[side].channels.by_local.values())

    def session(self, side: int, pick: int) -> Session | None:
        sessions = [s for s in self.sessions(side) if s.open_for_output]
        return sessions[pick % len(sessions)] if sessions else None

    def links(self, side: int, kind: type) -> list:
        return [
            link
            for session in self.sessions(side)
            for link in session.links.values()
            if isinstance(link, kind)
        ]

    @rule(side=SIDES)
    def begin(self, side: int) -> None:
        engine = self.wire.ends[side]
        if engine.opened and len(engine.channels.by_local) < 6:
            engine.begin()

    @rule(
        side=SIDES,
        pick=PICK,
        name=st.sampled_from("abc"),
        sends=st.booleans(),
        snd=st.sampled_from(SenderSettleMode),
        rcv=st.sampled_from(ReceiverSettleMode),
    )
    def attach(
        self,
        side: int,
        pick: int,
        name: str,
        sends: bool,
        snd: SenderSettleMode,
        rcv: ReceiverSettleMode,
    ) -> None:
        session = self.session(side, pick)
        name = f"{name}{side}"
        if session is None or (name, sends) in session.connection.channels.links:
            return
        if sends:
            session.attach_sender(
                name, target=Target(address="q"), snd_settle_mode=snd, rcv_settle_mode=rcv
            )
        else:
            link = session.attach_receiver(
                name, source=Source(address="q"), snd_settle_mode=snd, rcv_settle_mode=rcv
            )
            link.set_credit(3)

    @rule(side=SIDES, pick=PICK, credit=st.integers(0, 8))
    def give_credit(self, side: int, pick: int, credit: int) -> None:
        if links := self.links(side, ReceiverLink):
            links[pick % len(links)].set_credit(credit)

    @rule(side=SIDES, pick=PICK)
    def drain_credit(self, side: int, pick: int) -> None:
        if links := self.links(side, ReceiverLink):
            links[pick % len(links)].drain_credit()

    @rule(
        side=SIDES,
        pick=PICK,
        size=st.sampled_from([0, 1, 400, 600, 2500]),
        count=st.integers(1, 5),
        settled=st.booleans(),
    )
    def send(self, side: int, pick: int, size: int, count: int, settled: bool) -> None:
        links = [k for k in self.links(side, SenderLink) if k.usable and k.credit > 0]
        if links:
            link = links[pick % len(links)]
            for _ in range(min(count, int(link.credit))):
                self.model.send(link, size, settled)

    @rule(pick=PICK, count=st.integers(1, 20), state=STATES)
    def settle(self, pick: int, count: int, state: object) -> None:
        # From anywhere in the list, so that ranges have holes.
        for _ in range(count):
            if unsettled := self.model.unsettled:
                self.model.settle(unsettled[pick % len(unsettled)], state)

    @rule(side=SIDES, pick=PICK, closed=st.booleans())
    def detach(self, side: int, pick: int, closed: bool) -> None:
        if links := self.links(side, SenderLink) + self.links(side, ReceiverLink):
            link = links[pick % len(links)]
            if pick % 3 == 0 and link.state is not LinkState.ATTACH_RCVD:
                link.detach(closed=closed)

    @rule(side=SIDES, pick=PICK)
    def end(self, side: int, pick: int) -> None:
        session = self.session(side, pick)
        if session is not None and pick % 8 == 0:
            session.end()

    @rule(seed=PICK, steps=st.integers(1, 30))
    def move(self, seed: int, steps: int) -> None:
        random = Random(seed)
        for _ in range(steps):
            self.wire.step(random)

    # -- what must hold -----------------------------------------------------------------

    @invariant()
    def nobody_broke_a_rule(self) -> None:
        if hasattr(self, "wire"):
            for engine in self.wire.ends:
                assert engine.failure is None, engine.failure

    @rule(seed=PICK)
    def silence(self, seed: int) -> None:
        self.wire.drain(Random(seed))
        for side in (0, 1):
            for link in self.links(side, SenderLink):
                if link.parked > 0:
                    # It waits for credit that was taken back.
                    assert link.usable and link.credit == 0 and link.overdrawn >= link.parked
                    for receiver in self.links(1 - side, ReceiverLink):
                        receiver.set_credit(8)
                    self.wire.drain(Random(seed))
        left, right = self.wire.ends
        assert left.opened and right.opened
        assert len(left.channels.by_local) == len(right.channels.by_local)
        for session in left.channels.by_local.values():
            assert session.state is SessionState.MAPPED
            other = right.channels.by_local[session.remote_channel]
            assert other.state is SessionState.MAPPED and other.remote_channel == session.channel
            self.compare(session, other)
            self.compare(other, session)

    def compare(self, session: Session, other: Session) -> None:
        """The sending half of one against the receiving half of the other."""
        assert {(name, not sends) for name, sends in session.links} == set(other.links)
        # What was on its way to a link that its receiver had detached is the sender's alone.
        known = dict(other.incoming.unsettled.items())
        held = dict(session.outgoing.unsettled.items())
        assert known.keys() <= held.keys()
        assert known.keys() >= {id for id, delivery in held.items() if delivery.link.usable}
        assert session.outgoing.next_id == other.incoming.next_id
        assert session.outgoing.remote_window == other.incoming.window
        for (name, sends), link in session.links.items():
            if not sends:
                continue
            assert isinstance(link, SenderLink)
            receiver = other.links[name, False]
            assert isinstance(receiver, ReceiverLink)
            assert link.usable and receiver.usable
            assert link.parked == 0
            assert link.credit == receiver.credit
            assert link.delivery_count == receiver.delivery_count
            assert link.handle == receiver.remote_handle and link.remote_handle == receiver.handle
            number = self.model.numbers.get(link)
            sent = [] if number is None else self.model.sent[number]
            assert self.model.received.get(receiver, []) == sent

    def teardown(self) -> None:
        if not hasattr(self, "wire"):
            return
        self.silence(1)
        self.closing = True
        self.wire.ends[0].close()
        self.wire.drain(Random(2))
        assert all(engine.finished for engine in self.wire.ends)
        for written in self.wire.written:
            check_grammar(bytes(written))


TestTwoEngines = TwoEngines.TestCase
TestTwoEngines.settings = settings(stateful_step_count=60)
