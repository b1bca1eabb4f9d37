"""Transfers of the usual shape, a whole message in one frame, which have code of their own in both
directions: nothing may differ from other transfers (AMQP 1.0 §2.7.5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.engine import IncomingDelivery, OutgoingDelivery
from ferrymq.engine.events import DeliveryReceived, DrainCompleted, LinkFailed, OutcomeReceived
from ferrymq.engine.plain_transfer import PlainTransfer
from ferrymq.errors import DecodeError, RemoteProtocolError
from ferrymq_codec.reader import Reader
from ferrymq_types.messaging import Accepted
from ferrymq_types.transport import (
    Detach,
    Disposition,
    End,
    Flow,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Transfer,
    decode_transfer,
)
from tests.support.scenes import (
    MAX32,
    begin_script,
    open_script,
    peer_flow,
    receiver_script,
    sender_script,
)
from tests.support.script import Script, condition, encode, encoded, like, on

PAYLOAD = b"a message of some bytes"


def plain(number: int, **fields: object) -> object:
    """A transfer of the usual shape on handle 0, with its payload."""
    given: dict[str, object] = {
        "handle": 0,
        "delivery_id": number,
        "delivery_tag": number.to_bytes(4, "big"),
        "message_format": 0,
        "settled": False,
        **fields,
    }
    return on(0, Transfer(**given), PAYLOAD)  # type: ignore[arg-type]


# -- reading -------------------------------------------------------------------------


def same_as_decoded(data: bytes) -> bool:
    """Whether the transfer is read as a plain one; if so, what is read must be what the decoder
    reads."""
    read = PlainTransfer()
    begin = read.read(data, 3, len(data))
    if begin < 0:
        return False
    reader = Reader(data, 3, len(data))
    whole = decode_transfer(reader)
    assert reader.pos == begin
    assert whole.handle == read.handle
    assert whole.delivery_id == read.delivery_id
    tag = read.number.to_bytes(4, "big") if read.tag is None else read.tag
    assert whole.delivery_tag == tag
    assert (whole.message_format or 0) == 0
    assert (whole.settled is True) == read.settled
    assert not whole.more and not whole.resume and not whole.aborted
    assert whole.state is None and whole.rcv_settle_mode is None
    return True


_IDS = st.sampled_from([0, 1, 255, 256, 0x7FFFFFFF, 0x80000000, MAX32]) | st.integers(0, MAX32)


@given(
    handle=st.sampled_from([0, 1, 255, 256, MAX32]),
    delivery_id=st.none() | _IDS,
    delivery_tag=st.none() | st.binary(max_size=40) | st.binary(min_size=4, max_size=4),
    message_format=st.sampled_from([None, 0, 1]),
    settled=st.sampled_from([None, False, True]),
    more=st.booleans(),
    rcv_settle_mode=st.none() | st.sampled_from(ReceiverSettleMode),
    state=st.sampled_from([None, Accepted()]),
    resume=st.booleans(),
    aborted=st.booleans(),
    batchable=st.booleans(),
)
def test_what_is_read_is_what_the_decoder_reads(**fields):
    same_as_decoded(encode(Transfer(**fields)) + PAYLOAD)


@pytest.mark.parametrize("number", [0, 1, 300, MAX32])
def test_bytes_that_differ_from_a_transfer(number):
    data = encoded(plain(number))[8:]
    assert same_as_decoded(data)
    for at in range(3, len(data) - len(PAYLOAD)):
        for value in range(256):
            changed = data[:at] + bytes([value]) + data[at + 1 :]
            try:
                same_as_decoded(changed)
            except DecodeError as error:
                raise AssertionError(f"byte {at} = {value}: taken, but {error}") from None


def test_a_transfer_that_is_cut_off():
    data = encoded(plain(300))[8:]
    for size in range(3, len(data)):
        same_as_decoded(data[:size])


@pytest.mark.parametrize("fields", [5, 6, 7, 10])
def test_trailing_nulls_are_left_out(fields):
    content = encoded(plain(300))[8 + 6 :][: 2 + 5 + 6 + 8 - 1 - (11 - fields)]
    data = b"\0\x53\x14\xc0" + bytes([len(content) + 1, fields]) + content + PAYLOAD
    assert same_as_decoded(data)


# -- receiving -----------------------------------------------------------------------


@pytest.fixture
def play(script) -> Script:
    """A server."""
    return open_script(script())


def received(play: Script, count: int = 1) -> list[IncomingDelivery]:
    return [play.event(DeliveryReceived).delivery for _ in range(count)]


def test_deliveries_have_all_of_their_fields(play):
    link = receiver_script(play, begin_script(play), credit=10)
    play.send(plain(7), plain(8), plain(9, settled=True), plain(10, delivery_tag=b"other tag"))
    deliveries = received(play, 4)
    tags = [(7).to_bytes(4, "big"), (8).to_bytes(4, "big"), (9).to_bytes(4, "big"), b"other tag"]
    assert [d.tag for d in deliveries] == tags
    assert [d.id for d in deliveries] == [7, 8, 9, 10]
    assert [d.remote_settled for d in deliveries] == [False, False, True, False]
    assert {d.payload for d in deliveries} == {PAYLOAD}
    assert all(d.complete and d.link is link for d in deliveries)
    assert (link.credit, link.delivery_count) == (6, 4)
    for delivery in deliveries:
        delivery.settle(Accepted())
    play << like(Disposition, first=7, last=8, settled=True)
    play << like(Disposition, first=10, settled=True)


@pytest.mark.spec("2.6.12")
def test_a_tag_is_in_use(play):
    receiver_script(play, begin_script(play))
    play.send(plain(1), plain(2), plain(3, delivery_tag=(1).to_bytes(4, "big")))
    play << like(Detach, error=condition("amqp:not-allowed"))
    received(play, 2)


@pytest.mark.spec("2.6.12")
def test_a_delivery_id_is_in_use(play):
    receiver_script(play, begin_script(play))
    play.send(plain(1), plain(2), plain(1, delivery_tag=b"\0\0\0\x09"))
    play << like(End, error=condition("amqp:invalid-field"))
    received(play, 2)


@pytest.mark.spec("2.6.7")
def test_more_than_the_credit(play):
    receiver_script(play, begin_script(play), credit=2)
    play.send(plain(0), plain(1), plain(2))
    play << like(Detach, error=condition("amqp:link:transfer-limit-exceeded"))
    received(play, 2)
    play.event(LinkFailed)


@pytest.mark.spec("2.5.6")
def test_more_than_the_window(script):
    play = open_script(script(incoming_window=2))
    receiver_script(play, begin_script(play))
    play.send(plain(0), plain(1), plain(2))
    play << like(End, error=condition("amqp:session:window-violation"))


@pytest.mark.spec("2.7.3")
def test_larger_than_the_link_takes(play):
    receiver_script(play, begin_script(play), max_message_size=len(PAYLOAD))
    play.send(plain(0), plain(1), on(0, plain(2).body, PAYLOAD + b"!"))  # type: ignore[attr-defined]
    play << like(Detach, error=condition("amqp:link:message-size-exceeded"))
    received(play, 2)


@pytest.mark.spec("2.7.3")
@pytest.mark.parametrize("mode", [SenderSettleMode.SETTLED, SenderSettleMode.UNSETTLED])
def test_settled_against_the_mode_of_the_link(play, mode):
    settled = mode is SenderSettleMode.SETTLED
    receiver_script(play, begin_script(play), snd=mode)
    play.send(plain(0, settled=settled), plain(1, settled=not settled))
    play << like(Detach, error=condition("amqp:not-allowed"))
    received(play)


@pytest.mark.spec("2.6.7")
def test_the_last_credit_ends_a_drain(play):
    link = receiver_script(play, begin_script(play), credit=2)
    link.drain_credit()
    play << like(Flow, drain=True)
    play.send(plain(0), plain(1))
    received(play, 2)
    assert play.event(DrainCompleted).link is link


def test_inside_another_delivery(play):
    receiver_script(play, begin_script(play))
    play.send(plain(0), plain(1, more=True), plain(2))
    play << like(End, error=condition("amqp:invalid-field"))


def test_after_the_link_was_detached(play):
    link = receiver_script(play, begin_script(play))
    play >> plain(0)
    received(play)
    link.detach(closed=False)
    play << Detach
    play >> plain(1)
    assert not play.events()


# -- sending -------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1, 255, 256, 0x7FFFFFFF, 0x80000000, MAX32])
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(("head", "start"), [(b"", 0), (b"another head", 0), (b"", 2), (b"an", 1)])
def test_frames_that_are_sent(play, first, settled, head, start):
    session = begin_script(play)
    link = sender_script(play, session, credit=10)
    session.outgoing.next_delivery_id = first
    link.number_tags_from(first)
    sent = [link.send(PAYLOAD, settled=settled, head=head, start=start) for _ in range(2)]
    output = play.engine.data_to_send()
    expected = b""
    for at, delivery in enumerate(sent):
        number = first + 1 + at
        tag = number.to_bytes(4 if number <= MAX32 else 8, "big")
        assert delivery.tag == tag
        assert delivery.id == (first + at) & MAX32
        transfer = Transfer(
            handle=link.handle,
            delivery_id=delivery.id,
            delivery_tag=tag,
            message_format=0,
            settled=settled,
        )
        expected += encoded(on(session.channel, transfer, head + PAYLOAD[start:]))
    assert output == expected


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 16, 32])
@pytest.mark.parametrize("first", [1, 1000])
def test_tags_that_are_given(play, first, size):
    session = begin_script(play)
    link = sender_script(play, session, credit=10)
    session.outgoing.next_delivery_id = first
    delivery = link.send(PAYLOAD, tag=bytes(range(size)), head=b"head", start=3)
    transfer = Transfer(
        handle=link.handle,
        delivery_id=first,
        delivery_tag=bytes(range(size)),
        message_format=0,
        settled=False,
    )
    frame = encoded(on(session.channel, transfer, b"head" + PAYLOAD[3:]))
    assert play.engine.data_to_send() == frame
    assert session.outgoing.find(link, delivery.tag) is delivery


def test_frames_of_many_links(play):
    session = begin_script(play)
    for handle in (*range(3), 255, 256):
        link = sender_script(play, session, f"link {handle}", credit=1)
        link.handle = handle
        link.send(PAYLOAD)
        (frame,) = play.take()
        assert (frame.body.handle, frame.payload) == (handle, PAYLOAD)  # type: ignore[union-attr]


@pytest.mark.spec("2.7.1")
@pytest.mark.parametrize(("head", "start"), [(b"", 0), (bytes(100), 0), (bytes(50), 100)])
def test_messages_up_to_the_frame_size_of_the_peer(script, head, start):
    play = open_script(script(), max_frame_size=512)
    session = begin_script(play)
    link = sender_script(play, session, credit=2000)
    session.outgoing.next_delivery_id = 1000
    for size in range(400, 600):
        payload = bytes(size)
        link.send(payload, head=head, start=start)
        output = play.engine.data_to_send()
        again = b""
        while output:
            end = int.from_bytes(output[:4], "big")
            assert end <= 512
            reader = Reader(output, 11, end)
            decode_transfer(reader)
            again += output[reader.pos : end]
            output = output[end:]
        assert again == head + payload[start:]
        play >> on(0, peer_flow(incoming_window=100, next_incoming_id=session.outgoing.next_id))


# -- events --------------------------------------------------------------------------


def test_bare_events_are_the_deliveries(play):
    session = begin_script(play)
    receiver_script(play, session)
    link = sender_script(play, session, "back", credit=5)
    sent = link.send(PAYLOAD)
    play << Transfer
    outcome = Disposition(role=Role.RECEIVER, first=sent.id, settled=True, state=Accepted())
    play.send(plain(0), plain(1), outcome, plain(1))
    play << End
    one, two, three, *rest = play.engine.take_bare_events()
    assert isinstance(one, IncomingDelivery) and one.id == 0
    assert isinstance(two, IncomingDelivery) and two.id == 1
    assert isinstance(three, OutgoingDelivery) and three is sent
    assert [type(event).__name__ for event in rest] == ["SessionTerminated"]
    assert not play.engine.take_events()


def test_events_of_the_same_deliveries(play):
    session = begin_script(play)
    receiver = receiver_script(play, session)
    link = sender_script(play, session, "back", credit=5)
    sent = link.send(PAYLOAD)
    play << Transfer
    play.send(
        plain(0), Disposition(role=Role.RECEIVER, first=sent.id, settled=True, state=Accepted())
    )
    event = play.event(DeliveryReceived)
    assert event.link is receiver and event.delivery.payload == PAYLOAD
    assert play.event(OutcomeReceived).delivery is sent


def test_a_wrong_frame_says_the_same_after_plain_ones(play):
    receiver_script(play, begin_script(play))
    play.send(plain(0), plain(1, delivery_tag=None))
    play << like(End, error=condition("amqp:invalid-field"))
    received(play)
    error = play.events()[-1].error  # type: ignore[attr-defined]
    assert isinstance(error, RemoteProtocolError) and "delivery-tag" in str(error)
