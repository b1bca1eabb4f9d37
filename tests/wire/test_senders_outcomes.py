"""Outcomes that a sender states of its own deliveries (broker book §2.3.5, AMQP 1.0 §3.4)."""

from __future__ import annotations

import pytest

from tests.raw.client import Client, Verdict
from tests.raw.frames import attach_frame, disposition_frame, source, target, transfer_frame
from tests.raw.process import Broker
from tests.raw.values import (
    NULL,
    TRUE,
    binary,
    composite,
    data_section,
    mapping,
    string,
    symbol,
    ubyte,
    uint,
)
from tests.wire.control import exchange, named, waiting

ONCE = mapping(symbol("delivery-mode"), symbol("exactly-once"))
ACCEPTED, REJECTED, RELEASED, MODIFIED = (composite(code, []) for code in range(0x24, 0x28))
OTHERS = pytest.mark.parametrize(
    "state", [REJECTED, RELEASED, MODIFIED], ids=["rejected", "released", "modified"]
)


def expect_detach(peer: Client, condition: str) -> None:
    """Check that the link is refused, and no more than the link."""
    found: Verdict = peer.verdict()
    assert (found.scope, found.condition) == ("link", condition), found


@pytest.mark.spec("broker-2.3.5")
@OTHERS
@pytest.mark.parametrize("settled", [NULL, TRUE], ids=["unsettled", "settled"])
def test_a_transfer_does_not_come_with_a_receivers_outcome(
    peer: Client, broker: Broker, address: str, state: bytes, settled: bytes
) -> None:
    peer.sender(address)
    peer.send(
        transfer_frame(data_section(), 0, uint(0), binary(b"t"), settled=settled, state=state)
    )
    expect_detach(peer, "amqp:not-allowed")
    assert waiting(broker.port, address) == []


@pytest.mark.parametrize("settled", [NULL, TRUE], ids=["unsettled", "settled"])
def test_a_transfer_that_is_accepted_already_is_taken(
    peer: Client, broker: Broker, address: str, settled: bytes
) -> None:
    peer.sender(address)
    frame = transfer_frame(
        data_section(), 0, uint(0), binary(b"t"), settled=settled, state=ACCEPTED
    )
    assert not named(exchange(peer, frame), "detach")
    assert len(waiting(broker.port, address)) == 1


def send_once(peer: Client, address: str) -> None:
    """Send a message on a link that settles second; it is accepted, and not settled."""
    peer.send(
        attach_frame(
            "s", 0, source=source(), target=target(string(address)), properties=ONCE,
            rcv_settle_mode=ubyte(1),
        )
    )  # fmt: skip
    peer.expect("attach", "flow")
    frame = transfer_frame(data_section(), 0, uint(0), binary(b"t"))
    (disposition,) = named(exchange(peer, frame), "disposition")
    assert disposition.field(3) is False


@pytest.mark.spec("broker-2.3.5")
@OTHERS
@pytest.mark.parametrize("settled", [NULL, TRUE], ids=["unsettled", "settled"])
def test_a_sender_that_contradicts_the_outcome_loses_its_link(
    peer: Client, broker: Broker, address: str, state: bytes, settled: bytes
) -> None:
    send_once(peer, address)
    peer.send(disposition_frame(0, receiver=False, settled=settled, state=state))
    expect_detach(peer, "amqp:illegal-state")
    assert len(waiting(broker.port, address)) == 1


@pytest.mark.parametrize("state", [NULL, ACCEPTED], ids=["without", "accepted"])
def test_a_sender_that_repeats_the_outcome_keeps_its_link(
    peer: Client, address: str, state: bytes
) -> None:
    send_once(peer, address)
    answers = exchange(peer, disposition_frame(0, receiver=False, settled=TRUE, state=state))
    assert not named(answers, "detach")
