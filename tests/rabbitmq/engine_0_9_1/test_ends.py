"""The end of channels and connections, by either side, by faults and by time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_rabbitmq.amqp_0_9_1.engine.engine_events import ClosedByPeer, ConnectionEnded
from ferrymq_types_0_9_1.basic import BasicQos
from ferrymq_types_0_9_1.channel import ChannelClose, ChannelCloseOk, ChannelOpen
from ferrymq_types_0_9_1.connection import ConnectionClose, ConnectionCloseOk
from tests.rabbitmq.engine_0_9_1.client import (
    HEARTBEAT,
    EngineClient,
    frame,
    pipelined,
    publication,
)


def test_a_channel_may_be_closed_and_opened_again_in_one_read() -> None:
    client = EngineClient().opened()
    client.give(publication(1, b"1") + frame(1, ChannelClose()) + frame(1, ChannelOpen()))
    assert client.names() == ["ContentReceived", "ChannelClosed", "ChannelOpened"]
    assert client.written() == ["channel.close-ok", "channel.open-ok"]


def test_the_answer_to_an_event_comes_before_what_follows_it() -> None:
    """The user closes a channel for its first message: the client has sent more already."""
    client = EngineClient().opened()
    frames = publication(1, b"bad") + publication(1, b"good")
    frames += frame(1, ChannelClose()) + frame(1, ChannelOpen()) + publication(1, b"new")
    client.engine.receive_data(frames, 0.0)
    first = client.engine.take_events()
    assert [type(event).__name__ for event in first] == ["ContentReceived"] * 2
    client.engine.close_channel(1, 404, "no", None)
    client.take()
    # The client's close has crossed ours, so its channel.open is discarded with the rest.
    assert client.names() == ["ChannelClosed"]
    assert client.written() == ["channel.close", "channel.close-ok"]
    client.give(frame(1, ChannelCloseOk()) + frame(1, ChannelOpen()))
    assert client.names() == ["ChannelClosed", "ChannelOpened"]


def test_the_client_closes_the_connection() -> None:
    client = EngineClient().opened()
    client.give(publication(1, b"1") + frame(0, ConnectionClose(reply_code=200, reply_text="bye")))
    assert client.names() == ["ContentReceived", "ClosedByPeer", "ConnectionEnded"]
    closed, ended = client.events[1:]
    assert isinstance(closed, ClosedByPeer) and (closed.code, closed.text) == (200, "bye")
    assert isinstance(ended, ConnectionEnded) and ended.reason == ""
    assert client.written() == ["connection.close-ok"] and client.engine.finished


def test_both_sides_close_at_once() -> None:
    client = EngineClient().opened()
    client.engine.close(320, "going")
    client.take()
    assert client.written() == ["connection.close"] and not client.engine.finished
    client.give(publication(1, b"1") + frame(0, ConnectionClose(reply_code=200)))
    assert client.written() == ["connection.close-ok"] and client.engine.finished
    assert client.names() == ["ConnectionEnded"]


def test_the_end_is_told_once() -> None:
    client = EngineClient().opened()
    client.engine.close(320, "going")
    client.engine.receive_eof(1.0)
    assert client.take().names() == ["ConnectionEnded"] and client.engine.finished


def test_an_answer_to_a_close_that_does_not_come() -> None:
    client = EngineClient().opened()
    # The client was silent for a while; its time to answer begins now.
    client.engine.note_input(60.0)
    client.engine.close(320, "going")
    assert client.engine.next_deadline() == 65.0
    client.engine.handle_timeout(65.0)
    assert client.engine.finished


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (frame(1, ChannelOpen()), 504),
        (frame(2, BasicQos()), 504),
        (frame(11, ChannelOpen()), 530),
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x0a\xcf", 501),
        (b"\x07\x00\x01\x00\x00\x00\x00\xce", 501),
        (b"\x01\x00\x01\x00\x00\x20\x01", 501),
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x63\x00\x0a\xce", 503),
        (b"\x01\x00\x01\x00\x00\x00\x05\x00\x3c\x00\x0a\x00\xce", 502),
        (b"\x08\x00\x01\x00\x00\x00\x00\xce", 503),
        (frame(1, ConnectionCloseOk()), 503),
    ],
)
def test_faults_end_the_connection_with_their_codes(frames: bytes, code: int) -> None:
    client = EngineClient().opened().give(frames)
    close = client.methods()[-1][1]
    assert isinstance(close, ConnectionClose) and close.reply_code == code
    assert client.names() == ["ConnectionEnded"]


def test_heartbeats_are_written_when_nothing_else_was_for_half_the_time() -> None:
    client = EngineClient().opened(heartbeat=10)
    assert client.engine.next_deadline() == 2.5
    client.engine.handle_timeout(2.5)
    # The answers of the handshake were written meanwhile.
    assert client.take().output == b""
    for beat in (5.0, 10.0, 15.0):
        client.engine.handle_timeout(beat)
        assert client.take().output == HEARTBEAT
        client.engine.handle_timeout(beat + 2.5)
        assert client.take().output == HEARTBEAT
        client.forget()


def test_a_client_that_is_silent_for_two_heartbeats_is_gone() -> None:
    client = EngineClient().opened(heartbeat=10)
    client.now = 15.0
    client.give(HEARTBEAT)
    client.engine.handle_timeout(34.0)
    assert client.take().names() == []
    client.engine.handle_timeout(35.0)
    (ended,) = client.take().events
    assert isinstance(ended, ConnectionEnded) and "nothing for 20 s" in ended.reason


def test_a_server_that_does_not_read_expects_no_heartbeats() -> None:
    client = EngineClient().opened(heartbeat=10)
    client.engine.note_input(30.0)
    client.engine.handle_timeout(30.0)
    assert client.take().names() == []


def test_blocked_is_told_to_clients_that_understand_it() -> None:
    client = EngineClient().opened()
    client.engine.block("low on memory")
    client.engine.unblock()
    assert client.take().written() == ["connection.blocked", "connection.unblocked"]


@given(st.binary(max_size=300), st.integers(0, 4))
def test_random_bytes_raise_nothing(data: bytes, kept: int) -> None:
    client = EngineClient()
    beginning = pipelined() + publication(1, b"x")
    client.give(beginning[: len(beginning) * kept // 4] + data)
    client.engine.receive_eof(1.0)
    client.take()
    assert client.engine.finished or client.engine.next_deadline() is not None
