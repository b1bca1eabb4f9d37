"""Resuming a link: what both sides know of their deliveries comes together (§2.6.13, §3.4.6)."""

from __future__ import annotations

from random import Random

import pytest

from ferrymq.engine import (
    Connection,
    ConnectionSettings,
    IncomingDelivery,
    OutgoingDelivery,
    ReceiverLink,
    SenderLink,
)
from ferrymq.engine.events import (
    AttachReceived,
    BeginReceived,
    DeliveryAborted,
    DeliveryReceived,
    DetachReceived,
    Event,
    LinkFailed,
    OpenReceived,
    SettlementReceived,
)
from ferrymq.engine.positions import is_before, offset_of, position_at_end
from ferrymq.engine.resumption import Resolution, resolve
from ferrymq.errors import LocalProtocolError
from ferrymq_codec.composite import Composite
from ferrymq_types.messaging import (
    Accepted,
    AmqpValue,
    Data,
    Properties,
    Received,
    Released,
    Source,
    Target,
)
from ferrymq_types.transport import ReceiverSettleMode
from tests.support.script import encode
from tests.support.wire import Wire


def at(section: int, offset: int) -> Received:
    return Received(section_number=section, section_offset=offset)


class Pair:
    """A client that sends or receives over one link to a server, again and again.

    The server takes every delivery; what happened is in `received`, `outcomes` and `settled`.
    """

    def __init__(self, max_frame_size: int = 512, client_max_frame_size: int = 512) -> None:
        self.random = Random(1)
        self.max_frame_size = max_frame_size
        self.client_max_frame_size = client_max_frame_size
        self.events: list[Event] = []
        self.retained: dict[bytes, IncomingDelivery] | None = None
        self.connect()

    def connect(self) -> None:
        self.client = Connection(
            ConnectionSettings(
                container_id="client", initiator=True, max_frame_size=self.client_max_frame_size
            ),
            0.0,
        )
        self.server = Connection(
            ConnectionSettings(
                container_id="server", initiator=False, max_frame_size=self.max_frame_size
            ),
            0.0,
        )
        self.wire = Wire(self.client, self.server, self._on_event)
        self.client.open()
        self.run()
        self.session = self.client.begin()
        self.run()

    def lose(self) -> None:
        """The transport ends without a word."""
        self.client.receive_eof(0.0)
        self.server.receive_eof(0.0)
        self.client.take_events()
        self.server.take_events()

    def run(self) -> None:
        self.wire.drain(self.random)

    def _on_event(self, engine: Connection, event: Event) -> None:
        if engine is self.server:
            if isinstance(event, OpenReceived):
                engine.open()
            elif isinstance(event, BeginReceived):
                event.session.accept()
            elif isinstance(event, AttachReceived):
                link = event.link
                assert isinstance(link, ReceiverLink)
                if self.retained is not None:
                    self.resettled = link.resume_from(self.retained)
                link.accept()
                link.set_credit(100)
                self.receiver = link
            elif isinstance(event, DetachReceived):
                event.link.detach(closed=event.closed)
        self.events.append(event)

    def attach(
        self,
        unsettled: dict[bytes, OutgoingDelivery] | None = None,
        mode: ReceiverSettleMode = ReceiverSettleMode.SECOND,
    ) -> SenderLink:
        link = self.session.attach_sender(
            "link",
            source=Source(address="a"),
            target=Target(address="b"),
            rcv_settle_mode=mode,
            unsettled=unsettled,
        )
        self.run()
        self.events.clear()
        return link

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


MESSAGE = b"".join(
    encode(section) for section in (Properties(subject="s"), Data(b"x" * 3000), Data(b"y" * 300))
)


def outgoing(link: SenderLink, tag: bytes, state: Composite | None) -> OutgoingDelivery:
    delivery = OutgoingDelivery(link, tag, False)
    delivery.state = state  # type: ignore[assignment]
    return delivery


def incoming(
    link: ReceiverLink, tag: bytes, data: bytes, complete: bool, state: Composite | None
) -> IncomingDelivery:
    delivery = IncomingDelivery(link, 0, tag, 0)
    delivery.second = True
    delivery.payload = data
    delivery.complete = complete
    delivery.state = state  # type: ignore[assignment]
    return delivery


# The example of §3.4.6: tag, the sender's state, the receiver's (absent: ...), what to do.
EXAMPLE = [
    (1, None, ..., Resolution.RESEND),
    (2, None, at(3, 0), Resolution.CONTINUE),
    (3, None, Accepted(), Resolution.SETTLE),
    (4, None, None, Resolution.CONTINUE),
    (5, at(0, 200), ..., Resolution.RESEND),
    (6, at(1, 150), at(2, 0), Resolution.CONTINUE),
    (7, at(0, 500), at(0, 100), Resolution.ABORT),
    (8, at(3, 5), Accepted(), Resolution.SETTLE),
    (9, at(2, 0), None, Resolution.ABORT),
    (10, Accepted(), ..., Resolution.FORGET),
    (11, Accepted(), at(1, 2000), Resolution.ABORT),
    (12, Accepted(), Accepted(), Resolution.SETTLE),
    (13, Accepted(), Released(), Resolution.RESTATE),
    (14, Accepted(), None, Resolution.ABORT),
]


@pytest.mark.spec("3.4.6")
@pytest.mark.parametrize(("tag", "local", "remote", "expected"), EXAMPLE)
def test_the_example_of_the_specification(
    tag: int, local: object, remote: object, expected: Resolution
) -> None:
    known = remote is not ...
    state = remote if known else None
    assert resolve(local, known, state, True) is expected  # type: ignore[arg-type]


@pytest.mark.spec("2.7.3")
@pytest.mark.parametrize("local", [None, at(0, 5), Accepted()])
def test_the_absence_of_a_tag_from_an_incomplete_map_says_nothing(local: object) -> None:
    assert resolve(local, False, None, False) is Resolution.WAIT  # type: ignore[arg-type]


@pytest.mark.spec("3.4.1")
def test_positions_name_every_byte_of_a_message() -> None:
    previous = at(0, 0)
    for length in range(len(MESSAGE) + 1):
        position = position_at_end(MESSAGE[:length])
        assert offset_of(MESSAGE, position) == length
        assert position == previous or is_before(previous, position)
        previous = position
    assert position_at_end(MESSAGE) == at(3, 0)
    assert offset_of(MESSAGE, at(3, 1)) == -1
    assert offset_of(MESSAGE, at(4, 0)) == -1
    assert position_at_end(b"") == at(0, 0)


@pytest.mark.spec("2.6.13")
@pytest.mark.parametrize("lost_after", [1, 3, 6])
def test_a_message_lost_on_the_way_continues_where_it_stopped(lost_after: int) -> None:
    pair = Pair()
    link = pair.attach()
    delivery = link.send(MESSAGE, tag=b"big")
    # Some of its frames arrive, and then the connection is gone.
    data = pair.client.data_to_send()
    pair.server.receive_data(data[: 512 * lost_after - 100], 0.0)
    pair.lose()
    assert set(link.unsettled) == {b"big"}
    retained = pair.receiver.unsettled
    arrived = len(retained[b"big"].data()) if retained else 0
    pair.retained = retained

    pair.connect()
    again = pair.attach(link.unsettled)
    sent_before = len(MESSAGE) - arrived
    if retained:
        assert again.resume(delivery, MESSAGE) is Resolution.CONTINUE
    else:
        assert again.resume(delivery, MESSAGE) is Resolution.RESEND
    wire_bytes = pair.client.data_to_send()
    assert len(wire_bytes) < sent_before + 600
    pair.server.receive_data(wire_bytes, 0.0)
    pair.run()
    (received,) = pair.of(DeliveryReceived)
    assert isinstance(received, DeliveryReceived)
    assert received.delivery.payload == MESSAGE
    assert received.delivery.tag == b"big"


@pytest.mark.spec("2.6.13")
def test_exactly_once_when_the_outcome_was_lost() -> None:
    pair = Pair()
    link = pair.attach()
    delivery = link.send(MESSAGE, tag=b"t")
    pair.run()
    (event,) = pair.of(DeliveryReceived)
    assert isinstance(event, DeliveryReceived)
    event.delivery.settle(Accepted())
    pair.lose()  # before the disposition has left
    assert pair.receiver.unsettled[b"t"].state == Accepted()

    pair.retained = pair.receiver.unsettled
    pair.connect()
    again = pair.attach(link.unsettled)
    assert delivery.remote_state == Accepted()
    assert again.resume(delivery, MESSAGE) is Resolution.SETTLE
    pair.run()
    (settled,) = pair.of(SettlementReceived)
    assert isinstance(settled, SettlementReceived)
    assert settled.delivery.remote_settled and settled.delivery.tag == b"t"
    assert not pair.of(DeliveryReceived)
    assert delivery.settled and delivery.state == Accepted()


@pytest.mark.spec("2.6.13")
def test_what_only_the_receiver_considers_unsettled_is_settled() -> None:
    pair = Pair()
    link = pair.attach()
    link.send(MESSAGE, tag=b"t")
    pair.run()
    pair.lose()
    pair.retained = pair.receiver.unsettled
    pair.connect()
    pair.attach({})
    assert [d.tag for d in pair.resettled] == [b"t"]
    assert pair.resettled[0].remote_settled


@pytest.mark.spec("2.6.13")
def test_a_resumed_delivery_the_receiver_does_not_know_is_ignored() -> None:
    pair = Pair()
    link = pair.attach({})
    stray = outgoing(link, b"stray", None)
    link._dispatch(stray, MESSAGE, 0, 0, None, True, False)
    pair.retained = {}
    link.send(b"\x00\x53\x77\x40", tag=b"next")
    pair.run()
    received = [e.delivery.tag for e in pair.of(DeliveryReceived)]  # type: ignore[attr-defined]
    # The first attach of this link did not resume on the server's side either.
    assert received[-1] == b"next"


@pytest.mark.spec("2.6.13")
def test_ignored_when_both_sides_resume() -> None:
    pair = Pair()
    pair.retained = {}
    link = pair.attach({})
    stray = outgoing(link, b"stray", None)
    link._dispatch(stray, MESSAGE, 0, 0, None, True, False)
    link.send(b"\x00\x53\x77\x40", tag=b"next")
    pair.run()
    assert [e.delivery.tag for e in pair.of(DeliveryReceived)] == [b"next"]  # type: ignore[attr-defined]
    assert not pair.receiver.unsettled


@pytest.mark.spec("3.4.6")
def test_every_resolution_over_the_wire() -> None:
    """The example with real deliveries: what the receiver has at the end is what it should."""
    pair = Pair(max_frame_size=2048)
    first = pair.attach()
    sender_states = {n: local for n, local, _, _ in EXAMPLE}
    unsettled = {
        bytes([n]): outgoing(first, bytes([n]), state)  # type: ignore[arg-type]
        for n, state in sender_states.items()
    }
    half = MESSAGE[: offset_of(MESSAGE, at(2, 0))]
    retained: dict[bytes, IncomingDelivery] = {}
    for n, _, remote, _ in EXAMPLE:
        tag = bytes([n])
        if remote is ...:
            continue
        if isinstance(remote, Received):
            end = offset_of(MESSAGE, remote) if remote.section_number < 3 else len(half)
            data = MESSAGE[:end] if end >= 0 else MESSAGE[:100]
            retained[tag] = incoming(pair.receiver, tag, data, False, None)
        elif remote is None:
            retained[tag] = incoming(pair.receiver, tag, b"", False, None)
        else:
            retained[tag] = incoming(pair.receiver, tag, MESSAGE, True, remote)
    pair.lose()
    pair.retained = retained
    pair.connect()
    link = pair.attach(unsettled)
    done = {d.tag: link.resume(d, MESSAGE) for d in unsettled.values()}
    pair.run()

    received = {e.delivery.tag: e.delivery for e in pair.of(DeliveryReceived)}  # type: ignore[attr-defined]
    aborted = {e.delivery.tag for e in pair.of(DeliveryAborted)}  # type: ignore[attr-defined]
    settled = {e.delivery.tag: e.delivery for e in pair.of(SettlementReceived)}  # type: ignore[attr-defined]
    for tag, resolution in done.items():
        if resolution in (Resolution.RESEND, Resolution.CONTINUE):
            assert received[tag].payload == MESSAGE, tag
        elif resolution is Resolution.ABORT:
            assert tag in aborted
        elif resolution is Resolution.SETTLE:
            assert settled[tag].remote_settled
            assert unsettled[tag].settled
        elif resolution is Resolution.RESTATE:
            restated = settled[tag]
            assert restated.remote_state == Accepted() and not restated.remote_settled
            restated.settle(restated.remote_state)
            pair.run()
            assert unsettled[tag].remote_settled
            assert unsettled[tag].remote_state == Accepted()
    assert set(done.values()) == set(Resolution) - {Resolution.WAIT}
    assert len(received) + len(aborted) + len(settled) + 1 == len(EXAMPLE)
    # Without an outcome of our own nothing else is unsettled at the end.
    assert len(pair.session.outgoing.unsettled) == len(received)


@pytest.mark.spec("2.7.3")
def test_a_map_too_large_for_a_frame_goes_out_in_part_and_no_new_delivery_may_follow() -> None:
    pair = Pair(max_frame_size=512)
    link = pair.attach()
    deliveries = {bytes([n]) * 30: outgoing(link, bytes([n]) * 30, None) for n in range(40)}
    pair.lose()
    pair.retained = {}
    pair.connect()
    again = pair.attach(deliveries)
    attach = pair.receiver.remote_attach
    assert attach is not None and attach.incomplete_unsettled
    assert attach.unsettled and len(attach.unsettled) < 40
    with pytest.raises(LocalProtocolError, match="incomplete"):
        again.send(b"\x00\x53\x77\x40")
    # The receiver's map is whole, so what it does not know can be sent again.
    for delivery in list(deliveries.values()):
        assert again.resume(delivery, b"\x00\x53\x77\x40") is Resolution.RESEND


@pytest.mark.spec("2.7.3")
def test_a_receiver_with_an_incomplete_map_refuses_new_deliveries() -> None:
    pair = Pair(max_frame_size=65536, client_max_frame_size=512)
    link = pair.attach()
    pair.lose()
    ours = {bytes([n]) * 30: outgoing(link, bytes([n]) * 30, None) for n in range(40)}
    many = {
        bytes([n]) * 30: incoming(pair.receiver, bytes([n]) * 30, b"", False, None)
        for n in range(40)
    }
    pair.retained = many
    pair.connect()
    link = pair.attach(ours)
    with pytest.raises(LocalProtocolError, match="incomplete"):
        link.send(b"\x00\x53\x77\x40")
    link.resumption.remote_complete = True  # type: ignore[union-attr]
    link.send(b"\x00\x53\x77\x40")
    pair.run()
    (failed,) = pair.of(LinkFailed)
    assert isinstance(failed, LinkFailed)
    assert failed.error.condition == "amqp:not-allowed"  # type: ignore[attr-defined]


@pytest.mark.spec("2.6.6")
def test_a_detach_that_crosses_a_close_is_followed_by_a_close() -> None:
    pair = Pair()
    link = pair.attach()
    link.detach(closed=False)
    pair.receiver.detach(closed=True)
    pair.run()
    assert link.remote_closed
    # The name is free again on both sides.
    assert not pair.session.links
    assert not pair.receiver.session.links


@pytest.mark.spec("2.6.13")
def test_nothing_is_sent_for_what_both_have_forgotten() -> None:
    pair = Pair()
    pair.retained = {}
    link = pair.attach()
    done = outgoing(link, b"t", Accepted())
    pair.lose()
    pair.connect()
    again = pair.attach({b"t": done})
    assert again.resume(done) is Resolution.FORGET
    assert pair.client.data_to_send() == b""
    with pytest.raises(LocalProtocolError, match="not to be resumed"):
        again.resume(done)


@pytest.mark.spec("2.7.5")
def test_body_of_one_value() -> None:
    message = encode(AmqpValue("text" * 500))
    for length in (0, 1, 100, len(message)):
        assert offset_of(message, position_at_end(message[:length])) == length
