"""A control link made of raw frames (AMQP 1.0 §4.2, §4.3)."""

from __future__ import annotations

import itertools
from typing import Final

from tests.raw.answers import Answer, Composite
from tests.raw.client import Client
from tests.raw.frames import (
    COORDINATOR,
    DECLARE,
    attach_frame,
    flow_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.values import (
    NULL,
    TRUE,
    binary,
    composite,
    data_section,
    described,
    mapping,
    string,
    symbol,
    uint,
)

DISCHARGE: Final = 0x32
TRANSACTIONAL_STATE: Final = 0x34
ACCEPTED: Final = composite(0x24, [])
RELEASED: Final = composite(0x26, [])
HANDLE: Final = 9


def amqp_value(value: bytes) -> bytes:
    """Encode an amqp-value section (AMQP 1.0 §3.2.8)."""
    return described(0x77, value)


def declare_body() -> bytes:
    """Encode a message that declares a transaction."""
    return amqp_value(composite(DECLARE, [NULL]))


def discharge_body(txn: bytes, fail: bool = False) -> bytes:
    """Encode a message that discharges a transaction."""
    return amqp_value(composite(DISCHARGE, [binary(txn), TRUE if fail else NULL]))


def in_transaction(txn: bytes, outcome: bytes = NULL) -> bytes:
    """Encode a transactional-state (AMQP 1.0 §4.5.6)."""
    return composite(TRANSACTIONAL_STATE, [binary(txn), outcome])


class Control:
    """A control link on handle 9 of the peer's session 0. `ids` are the next delivery-ids of that
    session: who sends a delivery of his own takes one."""

    def __init__(self, peer: Client, outcomes: bytes = NULL) -> None:
        self.peer = peer
        self.ids = itertools.count()
        where = composite(COORDINATOR, [])
        peer.send(attach_frame("control", HANDLE, source=source(outcomes=outcomes), target=where))
        peer.expect("attach", "flow")
        peer.expect("flow")

    def frame(
        self, body: bytes, handle: int = HANDLE, state: bytes = NULL, settled: bytes = NULL
    ) -> bytes:
        """Encode one whole delivery, on the control link if no other is named."""
        return self.frames([(body, state)], handle, settled)

    def frames(
        self,
        pieces: list[tuple[bytes, bytes]],
        handle: int,
        settled: bytes = NULL,
        whole: bool = True,
    ) -> bytes:
        """Encode one delivery of several frames, each with its bytes and its state.

        Without `whole`, the last frame says that more will follow.
        """
        number = next(self.ids)
        encoded = []
        for at, (body, state) in enumerate(pieces):
            more = TRUE if at < len(pieces) - 1 or not whole else NULL
            encoded.append(
                transfer_frame(
                    body,
                    handle,
                    uint(number) if at == 0 else NULL,
                    binary(b"%d" % number) if at == 0 else NULL,
                    settled=settled if at == 0 else NULL,
                    more=more,
                    state=state,
                )
            )
        return b"".join(encoded)

    def post(self, txn: bytes, handle: int = 0, body: bytes = b"x", settled: bytes = NULL) -> bytes:
        """Encode a whole message that is posted in a transaction."""
        return self.frame(data_section(body), handle, in_transaction(txn), settled)

    def declare(self) -> bytes:
        """Declare a transaction; its id."""
        self.peer.send(self.frame(declare_body()))
        state = self.peer.expect("disposition", "flow").field(4)
        assert isinstance(state, Composite) and state.name == "declared", state
        txn = state.field(0)
        assert isinstance(txn, bytes)
        return txn

    def discharge(self, txn: bytes, fail: bool = False) -> bytes:
        """Encode the discharge of a transaction."""
        return self.frame(discharge_body(txn, fail))


def outcomes_by_id(answers: list[Answer]) -> dict[int, Composite]:
    """The last state that dispositions gave each delivery, by delivery-id."""
    states: dict[int, Composite] = {}
    for answer in answers:
        if answer.name != "disposition":
            continue
        first, last, state = answer.field(1), answer.field(2), answer.field(4)
        assert isinstance(first, int)
        for number in range(first, (last if isinstance(last, int) else first) + 1):
            if isinstance(state, Composite):
                states[number] = state
    return states


def exchange(peer: Client, *frames: bytes) -> list[Answer]:
    """Send these frames in one write; everything that the broker has to say to them.

    The broker answers an echo in the pass that reads it, and the next one in a later pass: what
    comes before the second answer is complete.
    """
    peer.send(*frames, flow_frame(echo=TRUE))
    answers: list[Answer] = []
    for _ in range(2):
        while True:
            answer = peer.read()
            assert answer is not None, f"the broker has hung up after {answers}"
            if answer.name == "flow" and answer.field(4) is None:
                break
            assert answer.name not in ("end", "close"), answer
            answers.append(answer)
        peer.send(flow_frame(echo=TRUE))
    peer.expect("flow", "empty")
    return answers


def named(answers: list[Answer], name: str) -> list[Answer]:
    """Those of the answers that are frames of this name."""
    return [answer for answer in answers if answer.name == name]


def waiting(port: int, address: str) -> list[bytes]:
    """The messages that a second peer finds at an address, as they are encoded."""
    with Client(port) as client:
        client.begin().receiver(address)
        answers = exchange(client, flow_frame(uint(1), uint(100), uint(0), drain=TRUE))
        return [answer.payload for answer in named(answers, "transfer")]


def manage(port: int, operation: str, address: str, body: bytes = NULL) -> bytes:
    """Have management do something with a queue, over a pair of links; its response."""
    node, paired = string("$management"), mapping(symbol("paired"), TRUE)
    with Client(port) as client:
        client.begin().send(
            attach_frame("pair", 0, source=source(), target=target(node), properties=paired),
            attach_frame("pair", 1, True, source(node), target(), properties=paired),
            flow_frame(uint(1), uint(1), uint(0)),
        )
        client.expect("attach", "flow")
        client.expect("attach", "flow")
        asked = mapping(
            *(string(text) for text in ("operation", operation, "type", "queue", "name", address))
        )
        about = composite(0x73, [NULL, NULL, NULL, NULL, string("$me")])
        request = about + described(0x74, asked) + amqp_value(body)
        client.send(transfer_frame(request, 0, uint(0), binary(b"t")))
        (response,) = client.arrivals(1)
        return response.payload


def delete(port: int, address: str) -> None:
    """Delete a queue by management."""
    response = manage(port, "DELETE", address)
    assert b"204" in response or b"\xcc" in response, response


def refusal(peer: Client, attach: bytes) -> str:
    """Attach a link; the condition with which it was refused, empty if it was not."""
    peer.send(attach)
    answer = peer.expect("attach", "flow")
    if answer.field(5 if answer.field(2) is False else 6) is not None:
        return ""
    condition = peer.expect("detach", "flow").condition
    assert condition is not None
    return condition
