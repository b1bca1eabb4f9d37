"""A client that says whatever it likes, on a socket of its own, and reads what it is answered."""

from __future__ import annotations

import select
import socket
import struct
import time
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.raw.answers import Answer, condition_of, read_answer
from tests.raw.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    attach_frame,
    begin_frame,
    close_frame,
    flow_frame,
    open_frame,
    sasl_init,
    source,
    target,
    transfer_frame,
)
from tests.raw.values import NULL, TRUE, binary, string, uint

# Seconds an answer may take on a busy machine; nothing waits this long if all is well.
PATIENCE: Final = 20.0


class Verdict(NamedTuple):
    """What the broker did about a mistake.

    `scope` is `link`, `session`, `connection`, `delivery` or `sasl`; `end` if there was no more
    than the end of the transport.
    """

    scope: str
    condition: str = ""
    description: str = ""


class Client:
    """``with Client(port) as client``. Every read has `PATIENCE`."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._input = bytearray()
        self._ended = False
        # How many messages link 0 may have sent in all.
        self._allowed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    # -- out and in ------------------------------------------------------------------------

    def send(self, *pieces: bytes) -> Self:
        """Write it all, reading what comes meanwhile; stops when the broker has hung up."""
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
        assert found, f"nothing from the broker for {PATIENCE} s; held: {bytes(self._input[:80])!r}"
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
        be read; fails if the broker has hung up."""
        self._receive()
        assert not self._ended, "the broker has hung up"
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

    # -- the beginning of a conversation -----------------------------------------------------

    def authenticate(self, mechanism: str = "ANONYMOUS", response: bytes = b"") -> Self:
        """The SASL layer, with a mechanism of one step."""
        self.send(SASL_HEADER, sasl_init(mechanism, response))
        assert self.take(8) == SASL_HEADER
        self.expect("sasl-mechanisms")
        assert self.expect("sasl-outcome").field(0) == 0
        return self

    def open(self, opening: bytes = b"") -> Self:
        """Headers and opens."""
        self.send(AMQP_HEADER, opening or open_frame())
        assert self.take(8) == AMQP_HEADER
        self.expect("open")
        return self

    def begin(self, beginning: bytes = b"") -> Self:
        """Open a connection and begin a session on channel 0."""
        self.open().send(beginning or begin_frame())
        self.expect("begin")
        return self

    def sender(self, address: str, name: str = "s", handle: int = 0, attach: bytes = b"") -> Self:
        """Attach a link on which this client sends; it has credit then."""
        where = target(string(address))
        self.send(attach or attach_frame(name, handle, target=where, source=source()))
        self.expect("attach")
        self._note(self.expect("flow"))
        return self

    def _note(self, flow: Answer) -> None:
        count, credit = flow.field(5), flow.field(6)
        if isinstance(count, int) and isinstance(credit, int):
            self._allowed = count + credit

    def publish(self, payloads: list[bytes]) -> Self:
        """Send these messages settled on link 0, which has just been attached, and as fast as
        there is credit for them."""
        number = 0
        while number < len(payloads):
            self.wait_for_credit(number)
            last = min(number + 200, self._allowed, len(payloads))
            self.send(
                *(
                    transfer_frame(payloads[at], 0, uint(at), binary(b"%d" % at), settled=TRUE)
                    for at in range(number, last)
                ),
                flow_frame(echo=TRUE),
            )
            number = last
            # It has all of them when it answers that.
            while (flow := self.expect("flow", "empty")).field(4) is not None:
                self._note(flow)
        return self

    def wait_for_credit(self, number: int) -> None:
        """Wait until link 0 may send so many deliveries and one more."""
        while number >= self._allowed:
            self._note(self.expect("flow", "empty"))

    def arrivals(self, count: int) -> list[Answer]:
        """So many transfers, whatever comes in between."""
        found: list[Answer] = []
        while len(found) < count:
            answer = self.read()
            assert answer is not None, "the broker has hung up"
            if answer.name == "transfer":
                found.append(answer)
        return found

    def receiver(
        self,
        address: str,
        credit: int = 1000,
        name: str = "r",
        handle: int = 1,
        filters: bytes = NULL,
    ) -> Self:
        """Attach a link on which this client receives, with credit."""
        where = source(string(address), filters=filters)
        self.send(attach_frame(name, handle, receiver=True, source=where, target=target()))
        self.expect("attach", "flow")
        if credit:
            self.send(flow_frame(uint(handle), uint(credit), uint(0)))
        return self

    # -- the end of it -----------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """Read on to the broker's refusal of whatever it was."""
        while True:
            answer = self.read()
            if answer is None:
                return Verdict("end")
            scope = {"detach": "link", "end": "session", "close": "connection"}.get(answer.name)
            if scope is not None:
                return Verdict(scope, *(answer.error() or ()))
            if answer.name == "sasl-outcome":
                return Verdict("sasl", str(answer.field(0)))
            if answer.name == "disposition":
                outcome = answer.field(4)
                name = getattr(outcome, "name", "")
                error = (
                    condition_of(getattr(outcome, "fields", [None])[0])
                    if name == "rejected"
                    else None
                )
                return Verdict("delivery", *(error or (name,)))

    def close(self) -> None:
        """Close in good order, from whatever side it began."""
        self.send(close_frame())
        while self.read() is not None:
            pass
