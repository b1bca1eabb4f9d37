"""What the broker answers to an attach, frame by frame (AMQP 1.0 §2.7.3, §2.8)."""

from __future__ import annotations

import pytest

from tests.raw.client import Client
from tests.raw.frames import COORDINATOR, attach_frame, source, target, transfer_frame
from tests.raw.values import (
    NULL,
    binary,
    composite,
    data_section,
    mapping,
    string,
    symbol,
    ubyte,
    uint,
)
from tests.wire.control import exchange, named

FIRST, SECOND = 0, 1


@pytest.mark.spec("2.8.3")
@pytest.mark.parametrize(
    ("expiry", "properties", "granted"),
    [
        (NULL, NULL, FIRST),
        (symbol("never"), NULL, SECOND),
        (NULL, mapping(symbol("delivery-mode"), symbol("exactly-once")), SECOND),
    ],
    ids=["ordinary", "lasting", "exactly-once"],
)
def test_second_is_answered_only_where_the_target_keeps_deliveries(
    peer: Client, address: str, expiry: bytes, properties: bytes, granted: int
) -> None:
    where = target(string(address), expiry=expiry)
    peer.send(
        attach_frame(
            "s", 0, source=source(), target=where, rcv_settle_mode=ubyte(SECOND),
            properties=properties,
        )
    )  # fmt: skip
    assert peer.expect("attach", "flow").field(4) == granted
    peer.expect("flow")
    answers = exchange(peer, transfer_frame(data_section(), 0, uint(0), binary(b"t")))
    (disposition,) = named(answers, "disposition")
    # The broker has settled, or waits for the sender to settle.
    assert disposition.field(3) is (granted == FIRST)


@pytest.mark.spec("2.8.3")
def test_a_coordinator_settles_first(peer: Client) -> None:
    where = composite(COORDINATOR, [])
    peer.send(attach_frame("c", 0, source=source(), target=where, rcv_settle_mode=ubyte(SECOND)))
    assert peer.expect("attach", "flow").field(4) == FIRST
