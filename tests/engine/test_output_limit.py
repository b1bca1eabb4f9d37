"""Output in bytes: of what is sent, only a window is encoded at a time (`max_output`)."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.engine.connection import Connection
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.events import (
    AttachReceived,
    BeginReceived,
    CloseReceived,
    DeliveryReceived,
    DetachReceived,
    EndReceived,
    OpenReceived,
)
from ferrymq.engine.output_limit import FRAME
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.settings import ConnectionSettings
from ferrymq_types.messaging import Accepted, Modified, Source, Target
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import SenderSettleMode

LIMIT = 100_000


class Ends:
    """A client whose output is limited, and the server that it sends to."""

    def __init__(
        self, limit: int = LIMIT, max_frame_size: int = 65_536, window: int = 2048
    ) -> None:
        self.limit = limit
        self.client = Connection(
            ConnectionSettings(container_id="client", initiator=True, max_output=limit), 0.0
        )
        self.server = Connection(
            ConnectionSettings(
                container_id="server",
                initiator=False,
                max_frame_size=max_frame_size,
                incoming_window=window,
            ),
            0.0,
        )
        self.received: list[IncomingDelivery] = []
        self.written: list[int] = []
        self.detached = self.ended = self.closed = 0
        self.client.open()
        self.run()
        self.session = self.client.begin()
        self.run()

    def sender(self, name: str = "link", **options: object) -> SenderLink:
        session = options.pop("session", self.session)
        link: SenderLink = session.attach_sender(  # type: ignore[attr-defined]
            name, target=Target(address="q"), source=Source(), **options
        )
        self.run()
        return link

    def step(self) -> bool:
        """The server gets what the client writes at once; whether that was anything."""
        data = self.client.data_to_send()
        self.written.append(len(data))
        self.server.receive_data(data, 0.0)
        for event in self.server.take_events():
            if isinstance(event, OpenReceived):
                self.server.open()
            elif isinstance(event, BeginReceived):
                event.session.accept()
            elif isinstance(event, AttachReceived):
                event.link.accept()
                event.link.set_credit(100)  # type: ignore[attr-defined]
            elif isinstance(event, DeliveryReceived):
                self.received.append(event.delivery)
            elif isinstance(event, DetachReceived):
                self.detached += 1
                event.link.detach(closed=event.closed)
            elif isinstance(event, EndReceived):
                self.ended += 1
                event.session.end()
            elif isinstance(event, CloseReceived):
                self.closed += 1
                self.server.close()
        answer = self.server.data_to_send()
        self.client.receive_data(answer, 0.0)
        self.client.take_events()
        return bool(data or answer)

    def run(self) -> None:
        while self.step():
            pass

    @property
    def payloads(self) -> list[bytes]:
        return [delivery.payload for delivery in self.received]


def message(size: int, seed: int = 0) -> bytes:
    return bytes((seed + at) & 0xFF for at in range(251)) * (size // 251) + bytes(size % 251)


def test_a_large_message_is_encoded_a_window_at_a_time() -> None:
    ends = Ends()
    link = ends.sender()
    payload = message(3_000_000)
    ends.written.clear()
    delivery = link.send(payload)
    assert ends.client.output_size() <= LIMIT + FRAME
    assert ends.client.has_output and ends.client.holds_back
    assert not delivery.sent and link.parked == 1
    ends.run()
    assert max(ends.written) <= LIMIT + FRAME
    assert ends.payloads == [payload]
    assert delivery.sent and link.parked == 0
    assert not ends.client.has_output and not ends.client.holds_back


def test_the_payload_is_shared_by_all_who_send_it() -> None:
    payload = message(2_000_000)
    before = sys.getrefcount(payload)
    pairs = [Ends() for _ in range(5)]
    for ends in pairs:
        ends.sender().send(payload)
    assert sys.getrefcount(payload) > before
    assert sum(len(ends.client.output) for ends in pairs) < FRAME
    for ends in pairs:
        ends.run()
    assert [ends.payloads for ends in pairs] == [[payload]] * 5
    assert sys.getrefcount(payload) == before


def test_pieces_are_the_output_without_copies_of_payloads() -> None:
    payload = message(150_000)
    whole, pieces = Ends(), Ends()
    for ends in (whole, pieces):
        link = ends.sender()
        link.send(b"small")
        link.send(payload)
    while data := whole.client.data_to_send():
        output = pieces.client.pieces_to_send()
        given = [output] if isinstance(output, bytes) else output
        assert b"".join(given) == data and all(given)
        copied = sum(len(piece) for piece in given if isinstance(piece, bytes))
        assert copied < 16_384
    assert pieces.client.pieces_to_send() == b""


def test_small_output_is_not_in_pieces() -> None:
    ends = Ends()
    ends.sender().send(b"small")
    output = ends.client.pieces_to_send()
    assert isinstance(output, bytes) and output.endswith(b"small")


def test_a_message_of_any_size_may_follow_a_large_one() -> None:
    ends = Ends()
    link = ends.sender()
    sizes = [400_000, 400_000, 70_000, 150_000, 2_000_000, 131_072, 300, 131_073]
    sent = [message(size, seed) for seed, size in enumerate(sizes)]
    for payload in sent:
        link.send(payload)
        ends.run()
    assert ends.payloads == sent


@pytest.mark.parametrize("max_frame_size", [65_536, 1 << 20, 0xFFFF_FFFF])
def test_frames_are_short_whatever_the_peer_takes(max_frame_size: int) -> None:
    ends = Ends(max_frame_size=max_frame_size)
    link = ends.sender()
    payload = message(1_000_000)
    ends.written.clear()
    link.send(payload)
    ends.run()
    assert max(ends.written) <= LIMIT + FRAME
    assert ends.payloads == [payload]


def test_many_messages_wait_as_the_rest_of_one_does() -> None:
    ends = Ends()
    link = ends.sender()
    payloads = [message(10_000, seed) for seed in range(90)]
    ends.written.clear()
    for payload in payloads:
        link.send(payload)
    assert ends.client.output_size() <= LIMIT + FRAME
    ends.run()
    assert max(ends.written) <= LIMIT + FRAME
    assert ends.payloads == payloads


def test_sessions_take_turns() -> None:
    ends = Ends()
    first = ends.sender("one")
    other = ends.client.begin()
    ends.run()
    second = ends.sender("two", session=other)
    large = message(5_000_000)
    first.send(large)
    second.send(b"small")
    steps = 0
    while not ends.received:
        ends.step()
        steps += 1
    assert ends.payloads == [b"small"] and steps <= 4
    ends.run()
    assert ends.payloads == [b"small", large]


def test_what_waits_goes_on_only_with_transfers() -> None:
    ends = Ends()
    link = ends.sender()
    link.send(message(1_000_000))
    ends.client.data_to_send()
    assert ends.client.data_to_send(False) == b""
    assert ends.client.holds_back
    assert len(ends.client.data_to_send()) > LIMIT // 2


@pytest.mark.spec("2.6.14")
def test_a_detach_cuts_short_what_is_half_sent() -> None:
    ends = Ends()
    link = ends.sender()
    delivery = link.send(message(1_000_000))
    waiting = link.send(b"waiting")
    ends.step()
    link.detach(closed=False)
    ends.run()
    assert not ends.received and ends.detached == 1
    assert not ends.client.has_output and link.parked == 0
    assert set(link.unsettled) == {delivery.tag, waiting.tag}


@pytest.mark.spec("2.6.13")
@pytest.mark.parametrize("before", [[], [400_000], [3_000_000]])
def test_what_was_cut_short_is_resumed(before: list[int]) -> None:
    ends = Ends()
    link = ends.sender()
    for size in before:
        link.send(message(size))
        ends.run()
    ends.received.clear()
    payload = b"\x00\x53\x75\xb0" + (1_000_000).to_bytes(4) + message(1_000_000)
    delivery = link.send(payload)
    ends.step()
    link.detach(closed=False)
    ends.run()
    again = ends.session.attach_sender(
        "link", target=Target(address="q"), source=Source(), unsettled=dict(link.unsettled)
    )
    ends.run()
    again.resume(delivery, payload)
    ends.run()
    assert ends.payloads == [payload]


def test_the_end_of_a_session_or_connection_forgets_what_waits() -> None:
    ends = Ends()
    ends.sender().send(message(1_000_000))
    ends.session.end()
    ends.run()
    assert ends.ended == 1 and not ends.received and not ends.client.has_output
    ends = Ends()
    link = ends.sender()
    link.send(message(1_000_000))
    ends.client.close()
    assert not ends.client.holds_back
    ends.run()
    assert ends.closed == 1 and not ends.received
    assert not ends.client.has_output


def test_a_lost_transport_forgets_what_waits() -> None:
    ends = Ends()
    link = ends.sender()
    delivery = link.send(message(1_000_000))
    ends.client.receive_eof(0.0)
    assert not ends.client.holds_back
    assert link.unsettled == {delivery.tag: delivery}


@pytest.mark.spec("2.5.6")
def test_the_window_of_the_session_holds_as_well() -> None:
    ends = Ends(limit=1_000, max_frame_size=512, window=4)
    link = ends.sender()
    payloads = [message(5_000, seed) for seed in range(3)]
    ends.written.clear()
    for payload in payloads:
        link.send(payload)
    ends.run()
    assert ends.payloads == payloads
    assert max(ends.written) <= 1_000 + 512


@pytest.mark.spec("2.6.12")
def test_an_outcome_for_a_delivery_that_is_half_sent() -> None:
    ends = Ends()
    link = ends.sender()
    delivery = link.send(message(1_000_000))
    after = link.send(b"after")
    ends.step()
    [receiver] = (one for one in ends.server.channels.links.values() if not one.is_sender)
    assert receiver.partial is not None  # type: ignore[attr-defined]
    receiver.partial.settle(Accepted())  # type: ignore[attr-defined]
    ends.step()
    assert delivery.remote_settled and isinstance(delivery.remote_state, Accepted)
    delivery.settle()
    ends.run()
    assert ends.payloads[-1] == b"after" and after.sent and delivery.sent


def test_settled_while_it_waits_is_told_afterwards() -> None:
    ends = Ends()
    link = ends.sender(snd_settle_mode=SenderSettleMode.UNSETTLED)
    link.send(message(1_000_000))
    late = link.send(b"late")
    late.settle(Modified(delivery_failed=False, undeliverable_here=False))
    ends.run()
    assert ends.payloads[-1] == b"late"
    assert ends.received[-1].remote_settled
    assert not ends.client.has_output


def test_a_state_that_is_longer_than_our_frames() -> None:
    ends = Ends(max_frame_size=1 << 20)
    link = ends.sender()
    state = TransactionalState(txn_id=bytes(FRAME))
    payload = message(50_000)
    link.send(payload, state=state)
    ends.run()
    assert ends.payloads == [payload]


@given(
    st.binary(max_size=900),
    st.integers(0, 3000),
    st.integers(0, 3000),
    st.sampled_from([512, 600, 4096]),
    st.sampled_from([0, 700, 100_000]),
)
def test_a_head_and_the_rest_of_a_payload_are_one_message(
    head: bytes, size: int, start: int, max_frame_size: int, limit: int
) -> None:
    ends = Ends(limit, max_frame_size)
    link = ends.sender()
    payload = message(size)
    start = min(start, size)
    link.send(payload, head=head, start=start)
    link.send(b"after")
    ends.run()
    assert ends.payloads == [head + payload[start:], b"after"]
