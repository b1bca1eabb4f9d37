"""Resuming on the same connection, in part, in both directions, and again and again (§2.6.13)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrymq.engine import IncomingDelivery, OutgoingDelivery, ReceiverLink, SenderLink
from ferrymq.engine.events import DeliveryReceived, LinkFailed
from ferrymq.engine.resumption import Resolution
from ferrymq_types.messaging import Accepted, Data
from tests.engine.test_resume import MESSAGE, Pair, incoming, outgoing
from tests.support.script import encode


def partly_sent(pair: Pair, tag: bytes, cut: int) -> tuple[SenderLink, OutgoingDelivery]:
    """A link on which the first `cut` bytes of what belongs to a delivery have arrived."""
    link = pair.attach()
    delivery = link.send(MESSAGE, tag=tag)
    pair.server.receive_data(pair.client.data_to_send()[:cut], 0.0)
    return link, delivery


@pytest.mark.spec("2.6.13", "3.4.6")
@pytest.mark.parametrize("frames", [1, 2, 3, 6])
def test_what_arrived_of_a_delivery_is_kept_and_not_sent_again(frames: int) -> None:
    pair = Pair()
    link, delivery = partly_sent(pair, b"big", 512 * frames)
    pair.lose()
    retained = pair.receiver.unsettled
    arrived = len(retained[b"big"].data())
    assert not retained[b"big"].complete and 0 < arrived < len(MESSAGE)
    pair.retained = retained
    pair.connect()
    again = pair.attach(link.unsettled)
    assert again.resume(delivery, MESSAGE) is Resolution.CONTINUE
    rest = pair.client.data_to_send()
    assert len(rest) < len(MESSAGE) - arrived + 800
    pair.server.receive_data(rest, 0.0)
    pair.run()
    (received,) = pair.of(DeliveryReceived)
    assert isinstance(received, DeliveryReceived)
    assert received.delivery.payload == MESSAGE


@pytest.mark.spec("2.6.13", "2.6.4")
@pytest.mark.parametrize("other_session", [False, True])
def test_a_suspended_link_is_resumed_on_any_session(other_session: bool) -> None:
    pair = Pair()
    link = pair.attach()
    first, second = link.send(MESSAGE, tag=b"1"), link.send(MESSAGE, tag=b"2")
    pair.run()
    events = pair.of(DeliveryReceived)
    link.detach(closed=False)
    pair.run()
    # Until it is resumed the delivery is live on its old session.
    assert isinstance(events[0], DeliveryReceived) and isinstance(events[1], DeliveryReceived)
    events[0].delivery.settle(Accepted())
    pair.run()
    assert first.remote_state == Accepted()
    old = pair.session
    if other_session:
        pair.session = pair.client.begin()
        pair.run()
    pair.retained = dict(pair.receiver.unsettled)
    again = pair.attach(dict(link.unsettled))
    assert not old.outgoing.unsettled
    assert again.session is pair.session and second.link is again
    assert again.resume(first, MESSAGE) is Resolution.SETTLE
    assert again.resume(second, MESSAGE) is Resolution.CONTINUE
    pair.run()
    # Both had arrived: neither is delivered again.
    assert not pair.of(DeliveryReceived)
    events[1].delivery.settle(Accepted())
    pair.run()
    assert second.remote_state == Accepted()
    second.settle()
    pair.run()
    assert not pair.receiver.session.incoming.unsettled
    assert not pair.session.outgoing.unsettled


@pytest.mark.spec("2.7.3")
def test_incomplete_maps_are_worked_off_in_several_attaches() -> None:
    pair = Pair(max_frame_size=512, client_max_frame_size=512)
    link = pair.attach()
    tags = [bytes([n]) * 30 for n in range(40)]
    ours = {tag: outgoing(link, tag, None) for tag in tags}
    pair.retained = {tag: incoming(pair.receiver, tag, MESSAGE, True, Accepted()) for tag in tags}
    pair.lose()
    attaches = 0
    while True:
        pair.connect()
        attaches += 1
        assert attaches < 40
        again = pair.attach(ours)
        resumption = again.resumption
        assert resumption is not None
        if resumption.whole:
            break
        again.session._send_link_flow(again)
        for delivery in list(resumption.unsettled.values()):
            again.resume(delivery, MESSAGE)
        pair.run()
        assert not pair.of(LinkFailed) and not pair.of(DeliveryReceived)
        pair.lose()
        ours = dict(again.unsettled)
        pair.retained = {t: d for t, d in pair.retained.items() if not d.remote_settled}
    assert attaches > 1
    for delivery in list(resumption.unsettled.values()):
        again.resume(delivery, MESSAGE)
    again.send(MESSAGE)
    pair.run()
    assert len(pair.of(DeliveryReceived)) == 1 and not pair.of(LinkFailed)
    assert not [d for d in pair.retained.values() if not d.remote_settled]


@pytest.mark.spec("2.6.13")
def test_what_was_not_resumed_yet_is_kept_when_the_link_is_lost_again() -> None:
    pair = Pair()
    link = pair.attach()
    for tag in (b"1", b"2", b"3"):
        link.send(MESSAGE, tag=tag)
    pair.run()
    for _ in range(3):
        pair.lose()
        assert set(link.unsettled) == {b"1", b"2", b"3"}
        pair.retained = dict(pair.receiver.unsettled)
        assert set(pair.retained) == {b"1", b"2", b"3"}
        pair.connect()
        link = pair.attach(link.unsettled)
    assert all(d.data() == MESSAGE for d in pair.retained.values())


class Model:
    """A sender that resumes whatever is lost, and a receiver that never forgets too early."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.pair = Pair(max_frame_size=self.random.choice((512, 700, 65536)))
        self.link = self.pair.attach()
        self.messages: dict[bytes, bytes] = {}
        self.sent: dict[bytes, OutgoingDelivery] = {}
        self.arrived: list[bytes] = []
        self.undecided: dict[bytes, IncomingDelivery] = {}

    def look(self) -> None:
        for event in self.pair.events:
            if isinstance(event, DeliveryReceived):
                delivery = event.delivery
                assert delivery.payload == self.messages[delivery.tag]
                assert delivery.tag not in self.arrived, "came twice"
                self.arrived.append(delivery.tag)
                self.undecided[delivery.tag] = delivery
            else:
                assert not isinstance(event, LinkFailed), event.error
        self.pair.events.clear()

    def answer(self) -> None:
        for delivery in list(self.sent.values()):
            if delivery.remote_state == Accepted() and delivery.link.usable and delivery.id >= 0:
                delivery.settle()
                del self.sent[delivery.tag]

    def send(self) -> None:
        link = self.link
        if link.usable and link.credit > 0:
            tag = b"%d" % len(self.messages)
            payload = encode(Data(tag * self.random.choice((0, 1, 400, 3000))))
            self.messages[tag] = payload
            self.sent[tag] = link.send(payload, tag=tag)

    def decide(self) -> None:
        for tag in list(self.undecided):
            if self.random.random() < 0.5:
                self.undecided.pop(tag).settle(Accepted())

    def lose(self) -> None:
        """In the middle of whatever is on its way, by the network or by a detach."""
        pair, random = self.pair, self.random
        pair.server.receive_data(pair.client.data_to_send()[: random.randrange(5000)], 0.0)
        pair.wire.settle_events(1)
        if random.random() < 0.5:
            pair.client.receive_data(pair.server.data_to_send()[: random.randrange(500)], 0.0)
        pair.lose()
        self.look()
        pair.retained = dict(pair.receiver.unsettled)
        pair.connect()
        self.resume()

    def suspend(self) -> None:
        if self.link.usable:
            self.link.detach(closed=False)
            self.pair.run()
            self.look()
            self.answer()
            self.pair.retained = dict(self.pair.receiver.unsettled)
            self.resume()

    def resume(self) -> None:
        unsettled = dict(self.link.unsettled)
        assert set(unsettled) == set(self.sent)
        self.link = self.pair.session.attach_sender(
            "link",
            source=self.link.source,
            target=self.link.target,
            rcv_settle_mode=self.link.rcv_settle_mode,
            unsettled=unsettled,
        )
        self.pair.run()
        for tag, delivery in unsettled.items():
            done = self.link.resume(delivery, self.messages[tag])
            if done is Resolution.SETTLE:
                del self.sent[tag]


@given(seed=st.integers(0, 1 << 32), moves=st.integers(20, 80))
@settings(max_examples=60, deadline=None)
def test_exactly_once_however_often_the_link_is_lost(seed: int, moves: int) -> None:
    model = Model(seed)
    random = model.random
    for _ in range(moves):
        what = random.random()
        if what < 0.45:
            model.send()
        elif what < 0.6:
            model.pair.run()
        elif what < 0.75:
            model.decide()
        elif what < 0.85:
            model.answer()
        elif what < 0.93:
            model.lose()
        else:
            model.suspend()
        model.look()
    for _ in range(50):
        model.pair.run()
        model.look()
        model.decide()
        model.answer()
    assert sorted(model.arrived) == sorted(model.messages)
    assert not model.sent and not model.undecided
    assert isinstance(model.pair.receiver, ReceiverLink)
    assert not model.pair.receiver.session.incoming.unsettled
