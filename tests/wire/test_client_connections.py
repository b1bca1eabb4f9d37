"""Headers, open, close and sessions as a peer of the running client sees them (AMQP 1.0 §2.2 to
§2.5)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import ferrymq
from ferrymq import Message
from tests.raw.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    attach_frame,
    begin_frame,
    close_frame,
    disposition_frame,
    end_frame,
    flow_frame,
    frame,
    open_frame,
    sasl_frame,
    transfer_frame,
)
from tests.raw.server import ServedPeer, Server
from tests.raw.values import TRUE, array, binary, composite, string, symbol, ubyte, uint, ushort
from tests.wire.control import ACCEPTED

PATIENCE = 20
FRAMING = "amqp:connection:framing-error"
EMPTY = frame(b"")


async def receiving(script: Callable[[Server], None]) -> ferrymq.AmqpError:
    """Wait for a message that never comes; how the connection ended instead."""
    with Server(script) as server, pytest.raises(ferrymq.AmqpError) as ended:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q")
            await receiver.receive(timeout=PATIENCE)
    return ended.value


def closes(peer: ServedPeer, condition: str) -> None:
    """Expect a close that says why, on channel 0, and no byte behind it."""
    closed = peer.expect("close", "empty", "attach", "flow", "detach", "end")
    assert closed.channel == 0
    error = closed.error()
    assert error is not None and error[0] == condition and error[1]


@pytest.mark.spec("2.2")
async def test_the_header_comes_at_once_and_the_open_is_the_first_frame() -> None:
    def script(server: Server) -> None:
        with server.accept() as peer:
            # Nothing was sent to the client yet.
            assert peer.take(8) == SASL_HEADER
            mechanisms = array(b"\xa3", 1, b"\x09ANONYMOUS")
            peer.send(SASL_HEADER, sasl_frame(SASL_MECHANISMS, mechanisms))
            chosen = peer.expect("sasl-init")
            assert chosen.field(0) == "ANONYMOUS"
            peer.send(sasl_frame(SASL_OUTCOME, ubyte(0)))
            # Headers again, for the layer that follows.
            assert peer.take(8) == AMQP_HEADER
            peer.send(AMQP_HEADER)
            assert peer.expect("open").channel == 0
            peer.send(open_frame(string("server")))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url):
            pass


@pytest.mark.spec("2.2")
@pytest.mark.parametrize("header", [b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"HTTP/1.1"])
async def test_the_client_ends_its_stream_when_the_headers_differ(header: bytes) -> None:
    def script(server: Server) -> None:
        with server.accept() as peer:
            peer.take(8)
            peer.send(header)
            assert peer.take(1) == b""

    with Server(script) as server, pytest.raises(ferrymq.AmqpError):
        async with ferrymq.connect(server.url):
            pass


MALFORMED = {
    "size-0": b"\x00\x00\x00\x00\x02\x00\x00\x00",
    "size-7": b"\x00\x00\x00\x07\x02\x00\x00\x00",
    "doff-1": b"\x00\x00\x00\x08\x01\x00\x00\x00",
    "doff-past-the-end": b"\x00\x00\x00\x08\x03\x00\x00\x00",
    "type-9": b"\x00\x00\x00\x08\x02\x09\x00\x00",
    "sasl": sasl_frame(SASL_OUTCOME, ubyte(0)),
    "too-large": b"\x7f\xff\xff\xff\x02\x00\x00\x00",
    "channel-beyond-the-maximum": frame(b"", 65_535),
}


@pytest.mark.spec("2.3.1")
@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED)
async def test_what_is_no_frame_ends_the_connection(malformed: bytes) -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            peer.send(malformed)
            closes(peer, FRAMING)
            # What comes behind it has no answer.
            peer.send(EMPTY, close_frame())
            assert peer.take(1) == b""

    assert FRAMING in str(await receiving(script))


WRONG = {
    "no-performative": (frame(composite(0x99, [])), "amqp:decode-error"),
    "a-string": (frame(string("open")), "amqp:decode-error"),
    "no-name": (frame(composite(0x12, [])), "amqp:decode-error"),
    "role-is-no-boolean": (
        frame(composite(0x12, [string("n"), uint(3), uint(1)])),
        "amqp:decode-error",
    ),
    "settle-mode-9": (
        attach_frame("x", 3, snd_settle_mode=ubyte(9)),
        "amqp:decode-error",
    ),
    "second-open": (open_frame(), "amqp:illegal-state"),
    "handle-2^32-1": (attach_frame("x", 0xFFFFFFFF), FRAMING),
}


@pytest.mark.spec("2.3.2")
@pytest.mark.parametrize(("said", "condition"), WRONG.values(), ids=WRONG)
async def test_what_is_no_performative_or_out_of_place_ends_the_connection(
    said: bytes, condition: str
) -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            peer.send(said)
            closes(peer, condition)
            peer.send(close_frame())

    await receiving(script)


@pytest.mark.spec("2.4.3")
@pytest.mark.parametrize("channel", [0, 1])
async def test_a_close_is_answered_on_channel_0_and_nothing_follows(channel: int) -> None:
    error = composite(0x1D, [symbol("com.example:tired"), string("enough")])

    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            peer.send(frame(composite(0x18, [error]), channel))
            assert peer.expect("close", "flow", "empty").channel == 0
            assert peer.take(1) == b""

    # A condition that nobody knows is told as it is.
    assert "com.example:tired" in str(await receiving(script))


@pytest.mark.spec("2.4.3")
async def test_the_client_closes_and_reads_on_to_the_answer() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            asked = peer.attached()
            assert asked.channel == 0
            closed = peer.expect("close", "flow", "empty", "detach", "end")
            assert closed.channel == 0
            # These were on their way.
            peer.send(EMPTY, flow_frame(), begin_frame(3), close_frame())
            assert peer.take(1) == b""

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            await connection.receiver("q")


@pytest.mark.spec("2.3.2")
async def test_extended_headers_and_empty_frames_are_skipped() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            peer.expect("flow", "empty")
            body = transfer_frame(b"\x00\x53\x75\xa0\x01x", 0, uint(0), binary(b"t"), settled=TRUE)[
                8:
            ]
            peer.send(EMPTY, frame(b"", 1), frame(b"", 7))
            peer.send(frame(b"", doff=7, size=28 + len(body))[:8] + b"\xff" * 20 + body)
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q")
            assert (await receiver.receive(timeout=PATIENCE)).message.body == b"x"


@pytest.mark.spec("2.4.5")
async def test_an_idle_server_is_sent_empty_frames_on_channel_0() -> None:
    def script(server: Server) -> None:
        with server.accept().begin(open_frame(string("s"), idle_time_out=uint(1000))) as peer:
            peer.attached()
            peer.expect("flow")
            assert peer.expect("empty").channel == 0
            peer.send(close_frame())
            peer.expect("close", "empty")

    await receiving(script)


@pytest.mark.spec("2.7.1")
@pytest.mark.parametrize(
    "opening",
    [
        open_frame(string("s"), idle_time_out=uint(1)),
        open_frame(string("s"), max_frame_size=511),
    ],
    ids=["idle-time-out-1", "max-frame-size-511"],
)
async def test_an_open_that_cannot_be_kept_is_refused(opening: bytes) -> None:
    def script(server: Server) -> None:
        with server.accept().open(opening) as peer:
            closed = peer.expect("close", "begin", "empty")
            error = closed.error()
            assert error is not None and error[0] and error[1]
            peer.send(close_frame())

    await receiving(script)


@pytest.mark.spec("2.7.1")
async def test_an_idle_time_out_of_zero_is_none_and_frames_have_the_size_the_server_takes() -> None:
    def script(server: Server) -> None:
        opening = open_frame(string("s"), idle_time_out=uint(0), max_frame_size=512)
        with server.accept().begin(opening) as peer:
            peer.attached()
            frames = [peer.expect("transfer", "flow")]
            while frames[-1].field(5) is True:
                frames.append(peer.expect("transfer"))
            first, *later = frames
            assert len(frames) > 19 and all(len(one.payload) <= 504 for one in frames)
            assert isinstance(first.field(1), int) and isinstance(first.field(2), bytes)
            assert first.field(3) == 0
            assert all(one.field(1) in (None, first.field(1)) for one in later)
            peer.send(disposition_frame(0, settled=TRUE, state=ACCEPTED))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("q")
            await sender.send(Message(bytes(10_000)), timeout=PATIENCE)


@pytest.mark.spec("2.5.1")
async def test_sessions_take_the_lowest_free_channel_and_no_remote_channel() -> None:
    def script(server: Server) -> None:
        with server.accept().open() as peer:
            for channel in (0, 1):
                asked = peer.expect("begin", "empty")
                assert (asked.channel, asked.field(0)) == (channel, None)
                # The server's numbers are its own.
                peer.send(begin_frame(5 + channel, remote_channel=ushort(channel)))
            assert peer.expect("end", "empty").channel == 0
            peer.send(end_frame(5))
            asked = peer.expect("begin", "empty")
            assert (asked.channel, asked.field(0)) == (0, None)
            peer.send(begin_frame(5, remote_channel=ushort(0)))
            while (said := peer.read()) is not None and said.name != "close":
                pass
            peer.send(close_frame())

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            first = await connection.session()
            await connection.session()
            await first.close()
            await connection.session()


BAD_FOR_SESSION = {
    "flow-for-no-handle": (flow_frame(uint(99)), "amqp:session:unattached-handle"),
    "transfer-for-no-handle": (
        transfer_frame(b"x", 99, uint(0), binary(b"t")),
        "amqp:session:unattached-handle",
    ),
    "handle-in-use": (attach_frame("other", 0), "amqp:session:handle-in-use"),
    "no-delivery-id": (transfer_frame(b"x", 0, tag=binary(b"t")), "amqp:invalid-field"),
    "no-tag": (transfer_frame(b"x", 0, uint(0)), "amqp:invalid-field"),
    "tag-of-33-bytes": (
        transfer_frame(b"x", 0, uint(0), binary(bytes(33))),
        "amqp:invalid-field",
    ),
    "another-id-inside": (
        transfer_frame(b"x", 0, uint(0), binary(b"t"), more=TRUE)
        + transfer_frame(b"x", 0, uint(1)),
        "amqp:invalid-field",
    ),
    "another-tag-inside": (
        transfer_frame(b"x", 0, uint(0), binary(b"t"), more=TRUE)
        + transfer_frame(b"x", 0, tag=binary(b"u")),
        "amqp:invalid-field",
    ),
    "another-format-inside": (
        transfer_frame(b"x", 0, uint(0), binary(b"t"), more=TRUE)
        + transfer_frame(b"x", 0, message_format=uint(1)),
        "amqp:invalid-field",
    ),
}


@pytest.mark.spec("2.5.4")
@pytest.mark.parametrize(("said", "condition"), BAD_FOR_SESSION.values(), ids=BAD_FOR_SESSION)
async def test_a_mistake_inside_a_session_ends_it_with_an_error(
    said: bytes, condition: str
) -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            peer.expect("flow", "empty")
            peer.send(said)
            error = peer.expect("end", "empty").error()
            assert error is not None and error[0] == condition and error[1]
            # Until the end is answered, what comes vanishes.
            peer.send(flow_frame(uint(99)), end_frame())
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q")
            with pytest.raises(ferrymq.AmqpError):
                await receiver.receive(timeout=PATIENCE)


def compute(seconds: float) -> None:
    """Let the event loop stand still, as a program does that computes something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


@pytest.mark.spec("2.4.5")
async def test_a_client_that_was_busy_too_long_says_so() -> None:
    def script(server: Server) -> None:
        opening = open_frame(string("server"), idle_time_out=uint(400))
        with server.accept().begin(opening) as peer:
            peer.attached()
            error = peer.expect("close", "attach", "flow", "empty").error()
            assert error is not None and error[0] == "amqp:resource-limit-exceeded"
            assert "busy" in error[1]
            peer.send(close_frame())

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            await connection.sender("q")
            compute(1.0)
            with pytest.raises(ferrymq.AmqpError, match="busy"):
                await connection.sender("other")
