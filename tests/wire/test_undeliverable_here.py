"""Outcome modified with undeliverable-here, and the link that is attached again (§3.4.5)."""

from __future__ import annotations

import itertools

import pytest

from tests.raw.answers import Answer
from tests.raw.client import Client
from tests.raw.frames import (
    attach_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.process import Broker
from tests.raw.values import NULL, TRUE, binary, composite, data_section, string, symbol, uint
from tests.wire.control import exchange, named, waiting

STATE = uint(2)
CONFIGURATION = uint(1)
NEVER = symbol("never")
UNDELIVERABLE_HERE = composite(0x27, [NULL, TRUE])


@pytest.fixture(scope="module")
def config() -> str:
    return """
[store]
path = "store"

[[queue]]
name = "q"

[[topic]]
name = "news"
"""


def receive(peer: Client, address: str, name: str, durable: bytes) -> list[Answer]:
    """Attach a link that takes what there is; the transfers that come."""
    where = source(string(address), durable=durable, expiry=NEVER)
    peer.send(attach_frame(name, 1, receiver=True, source=where, target=target()))
    peer.expect("attach", "flow")
    return named(exchange(peer, flow_frame(uint(1), uint(10), uint(0))), "transfer")


@pytest.mark.spec("3.4.5")
@pytest.mark.parametrize(
    ("address", "durable", "how"),
    [
        *itertools.product(("q", "news"), (STATE, CONFIGURATION), ("detached", "lost")),
        ("news", NULL, "detached"),
        ("news", NULL, "lost"),
        # A source that keeps no deliveries lets go of them with the link.
        ("q", STATE, "outcome behind the detach"),
        ("news", STATE, "outcome behind the detach"),
    ],
)
def test_the_link_does_not_get_the_message_when_it_is_attached_again(
    broker: Broker, address: str, durable: bytes, how: str
) -> None:
    name = f"{address}-{durable.hex()}-{how}"
    with Client(broker.port) as peer:
        assert receive(peer.begin(), address, name, durable) == []
        peer.sender(address, name=f"to-{name}", handle=5)
        exchange(
            peer,
            transfer_frame(data_section(b"poison"), 5, uint(0), binary(b"t"), settled=TRUE),
        )
        exchange(peer, detach_frame(5))
        peer.send(flow_frame(uint(1), uint(10), uint(0)))
        refusal = disposition_frame(0, settled=TRUE, state=UNDELIVERABLE_HERE)
        if how == "outcome behind the detach":
            exchange(peer, detach_frame(1, closed=False), refusal)
        else:
            exchange(peer, refusal)
        if how == "detached":
            exchange(peer, detach_frame(1, closed=False))
        if how == "lost":
            peer.socket.close()
            peer = Client(broker.port).begin()
        assert receive(peer, address, name, durable) == []
        # Once more: what is kept from a link stays so.
        exchange(peer, detach_frame(1, closed=False))
        assert receive(peer, address, name, durable) == []
        exchange(peer, detach_frame(1))
        if address == "q":
            # It is there for others, and for a link that begins anew.
            found = receive(peer, address, name, durable)
            assert len(found) == 1
            number = found[0].field(1)
            assert isinstance(number, int)
            exchange(peer, disposition_frame(number, settled=TRUE, state=composite(0x24, [])))
            exchange(peer, detach_frame(1))
            assert waiting(broker.port, "q") == []
        peer.socket.close()
    broker.check()
