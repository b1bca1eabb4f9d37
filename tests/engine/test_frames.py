"""Frames and what may be wrong with them (AMQP 1.0 §2.3)."""

from __future__ import annotations

import struct

import pytest

from ferrymq.engine.events import BeginReceived, DeliveryReceived, Terminated
from ferrymq.engine.frames import EMPTY_FRAME
from ferrymq.errors import RemoteProtocolError
from ferrymq_types.security import SaslCode, SaslOutcome
from ferrymq_types.transport import Attach, Begin, Close, Disposition, End, Flow, Open, Role
from tests.support.scenes import (
    begin_script,
    open_script,
    peer_attach,
    peer_begin,
    peer_flow,
    receiver_script,
    sender_script,
    transfer,
)
from tests.support.script import AMQP_HEADER, condition, encode, encoded, frame, like, on

FRAMING = condition("amqp:connection:framing-error")


@pytest.fixture
def server(script):
    return open_script(script(max_frame_size=4096))


def closes(play, symbol: str) -> None:
    play << like(Close, error=condition(symbol))
    play >> Close()
    error = play.find(Terminated).error
    assert isinstance(error, RemoteProtocolError)
    assert error.condition == symbol


@pytest.mark.spec("2.3.1")
@pytest.mark.parametrize("size", [*range(8), 4097, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_size(server, size):
    server >> frame(b"\0" * 8, size=size)
    closes(server, "amqp:connection:framing-error")


@pytest.mark.spec("2.3.1")
def test_largest_frame_that_we_take(server):
    session = begin_script(server)
    link = receiver_script(server, session)
    overhead = len(encoded(transfer(0, 0)))
    server >> on(0, transfer(0, 0), b"x" * (4096 - overhead))
    assert len(server.event(DeliveryReceived).delivery.payload) == 4096 - overhead
    assert link.usable
    server >> on(0, transfer(0, 1), b"x" * (4097 - overhead))
    closes(server, "amqp:connection:framing-error")


@pytest.mark.spec("2.3.1")
@pytest.mark.parametrize("doff", [0, 1])
def test_data_offset_below_2(server, doff):
    server >> frame(encode(peer_begin()), doff=doff)
    closes(server, "amqp:connection:framing-error")


@pytest.mark.spec("2.3.1")
@pytest.mark.parametrize("doff", [3, 255])
def test_data_offset_past_the_end(server, doff):
    server >> frame(b"\0\0\0", doff=doff)
    closes(server, "amqp:connection:framing-error")


@pytest.mark.spec("2.3.1")
@pytest.mark.parametrize("words", [1, 2, 253])
def test_extended_header_is_ignored(server, words):
    server >> frame(b"?" * (4 * words) + encode(peer_begin()), doff=2 + words)
    assert not server.event(BeginReceived).session.initiated


@pytest.mark.spec("2.3.1")
def test_data_offset_at_the_end_is_an_empty_frame(server):
    server >> frame(b"????", doff=3)
    assert server.engine.opened and server.events() == []


@pytest.mark.spec("2.3.1")
@pytest.mark.parametrize("kind", [2, 255])
def test_unknown_type(server, kind):
    server >> frame(encode(peer_begin()), type=kind)
    closes(server, "amqp:connection:framing-error")


def test_sasl_frame_in_the_amqp_layer(server):
    server >> SaslOutcome(code=SaslCode.OK)
    closes(server, "amqp:connection:framing-error")


@pytest.mark.spec("2.4.5")
def test_empty_frame_on_any_channel(server):
    server >> EMPTY_FRAME >> frame(b"", channel=2047)
    assert server.engine.opened and server.events() == []


@pytest.mark.spec("2.7.1")
def test_empty_frame_above_the_highest_channel(server):
    server >> frame(b"", channel=2048)
    closes(server, "amqp:connection:framing-error")


@pytest.mark.parametrize(
    "performative",
    [
        peer_begin(),
        peer_attach("a", 0, Role.SENDER),
        peer_flow(),
        Disposition(role=Role.RECEIVER, first=0),
        End(),
        Close(),
    ],
    ids=lambda p: type(p).__name__.lower(),
)
@pytest.mark.spec("2.3.2")
def test_junk_after_the_performative(server, performative):
    if not isinstance(performative, Begin | Close):
        begin_script(server)
    server >> frame(encode(performative) + b"\x40")
    closes(server, "amqp:connection:framing-error")


@pytest.mark.spec("2.3.2")
@pytest.mark.parametrize(
    "body",
    [
        b"\x00",
        b"\x40",
        b"\xc0\x01\x00",
        b"\x00\x53\x99\x45",
        b"\x00\x53\x24\x45",
        b"\x00\x53\x11",
        b"\x00\x53\x11\x45",
        b"\x00\x53\x11\xc0\x05\x04\x40\x40\x40\x40",
        b"\x00\x53\x11\xd0\xff\xff\xff\xff\x00\x00\x00\x04",
        b"\x00\xa3\x04nope\x45",
        b"\x00\x80\xff\xff\xff\xff\xff\xff\xff\xff\x45",
    ],
    ids=lambda b: b.hex(),
)
def test_body_that_cannot_be_decoded(server, body):
    server >> frame(body)
    closes(server, "amqp:decode-error")


def test_a_frame_that_only_a_message_may_hold_names_the_field(server):
    begin = encode(peer_begin())
    server >> frame(begin.replace(b"\x52\x64", b"\x41\x64", 1)[: len(begin)])
    (close,) = server.take()
    assert close.body.error.condition == "amqp:decode-error"
    assert "begin." in close.body.error.description
    server >> Close()


@pytest.mark.spec("2.3.2")
@pytest.mark.parametrize(
    "performative",
    [peer_attach("a", 0, Role.SENDER), peer_flow(), transfer(0, 0),
     Disposition(role=Role.RECEIVER, first=0), End()],
    ids=lambda p: type(p).__name__.lower(),
)  # fmt: skip
def test_channel_without_a_session(server, performative):
    server >> on(5, performative)
    closes(server, "amqp:connection:framing-error")


@pytest.mark.spec("2.4.1")
@pytest.mark.parametrize(
    "performative",
    [peer_begin(), peer_attach("a", 0, Role.SENDER), peer_flow(), transfer(0, 0),
     Disposition(role=Role.RECEIVER, first=0), End()],
    ids=lambda p: type(p).__name__.lower(),
)  # fmt: skip
def test_frame_before_the_open(script, performative):
    play = script()
    play >> AMQP_HEADER << AMQP_HEADER
    play >> on(0, performative, b"payload" if performative == transfer(0, 0) else None)
    play << Open << like(Close, error=condition("amqp:illegal-state"))


@pytest.mark.spec("2.4.1")
def test_frame_before_the_open_that_is_too_large_for_a_stranger(script):
    play = script(max_frame_size=1 << 20)
    play >> AMQP_HEADER << AMQP_HEADER
    play >> frame(b"\0" * 16, size=8193)
    play << Open << like(Close, error=FRAMING)


def test_nothing_is_trusted_after_a_frame_that_is_none(server):
    server >> frame(b"\0" * 8, size=3) + encoded(peer_begin())
    server << like(Close, error=FRAMING)
    assert server.events() == []


# -- descriptors ------------------------------------------------------------------


def symbolic(performative) -> bytes:
    """The performative with the symbol for a descriptor instead of the number."""
    name = f"amqp:{type(performative).__name__.lower()}:list".encode()
    body = encode(performative)
    assert body[:2] == b"\x00\x53"
    return b"\x00\xa3" + bytes([len(name)]) + name + body[3:]


def wide(performative) -> bytes:
    """The performative with an 8-byte ulong for a descriptor."""
    body = encode(performative)
    return b"\x00\x80" + struct.pack(">Q", body[2]) + body[3:]


@pytest.mark.spec("1.2.1")
@pytest.mark.parametrize("form", [symbolic, wide])
def test_every_form_of_descriptor(script, form):
    play = script()
    play >> AMQP_HEADER << AMQP_HEADER
    play >> frame(form(Open(container_id="peer")))
    play.engine.open()
    play << Open
    play.events()
    play >> frame(form(peer_begin()))
    session = play.event(BeginReceived).session
    session.accept()
    play << Begin
    receiver = receiver_script(play, session)
    play >> frame(form(transfer(0, 0)) + b"payload")
    assert play.event(DeliveryReceived).delivery.payload == b"payload"
    sender = sender_script(play, session, "out", credit=0)
    play >> frame(form(peer_flow(handle=1, delivery_count=0, link_credit=2, echo=True)))
    play << like(Flow, handle=sender.handle, link_credit=2)
    delivery = sender.send(b"one")
    play.take()
    play >> frame(form(Disposition(role=Role.RECEIVER, first=0, settled=True)))
    assert delivery.remote_settled
    assert receiver.usable
    play >> frame(form(peer_attach("third", 2, Role.SENDER)))
    play >> frame(form(End())) >> frame(form(Close()))
    assert "CloseReceived" in play.names()


# -- the cuts of the transport ------------------------------------------------------


def test_single_bytes(script):
    play = script()
    for byte in AMQP_HEADER + encoded(Open(container_id="peer")):
        play.engine.receive_data(bytes([byte]), play.now)
    play.engine.open()
    play << AMQP_HEADER << Open
    play.events()
    session = begin_script(play)
    receiver_script(play, session)
    data = encoded(on(0, transfer(0, 0), b"payload")) + EMPTY_FRAME
    for byte in data + encoded(on(0, transfer(0, 1), b"more")):
        play.engine.receive_data(bytes([byte]), play.now)
    assert play.find(DeliveryReceived).delivery.payload == b"payload"
    assert play.find(DeliveryReceived).delivery.payload == b"more"


@pytest.mark.parametrize("cut", range(1, 60))
def test_two_pieces(server, cut):
    session = begin_script(server)
    receiver_script(server, session)
    data = b"".join(encoded(on(0, transfer(0, i), b"payload %d" % i)) for i in range(2))
    server >> data[:cut] >> data[cut:]
    got = [e.delivery.payload for e in server.events() if isinstance(e, DeliveryReceived)]
    assert got == [b"payload 0", b"payload 1"]


@pytest.mark.parametrize("left", [1000, 59_995])
def test_the_next_read_should_end_with_a_frame(script, left):
    play = open_script(script(max_frame_size=65_536))
    session = begin_script(play)
    receiver_script(play, session)
    most = 262_144
    frames = [encoded(on(0, transfer(0, i + 1), b"x" * 60_000)) for i in range(8)]
    size = len(frames[0])
    data = b"".join(frames)
    assert play.engine.read_size(most) == most
    play >> data[: size - left]
    read = play.engine.read_size(most)
    assert read == left + (most - left) // size * size
    play >> data[size - left : size - left + read]
    assert play.engine.read_size(most) == most // size * size
    # A frame that does not fit into a read, and frames that are short.
    assert play.engine.read_size(50_000) == 50_000
    play >> encoded(on(0, transfer(0, 9), b"short"))
    assert play.engine.read_size(most) == most


def test_the_next_read_before_the_header_of_a_frame_is_complete(script):
    play = open_script(script(max_frame_size=65_536))
    session = begin_script(play)
    receiver_script(play, session)
    data = encoded(on(0, transfer(0, 0), b"x" * 60_000))
    play >> data + data[:5]
    assert play.engine.read_size(len(data) * 2) == 2 * len(data) - 5


@pytest.mark.spec("2.7.1")
def test_frames_we_send_are_never_larger_than_the_peer_takes(script):
    play = open_script(script(), max_frame_size=512)
    session = begin_script(play)
    link = sender_script(play, session)
    link.send(b"x" * 5000, tag=b"t" * 32)
    data = play.engine.data_to_send()
    got = b""
    sizes = []
    while data:
        size = struct.unpack(">I", data[:4])[0]
        sizes.append(size)
        got += data[:size]
        data = data[size:]
    assert max(sizes) == 512 and len(sizes) > 10


def test_attach_of_the_peer_still_works_after_these(server):
    session = begin_script(server)
    server >> peer_attach("a", 0, Role.SENDER)
    assert list(session.links) == [("a", False)]
    next(iter(session.links.values())).accept()
    server << Attach
