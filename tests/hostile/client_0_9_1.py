"""A client of AMQP 0-9-1 that may do everything wrong: a socket, frames, and what comes back."""

from __future__ import annotations

import socket
from typing import Any, Self

from ferrymq_codec_0_9_1.method import Method
from ferrymq_types_0_9_1.registry import decode_method
from tests.rabbitmq.engine_0_9_1.client import frame, pipelined

# Seconds until an answer that does not come is a fault.
PATIENCE = 20.0


class Client091:
    """A connection. With `opened` its channel 1 is open."""

    def __init__(self, port: int, opened: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._rest = b""
        if opened:
            self.socket.sendall(pipelined())
            self.until("channel.open-ok")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *data: bytes | Method) -> None:
        """Send bytes, and methods on channel 1; the broker may have hung up."""
        parts = [each if isinstance(each, bytes) else frame(1, each) for each in data]
        try:
            self.socket.sendall(b"".join(parts))
        except (BrokenPipeError, ConnectionResetError):
            pass

    def read(self) -> tuple[int, Any] | None:
        """Return the next method with its channel, None at the end; contents and heartbeats are
        skipped."""
        while True:
            while len(self._rest) < 7 or len(self._rest) < self._size():
                try:
                    data = self.socket.recv(65536)
                except ConnectionResetError:
                    data = b""
                if not data:
                    return None
                self._rest += data
            size = self._size()
            one, self._rest = self._rest[:size], self._rest[size:]
            if one[0] == 1:
                return int.from_bytes(one[1:3], "big"), decode_method(one[7:-1])

    def _size(self) -> int:
        return int.from_bytes(self._rest[3:7], "big") + 8

    def until(self, name: str) -> Any:
        """Return the next method of this name. Raises `AssertionError` if the connection ends."""
        while (found := self.read()) is not None:
            if name == found[1].NAME:
                return found[1]
        raise AssertionError(f"the connection has ended without {name}")

    def finish(self) -> None:
        """Send no more, and wait until the broker has hung up."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
            while self.socket.recv(65536):
                pass
        except OSError:
            pass

    def code(self) -> int:
        """Return the code of the close that comes; 0 if the connection ends without one."""
        while (found := self.read()) is not None:
            if found[1].NAME in ("connection.close", "channel.close"):
                return int(found[1].reply_code)
        return 0
