"""A client that says whatever it likes, on a socket of its own, and reads what it is answered."""

from __future__ import annotations

import socket
from typing import NamedTuple, Self

from tests.raw.answers import Answer, condition_of
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
from tests.raw.wire import PATIENCE, Wire


class Verdict(NamedTuple):
    """What the broker did about a mistake.

    `scope` is `link`, `session`, `connection`, `delivery` or `sasl`; `end` if there was no more
    than the end of the transport.
    """

    scope: str
    condition: str = ""
    description: str = ""


class Client(Wire):
    """``with Client(port) as client``."""

    def __init__(self, port: int) -> None:
        super().__init__(socket.create_connection(("127.0.0.1", port), PATIENCE))
        # How many messages link 0 may have sent in all.
        self._allowed = 0

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
