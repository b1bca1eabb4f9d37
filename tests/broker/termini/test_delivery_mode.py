"""Consuming exactly once, by the link property (`delivery-mode`)."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Accepted, Source
from ferrymq_types.transport import ReceiverSettleMode, SenderSettleMode
from tests.broker.harness import Network
from tests.broker.termini.clients import FIRST, SECOND, Consumer, filled, source, stored

ONCE: dict[str, object] = {"delivery-mode": "exactly-once"}


def test_it_is_granted_where_the_source_outlives_the_link() -> None:
    net = stored()
    filled(net, b"a")
    one = Consumer(net, properties=ONCE)
    one.connect()
    receiver = one.attach()
    attach = receiver.link.remote_attach
    assert attach is not None and (attach.properties or {}) == ONCE
    assert attach.snd_settle_mode is SenderSettleMode.UNSETTLED
    assert attach.rcv_settle_mode is ReceiverSettleMode.SECOND
    one.restart(broker=True)
    one.connect()
    one.attach()
    assert one.bodies() == [b"a"] and one.receiver.deliveries == []
    one.give(Accepted())
    assert net.queue("q").message_count() == 0


@pytest.mark.parametrize(
    ("asked", "mode"),
    [
        (source(), FIRST),
        (source(policy="session-end"), SECOND),
        (Source(address="q"), SECOND),
    ],
    ids=["first", "session", "not durable"],
)
def test_it_is_refused_elsewhere(net: Network, asked: Source, mode: ReceiverSettleMode) -> None:
    receiver = net.connect().receiver("q", source=asked, rcv=mode, properties=ONCE)
    assert receiver.error is not None and receiver.error.condition == "amqp:not-implemented"
    wish: dict[str, object] = {"opt-delivery-mode": "exactly-once"}
    receiver = net.connect().receiver("q", source=asked, rcv=mode, properties=wish)
    assert receiver.link.remote_attach is not None and not receiver.detached
    assert not receiver.link.remote_attach.properties
