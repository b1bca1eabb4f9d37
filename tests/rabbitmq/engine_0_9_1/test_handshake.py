"""The beginning of a connection: header, login, negotiation, virtual host."""

from __future__ import annotations

import pytest

from ferrymq_codec_0_9_1.frames import PROTOCOL_HEADER
from ferrymq_rabbitmq.amqp_0_9_1.engine.engine_events import ConnectionEnded
from ferrymq_types_0_9_1.channel import ChannelOpen
from ferrymq_types_0_9_1.connection import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
)
from tests.rabbitmq.engine_0_9_1.client import CAPABLE, EngineClient, frame, pipelined


def test_a_client_may_send_everything_at_once() -> None:
    client = EngineClient().give(pipelined())
    assert client.names() == ["LoginStarted", "HostOpened", "ChannelOpened"]
    assert client.written() == [
        "connection.start",
        "connection.tune",
        "connection.open-ok",
        "channel.open-ok",
    ]
    assert client.engine.opened


def test_the_bytes_may_come_one_by_one() -> None:
    client = EngineClient()
    for byte in pipelined():
        client.give(bytes([byte]))
    assert client.names() == ["LoginStarted", "HostOpened", "ChannelOpened"]


def test_nothing_is_read_before_the_login_is_decided() -> None:
    client = EngineClient()
    client.engine.receive_data(pipelined() + bytes(9000), 0.0)
    assert [type(event).__name__ for event in client.engine.take_events()] == ["LoginStarted"]
    assert client.engine.take_events() == [] and client.engine.holds_input()


@pytest.mark.parametrize("header", [b"AMQP\x01\x01\x08\x00", b"GET / HTTP/1.1\r\n"])
def test_another_protocol_is_answered_with_ours(header: bytes) -> None:
    client = EngineClient().give(header)
    assert client.output == PROTOCOL_HEADER and client.engine.finished


@pytest.mark.parametrize(
    ("tune", "code"),
    [
        (ConnectionTuneOk(frame_max=4095), 530),
        (ConnectionTuneOk(frame_max=8193), 530),
        (ConnectionTuneOk(channel_max=11), 530),
    ],
)
def test_limits_that_the_server_has_not_offered(tune: ConnectionTuneOk, code: int) -> None:
    client = EngineClient().give(
        PROTOCOL_HEADER + frame(0, ConnectionStartOk(mechanism="PLAIN")) + frame(0, tune)
    )
    close = client.methods()[-1][1]
    assert isinstance(close, ConnectionClose) and close.reply_code == code
    assert not client.engine.finished
    assert client.give(frame(0, ConnectionCloseOk())).engine.finished


def test_the_smaller_limits_count() -> None:
    start = PROTOCOL_HEADER + frame(0, ConnectionStartOk(mechanism="PLAIN"))
    engine = EngineClient().give(start + frame(0, ConnectionTuneOk(frame_max=4096))).engine
    assert (engine.frame_max, engine.channel_max) == (4096, 10)
    engine = EngineClient().give(start + frame(0, ConnectionTuneOk(channel_max=3))).engine
    assert (engine.frame_max, engine.channel_max) == (8192, 3)


@pytest.mark.parametrize("capable", [True, False])
def test_a_refused_login(capable: bool) -> None:
    client = EngineClient()
    properties = CAPABLE if capable else {}
    login = frame(0, ConnectionStartOk(client_properties=properties, mechanism="PLAIN"))
    client.engine.receive_data(PROTOCOL_HEADER + login, 0.0)
    client.engine.take_events()
    client.engine.refuse_login("no")
    ended = client.engine.take_events()[-1]
    assert isinstance(ended, ConnectionEnded) and ended.failed_login
    client.output = client.engine.data_to_send()
    # Other clients expect the end of the transport alone.
    assert client.written() == ["connection.start", *["connection.close"] * capable]
    assert client.engine.finished is not capable


def test_a_method_at_the_wrong_time_ends_the_connection() -> None:
    client = EngineClient().give(PROTOCOL_HEADER + frame(0, ConnectionOpen(virtual_host="/")))
    close = client.methods()[-1][1]
    assert isinstance(close, ConnectionClose) and close.reply_code == 503
    client = EngineClient().give(PROTOCOL_HEADER + frame(1, ChannelOpen()))
    close = client.methods()[-1][1]
    assert isinstance(close, ConnectionClose) and close.reply_code == 504


def test_a_silent_client_has_a_limited_time() -> None:
    client = EngineClient().give(PROTOCOL_HEADER)
    assert client.engine.next_deadline() == 10.0
    client.engine.handle_timeout(10.0)
    assert client.take().names() == ["ConnectionEnded"] and client.engine.finished


def test_the_end_of_the_transport_while_a_login_is_decided() -> None:
    client = EngineClient()
    login = frame(0, ConnectionStartOk(mechanism="PLAIN"))
    client.engine.receive_data(PROTOCOL_HEADER + login, 0.0)
    client.engine.take_events()
    client.engine.receive_eof(1.0)
    (ended,) = client.engine.take_events()
    assert isinstance(ended, ConnectionEnded) and ended.failed_login
    client.engine.accept_login()
    assert client.engine.finished
