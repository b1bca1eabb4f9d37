"""A source with a default-outcome and no outcomes: every delivery ends with it, whatever the
receiver states, and in whichever frame (AMQP 1.0 §3.5.3)."""

from __future__ import annotations

import pytest

from tests.raw.answers import Answer, Composite
from tests.raw.client import Client
from tests.raw.frames import (
    SOURCE,
    attach_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    target,
)
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
from tests.wire.control import (
    ACCEPTED,
    RELEASED,
    Control,
    exchange,
    in_transaction,
    named,
    waiting,
)


def receive(
    peer: Client, address: str, durable: bytes = NULL, expiry: bytes = NULL, unsettled: bytes = NULL
) -> Answer:
    """Attach link `mine` on handle 1, whose source releases everything; the broker's attach."""
    where = composite(SOURCE, [string(address), durable, expiry, *[NULL] * 5, RELEASED])
    peer.send(
        attach_frame(
            "mine", 1, True, where, target(), rcv_settle_mode=ubyte(1), unsettled=unsettled
        )
    )  # fmt: skip
    answer = peer.expect("attach", "flow")
    granted = answer.field(5)
    assert isinstance(granted, Composite) and granted.field(9) is None
    return answer


def publish(broker: Broker, address: str) -> None:
    """Put a message into a queue."""
    with Client(broker.port) as client:
        client.begin().sender(address).publish([data_section()])


def take(peer: Client) -> bytes:
    """Take a message on handle 1; its delivery-tag. It is delivery 0."""
    peer.send(flow_frame(uint(1), uint(1), uint(0)))
    (transfer,) = peer.arrivals(1)
    tag = transfer.field(2)
    assert transfer.field(1) == 0 and isinstance(tag, bytes)
    return tag


def told(answers: list[Answer]) -> list[tuple[object, object]]:
    """What the broker says as a sender: the state, and whether it has settled."""
    return [
        (state.name if isinstance(state := one.field(4), Composite) else None, one.field(3))
        for one in named(answers, "disposition")
        if one.field(0) is False
    ]


@pytest.mark.spec("3.5.3", "4.4.2")
@pytest.mark.parametrize("settled", [NULL, TRUE], ids=["unsettled", "settled"])
def test_in_a_transaction(peer: Client, broker: Broker, address: str, settled: bytes) -> None:
    publish(broker, address)
    control = Control(peer)
    receive(peer, address)
    take(peer)
    txn = control.declare()
    state = in_transaction(txn, ACCEPTED)
    exchange(peer, disposition_frame(0, settled=settled, state=state))
    assert waiting(broker.port, address) == []
    answers = exchange(peer, control.discharge(txn))
    assert told(answers) == ([] if settled == TRUE else [("released", True)])
    assert len(waiting(broker.port, address)) == 1


LASTING = {"durable": uint(2), "expiry": symbol("never")}


@pytest.mark.spec("3.5.3", "2.7.6")
def test_behind_a_detach(peer: Client, broker: Broker, address: str) -> None:
    publish(broker, address)
    receive(peer, address, **LASTING)
    take(peer)
    answers = exchange(peer, detach_frame(1, closed=False), disposition_frame(0, state=ACCEPTED))
    assert told(answers) == [("released", True)]
    assert len(waiting(broker.port, address)) == 1


@pytest.mark.spec("3.5.3", "3.4.6")
def test_in_the_unsettled_map_of_an_attach(peer: Client, broker: Broker, address: str) -> None:
    publish(broker, address)
    receive(peer, address, **LASTING)
    tag = take(peer)
    exchange(peer, detach_frame(1, closed=False))
    receive(peer, address, **LASTING, unsettled=mapping(binary(tag), ACCEPTED))
    # Somebody else gets the message, and the client is told.
    with Client(broker.port) as other:
        other.begin().receiver(address)
        other.arrivals(1)
        answers = exchange(peer, flow_frame(uint(1), uint(1), uint(1)))
        (resumed,) = named(answers, "transfer")
        state = resumed.field(7)
        assert resumed.field(8) is True and isinstance(state, Composite)
        assert state.name == "released"
