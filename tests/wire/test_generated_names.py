"""Names that the broker generates are hard to guess (AMQP broker book §2.1)."""

from __future__ import annotations

import pytest

from tests.raw.answers import Composite
from tests.raw.client import Client
from tests.raw.frames import attach_frame, begin_frame, detach_frame, source, target
from tests.raw.process import Broker
from tests.raw.values import TRUE, string, symbol


@pytest.mark.spec("broker-2.1")
def test_a_plain_subscription_is_not_found_by_its_number(
    broker: Broker, peer: Client, address: str
) -> None:
    where = source(string(address), capabilities=symbol("topic"))
    for handle in range(5):
        peer.send(attach_frame(f"r{handle}", handle, True, source=where, target=target()))
        peer.expect("attach")
    with Client(broker.port) as other:
        other.open().send(begin_frame())
        other.expect("begin")
        for number in range(64):
            guess = source(string(f"{address}::~{number}"), mode=symbol("copy"))
            other.send(attach_frame(f"g{number}", 0, True, source=guess, target=target()))
            assert other.expect("attach").field(5) is None
            assert other.expect("detach").condition == "amqp:not-found"
            other.send(detach_frame(0))


@pytest.mark.spec("broker-2.1")
def test_no_two_dynamic_addresses_are_alike_in_more_than_their_prefix(peer: Client) -> None:
    found: list[str] = []
    for handle in range(8):
        where = source(dynamic=TRUE)
        peer.send(attach_frame(f"r{handle}", handle, True, source=where, target=target()))
        granted = peer.expect("attach").field(5)
        assert isinstance(granted, Composite)
        found.append(str(granted.field(0)))
    tokens = [address.removeprefix("dynamic.") for address in found]
    assert all(len(token) >= 22 for token in tokens)
    assert len({token[:8] for token in tokens}) == len({token[-8:] for token in tokens}) == 8
