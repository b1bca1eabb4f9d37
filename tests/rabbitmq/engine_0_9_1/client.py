"""A client of the engine: it writes frames, and reads what the engine writes and reports."""

from __future__ import annotations

from librt.strings import BytesWriter

from ferrymq.engine.unfinished import Budget
from ferrymq_codec_0_9_1.frames import PROTOCOL_HEADER
from ferrymq_codec_0_9_1.method import Method
from ferrymq_rabbitmq.amqp_0_9_1.engine.engine_events import EngineEvent, HostOpened, LoginStarted
from ferrymq_rabbitmq.amqp_0_9_1.engine.server_connection import ServerConnection
from ferrymq_rabbitmq.amqp_0_9_1.engine.server_settings import ServerSettings
from ferrymq_types_0_9_1.basic import BasicProperties, BasicPublish
from ferrymq_types_0_9_1.channel import ChannelOpen
from ferrymq_types_0_9_1.connection import (
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
)
from ferrymq_types_0_9_1.registry import (
    decode_method,
    write_body_frames,
    write_header_frame,
    write_method_frame,
)

CAPABLE: dict[str, object] = {
    "capabilities": {"authentication_failure_close": True, "connection.blocked": True}
}
LOGIN = ConnectionStartOk(
    client_properties=CAPABLE, mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US"
)
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def settings(**changes: object) -> ServerSettings:
    """Return settings of a server, with these changes."""
    values: dict[str, object] = {
        "properties": {"product": "RabbitMQ"},
        "mechanisms": ["PLAIN"],
        "frame_max": 8192,
        "channel_max": 10,
        "heartbeat": 60,
        "handshake_timeout": 10.0,
        "close_timeout": 5.0,
        "max_message_size": 100_000,
        "max_unfinished": 0,
        "unfinished": Budget(),
    }
    return ServerSettings(**{**values, **changes})  # type: ignore[arg-type]


def frame(channel: int, method: Method) -> bytes:
    """Return the frame of a method."""
    writer = BytesWriter()
    write_method_frame(writer, channel, method)
    return writer.getvalue()


def header(
    channel: int, size: int, class_id: int = 60, properties: BasicProperties | None = None
) -> bytes:
    """Return the header frame of a content, without properties unless there are some."""
    writer = BytesWriter()
    write_header_frame(writer, channel, class_id, size, properties or BasicProperties())
    return writer.getvalue()


def body(channel: int, data: bytes, frame_max: int = 8192) -> bytes:
    """Return the body frames of a content."""
    writer = BytesWriter()
    write_body_frames(writer, channel, data, frame_max)
    return writer.getvalue()


def publication(channel: int, data: bytes, key: str = "q") -> bytes:
    """Return the frames of a published message."""
    method = frame(channel, BasicPublish(routing_key=key))
    return method + header(channel, len(data)) + body(channel, data)


def pipelined(heartbeat: int = 0, channel: int = 1) -> bytes:
    """Return everything that a client sends until its channel is open, without waiting."""
    return (
        PROTOCOL_HEADER
        + frame(0, LOGIN)
        + frame(0, ConnectionTuneOk(heartbeat=heartbeat))
        + frame(0, ConnectionOpen(virtual_host="/"))
        + frame(channel, ChannelOpen())
    )


class EngineClient:
    """A client of one engine, which accepts every login and every virtual host."""

    def __init__(self, **changes: object) -> None:
        self.now = 0.0
        self.engine = ServerConnection(settings(**changes), self.now)
        self.events: list[EngineEvent] = []
        self.output = b""

    def give(self, data: bytes) -> EngineClient:
        """Give the engine bytes, and take its events and output."""
        self.engine.receive_data(data, self.now)
        return self.take()

    def take(self) -> EngineClient:
        """Take the engine's events, answer those of the handshake, and take the output."""
        while events := self.engine.take_events():
            for event in events:
                self.events.append(event)
                if isinstance(event, LoginStarted):
                    self.engine.accept_login()
                elif isinstance(event, HostOpened):
                    self.engine.open_ok()
        self.output += self.engine.data_to_send()
        return self

    def opened(self, heartbeat: int = 0) -> EngineClient:
        """Open the connection and channel 1, and forget events and output."""
        self.give(pipelined(heartbeat))
        self.forget()
        return self

    def forget(self) -> None:
        """Forget events and output."""
        self.events.clear()
        self.output = b""

    def names(self) -> list[str]:
        """Return the names of the events so far."""
        return [type(event).__name__ for event in self.events]

    def methods(self) -> list[tuple[int, Method]]:
        """Return the methods in the output, with their channels, and forget the output."""
        found: list[tuple[int, Method]] = []
        data, at = self.output, 0
        while at < len(data):
            size = int.from_bytes(data[at + 3 : at + 7], "big")
            assert data[at + 7 + size] == 0xCE
            if data[at] == 1:
                channel = int.from_bytes(data[at + 1 : at + 3], "big")
                found.append((channel, decode_method(data[at + 7 : at + 7 + size])))
            at += size + 8
        self.output = b""
        return found

    def written(self) -> list[str]:
        """Return the names of the methods in the output, and forget the output."""
        return [type(method).NAME for _, method in self.methods()]
