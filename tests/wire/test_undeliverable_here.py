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
from tests.wire.control import Control, exchange, in_transaction, named, waiting

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


def take_poison(peer: Client, address: str, name: str, durable: bytes) -> None:
    """Attach a link, publish a durable message, and have the link get it as delivery 0."""
    assert receive(peer.begin(), address, name, durable) == []
    peer.sender(address, name=f"to-{name}", handle=5)
    body = composite(0x70, [TRUE]) + data_section(b"poison")
    peer.send(transfer_frame(body, 5, uint(0), binary(b"t")))
    peer.arrivals(1)
    exchange(peer, detach_frame(5))


@pytest.mark.spec("3.4.5", "3.5.5")
@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize(
    ("address", "durable"), list(itertools.product(("q", "news"), (STATE, CONFIGURATION)))
)
def test_nor_when_the_broker_was_restarted(
    broker: Broker, address: str, durable: bytes, end: str
) -> None:
    name = f"{address}-{durable.hex()}-{end}"
    with Client(broker.port) as peer:
        take_poison(peer, address, name, durable)
        # Once it is confirmed, it is on disk.
        answers = exchange(peer, disposition_frame(0, state=UNDELIVERABLE_HERE))
        assert named(answers, "disposition")
    # Once more: the store is not read once and then rewritten without it.
    for _ in range(2):
        (broker.kill if end == "killed" else broker.stop)()
        broker.start()
        with Client(broker.port) as peer:
            assert receive(peer.begin(), address, name, durable) == []
            exchange(peer, detach_frame(1, closed=False))
    with Client(broker.port) as peer:
        if address == "q":
            found = receive(peer.begin(), address, f"other-{name}", NULL)
            assert [one.payload.endswith(data_section(b"poison")) for one in found] == [True]
            exchange(peer, disposition_frame(0, settled=TRUE, state=composite(0x24, [])))
            exchange(peer, detach_frame(1))
            handle = receive(peer, address, name, durable)
            assert handle == []
        else:
            receive(peer.begin(), address, name, durable)
        # The terminus ends, and the subscription.
        exchange(peer, detach_frame(1))
    broker.check()


@pytest.mark.spec("3.4.5", "4.4.2")
@pytest.mark.parametrize("address", ["q", "news"])
def test_nor_when_a_transaction_decides_behind_the_detach(broker: Broker, address: str) -> None:
    name = f"{address}-transaction"
    with Client(broker.port) as peer:
        take_poison(peer, address, name, STATE)
        control = Control(peer)
        txn = control.declare()
        refusal = disposition_frame(0, state=in_transaction(txn, UNDELIVERABLE_HERE))
        exchange(peer, refusal, detach_frame(1, closed=False))
        exchange(peer, control.discharge(txn))
        assert receive(peer, address, name, STATE) == []
        if address == "q":
            assert len(waiting(broker.port, "q")) == 1
        exchange(peer, detach_frame(1))
    with Client(broker.port) as peer:
        # Nothing is left for other tests.
        for one in receive(peer.begin(), address, f"last-{name}", NULL):
            number = one.field(1)
            assert isinstance(number, int)
            exchange(peer, disposition_frame(number, settled=TRUE, state=composite(0x24, [])))
