"""A client that plays methods of AMQP 0-9-1 frame by frame, and writes down what comes back.

Frames are encoded and decoded by pamqp, so that the client and the broker share no code. A line of
a transcript is `CHANNEL METHOD FIELD=VALUE ...`, without texts and without what differs from run to
run.
"""

from __future__ import annotations

import datetime
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pamqp import commands, exceptions, frame, header, heartbeat
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from tests.interop.brokers.sites import PASSWORD

# Seconds. An answer comes sooner; after such a silence nothing more comes.
PATIENCE: Final = 10.0
SILENCE: Final = 0.4

_PROTOCOL: Final = b"AMQP\x00\x00\x09\x01"
# Texts, and what each broker says of itself.
_LEFT_OUT: Final = {
    "reply_text",
    "server_properties",
    "mechanisms",
    "locales",
    "version_major",
    "version_minor",
    "ticket",
    "reason",
    "cluster_id",
    # Settings of the broker.
    "frame_max",
    "heartbeat",
}
_MADE_UP: Final = re.compile(r"^(amq\.gen-|amq\.ctag-|amq\.rabbitmq\.reply-to\.).*$")


class Peer:
    """A connection that is open, with channel 1; `lines` is the transcript so far.

    `user` logs in to the virtual host `/`. With `raw`, nothing has been sent.
    """

    def __init__(self, port: int, *, user: str = "alice", raw: bool = False) -> None:
        self.lines: list[str] = []
        self.ended = False
        self._waited = 0
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        if not raw:
            self._open(user)
            self.call(commands.Channel.Open())
            assert self.lines[-1].startswith("1 Channel.OpenOk"), self.lines
            self.lines.clear()
            self._waited = 0

    def _open(self, user: str) -> None:
        self.send_bytes(_PROTOCOL)
        self.wait("Connection.Start")
        self.call(self.login(user), 0)
        self.send(commands.Connection.TuneOk(2047, 32_768, 0), 0)
        self.call(commands.Connection.Open("/"), 0)

    @staticmethod
    def login(user: str = "alice", password: str = PASSWORD, mechanism: str = "PLAIN") -> Any:
        """Return the login, of a client that understands everything that RabbitMQ adds."""
        capabilities = dict.fromkeys(
            (
                "authentication_failure_close",
                "basic.nack",
                "connection.blocked",
                "consumer_cancel_notify",
                "publisher_confirms",
            ),
            True,
        )
        response = f"\0{user}\0{password}"
        return commands.Connection.StartOk({"capabilities": capabilities}, mechanism, response)

    def close(self) -> None:
        """Drop the connection."""
        self._socket.close()

    # ── Sending ──

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        try:
            self._socket.sendall(data)
        except OSError:
            self.ended = True

    def send(self, method: Any, channel: int = 1) -> None:
        """Send a method, and do not wait."""
        self.send_bytes(frame.marshal(method, channel))

    def call(self, method: Any, channel: int = 1) -> None:
        """Send a method, and wait for what comes next on its channel or closes the connection."""
        self.send(method, channel)
        before = len(self.lines)
        self._read_until(
            lambda: any(line.startswith((f"{channel} ", "0 ")) for line in self.lines[before:])
        )

    def publish(
        self,
        key: str,
        body: bytes = b"body",
        exchange: str = "",
        *,
        channel: int = 1,
        mandatory: bool = False,
        immediate: bool = False,
        **properties: Any,
    ) -> None:
        """Publish a message; do not wait."""
        method = commands.Basic.Publish(0, exchange, key, mandatory, immediate)
        head = ContentHeader(0, len(body), commands.Basic.Properties(**properties))
        data = frame.marshal(method, channel) + frame.marshal(head, channel)
        if body:
            data += frame.marshal(ContentBody(body), channel)
        self.send_bytes(data)

    # ── Receiving ──

    def wait(self, name: str, count: int = 1) -> None:
        """Wait until so many methods of the name have come behind those waited for before."""
        self._read_until(lambda: len(self._places(name)) >= count)
        if places := self._places(name)[:count]:
            self._waited = places[-1] + 1

    def _places(self, name: str) -> list[int]:
        return [
            number
            for number, line in enumerate(self.lines)
            if number >= self._waited and line.split()[1] == name
        ]

    def _read_until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done() and not self.ended:
            if not self._read(deadline - time.monotonic()):
                if time.monotonic() >= deadline:
                    self.lines.append("- nothing came")
                    return

    def quiet(self) -> None:
        """Read until nothing more comes."""
        while not self.ended and self._read(SILENCE):
            pass

    def _read(self, seconds: float) -> bool:
        """Read once and write down what came; return whether anything did."""
        self._socket.settimeout(max(0.001, seconds))
        try:
            data = self._socket.recv(65_536)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        if not data:
            self.ended = True
            self.lines.append("- end")
            return True
        self._buffer += data
        while self._buffer and self._take():
            pass
        return True

    def _take(self) -> bool:
        if self._buffer[:4] == b"AMQP":
            self.lines.append(f"- header {self._buffer[4:8].hex()}")
            self._buffer = self._buffer[8:]
            return True
        try:
            size, channel, value = frame.unmarshal(self._buffer)
        except exceptions.UnmarshalingException:
            return False
        self._buffer = self._buffer[size:]
        if not isinstance(value, heartbeat.Heartbeat):
            self.lines.append(f"{channel} {_told(value)}")
        return True


def _told(value: Any) -> str:
    """Return a frame as text."""
    if isinstance(value, ContentBody):
        body = value.value
        return f"body {body.decode('latin-1') if len(body) <= 40 else len(body)}"
    if isinstance(value, header.ContentHeader):
        fields = {name: each for name, each in value.properties if each is not None}
        return " ".join(["header", f"size={value.body_size}", *_fields(fields)])
    return " ".join([value.name, *_fields(dict(value))])


def _fields(fields: dict[str, Any]) -> list[str]:
    return [f"{name}={_plain(each)!r}" for name, each in fields.items() if name not in _LEFT_OUT]


def _plain(value: Any) -> Any:
    """Return a value without what differs from run to run."""
    if isinstance(value, dict):
        return {name: _plain(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, datetime.datetime):
        return "time"
    if isinstance(value, str) and (found := _MADE_UP.match(value)):
        return found[1] + "*"
    return value


@dataclass(frozen=True)
class Script:
    """Something to play: `play` sends and waits, on a connection with channel 1."""

    play: Callable[[Peer], None]
    user: str = "alice"
    raw: bool = False

    @property
    def name(self) -> str:
        """Its name, of which the names of its queues are made."""
        return self.play.__name__.replace("_", "-")

    def transcript(self, port: int) -> list[str]:
        """Play it, and return what came."""
        peer = Peer(port, user=self.user, raw=self.raw)
        try:
            self.play(peer)
            peer.quiet()
            return peer.lines
        finally:
            peer.close()
