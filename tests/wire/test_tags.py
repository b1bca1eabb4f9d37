"""Delivery-tags that come again while their deliveries are unsettled (AMQP 1.0 §2.6.12)."""

from __future__ import annotations

import pytest

from tests.raw.client import Client
from tests.raw.frames import attach_frame, source, target, transfer_frame
from tests.raw.process import Broker
from tests.raw.values import binary, data_section, mapping, string, symbol, uint
from tests.wire.control import Control, exchange, in_transaction, named, outcomes_by_id, waiting


def posting(control: Control, txn: bytes, body: bytes, tag: bytes = b"same") -> bytes:
    """Encode a message on link 0 that stays unsettled until its transaction is discharged."""
    number = next(control.ids)
    state = in_transaction(txn)
    return transfer_frame(data_section(body), 0, uint(number), binary(tag), state=state)


@pytest.mark.spec("2.6.12")
def test_a_link_that_is_never_resumed_takes_a_tag_twice(
    peer: Client, broker: Broker, address: str
) -> None:
    peer.sender(address)
    control = Control(peer)
    txn = control.declare()
    frames = [posting(control, txn, body) for body in (b"a", b"b", b"c")]
    answers = exchange(peer, *frames, control.discharge(txn))
    assert not named(answers, "detach")
    states = [state.name for state in outcomes_by_id(answers).values()]
    assert len(states) == 4 and "rejected" not in states
    found = [payload[-1:] for payload in waiting(broker.port, address)]
    assert found == [b"a", b"b", b"c"]


@pytest.mark.spec("2.6.12")
@pytest.mark.parametrize("kind", ["lasting", "exactly-once"])
def test_a_link_that_can_be_resumed_takes_a_tag_once(peer: Client, address: str, kind: str) -> None:
    where = target(string(address), expiry=symbol("never"))
    attach = attach_frame("s", 0, source=source(), target=where)
    if kind == "exactly-once":
        properties = mapping(symbol("delivery-mode"), symbol("exactly-once"))
        plain = target(string(address))
        attach = attach_frame("s", 0, source=source(), target=plain, properties=properties)
    peer.sender(address, attach=attach)
    control = Control(peer)
    txn = control.declare()
    frames = [posting(control, txn, body) for body in (b"a", b"b")]
    (detach,) = named(exchange(peer, *frames), "detach")
    assert detach.condition == "amqp:not-allowed"
