"""A socket of a raw peer: what is written is bytes, what is read are frames, and no read waits
for ever."""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Final, Self

from tests.raw.answers import Answer, read_answer

# Seconds an answer may take on a busy machine; nothing waits this long if all is well.
PATIENCE: Final = 20.0


class Wire:
    """One connection; a context manager. Every read has `PATIENCE`."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._input = bytearray()
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    # -- out and in ------------------------------------------------------------------------

    def send(self, *pieces: bytes) -> Self:
        """Write it all, reading what comes meanwhile; stops when the other side has hung up."""
        data = memoryview(b"".join(pieces))
        deadline = time.monotonic() + PATIENCE
        while data:
            readable, writable = self._wait(deadline, writing=True)
            if readable:
                self._receive()
            if writable:
                try:
                    data = data[self.socket.send(data[:262144]) :]
                except BlockingIOError:
                    continue
                except OSError:
                    # The answer is what counts, and that is there to be read.
                    break
        return self

    def _wait(self, deadline: float, writing: bool) -> tuple[bool, bool]:
        wanted = (0 if self._ended else select.POLLIN) | (select.POLLOUT if writing else 0)
        poll = select.poll()
        poll.register(self.socket, wanted)
        left = max(0.0, deadline - time.monotonic())
        found = poll.poll(left * 1000)
        assert found, f"nothing came for {PATIENCE} s; held: {bytes(self._input[:80])!r}"
        event = found[0][1]
        failed = bool(event & (select.POLLERR | select.POLLHUP))
        return (
            not self._ended and (failed or bool(event & select.POLLIN)),
            writing and (failed or bool(event & select.POLLOUT)),
        )

    def _receive(self) -> None:
        try:
            data = self.socket.recv(262144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._input += data
        self._ended = not data

    def _need(self, size: int) -> bool:
        # False if the transport ends before so many bytes have come.
        deadline = time.monotonic() + PATIENCE
        while len(self._input) < size and not self._ended:
            self._wait(deadline, writing=False)
            self._receive()
        return len(self._input) >= size

    def take(self, size: int) -> bytes:
        """The next bytes; fewer if the transport ends."""
        self._need(size)
        data = bytes(self._input[:size])
        del self._input[:size]
        return data

    def read(self) -> Answer | None:
        """The next frame; None at the end of the transport."""
        if not self._need(4):
            assert not self._input, f"half a frame at the end: {bytes(self._input)!r}"
            return None
        size = struct.unpack_from(">I", self._input)[0]
        assert self._need(size), "half a frame at the end"
        return read_answer(self.take(size))

    def come(self) -> list[Answer]:
        """The frames that are there already, without waiting for any. For use when the socket can
        be read; fails if the other side has hung up."""
        self._receive()
        assert not self._ended, "the other side has hung up"
        answers: list[Answer] = []
        while len(self._input) >= 4:
            size = struct.unpack_from(">I", self._input)[0]
            if len(self._input) < size:
                break
            answers.append(read_answer(self.take(size)))
        return answers

    def expect(self, name: str, *passing: str) -> Answer:
        """The next frame, which is of this name; those of the names `passing` do not count."""
        while True:
            answer = self.read()
            if answer is not None and answer.name in passing:
                continue
            assert answer is not None and answer.name == name, f"{answer} instead of {name}"
            return answer

    def ended(self) -> bool:
        """Wait for the end of the transport; whether nothing but empty frames came before it."""
        while (answer := self.read()) is not None:
            if answer.name != "empty":
                return False
        return True

    def half_close(self) -> Self:
        """Say that there is no more from this side."""
        self.socket.shutdown(socket.SHUT_WR)
        return self
