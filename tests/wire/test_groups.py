"""A message group (AMQP 1.0 §3.2.4) waits while one of its messages may still come back."""

from __future__ import annotations

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
from tests.raw.values import (
    NULL,
    TRUE,
    binary,
    composite,
    data_section,
    mapping,
    string,
    symbol,
    uint,
)
from tests.wire.control import ACCEPTED, RELEASED, Control, exchange, in_transaction, manage, named

CONFIG = """
[store]
path = "store"

[[queue]]
pattern = "*"
groups = true
"""


def publish(broker: Broker, address: str, count: int = 3, group: str = "g") -> None:
    """Put durable messages of a group into a queue, the first of them ``1``."""
    about = composite(0x73, [*[NULL] * 10, string(group)])
    with Client(broker.port) as client:
        client.begin().sender(address)
        for number in range(count):
            body = composite(0x70, [TRUE]) + about + data_section(b"%d" % (number + 1))
            client.send(transfer_frame(body, 0, uint(number), binary(b"%d" % number)))
        exchange(client)


def receive(peer: Client, address: str, credit: int, name: str = "r") -> list[bytes]:
    """Attach a receiver on handle 1; the bodies of what it is sent."""
    where = source(string(address))
    peer.send(attach_frame(name, 1, receiver=True, source=where, target=target()))
    peer.expect("attach", "flow")
    return grant(peer, credit)


def grant(peer: Client, credit: int, count: int = 0) -> list[bytes]:
    """Give handle 1 credit, behind so many deliveries; the bodies of what it is sent."""
    return bodies(exchange(peer, flow_frame(uint(1), uint(credit), uint(count))))


def bodies(answers: list[Answer]) -> list[bytes]:
    """The bodies of the transfers."""
    return [one.payload[-1:] for one in named(answers, "transfer")]


@pytest.mark.spec("3.2.4", "4.4.2")
@pytest.mark.parametrize("end", ["rolled back", "lost", "committed", "released"])
@pytest.mark.parametrize("left", ["detached", "session ended"])
def test_a_group_stays_with_the_transaction_of_a_consumer_that_left(
    broker: Broker, address: str, end: str, left: str
) -> None:
    publish(broker, address)
    with Client(broker.port) as owner, Client(broker.port) as other:
        control = Control(owner.begin())
        assert receive(owner, address, 1) == [b"1"]
        txn = control.declare()
        outcome = RELEASED if end == "released" else ACCEPTED
        exchange(owner, disposition_frame(0, state=in_transaction(txn, outcome)))
        exchange(owner, detach_frame(1))
        assert receive(other.begin(), address, 10) == []
        # Others do not wait.
        publish(broker, address, 1, "another")
        assert bodies([other.expect("transfer", "flow")]) == [b"1"]
        if end == "lost":
            owner.socket.close()
        else:
            exchange(owner, control.discharge(txn, fail=end == "rolled back"))
        rest = [b"2", b"3"] if end == "committed" else [b"1", b"2", b"3"]
        assert bodies(other.arrivals(len(rest))) == rest
        assert bodies(exchange(other)) == []
    broker.check()


@pytest.mark.spec("3.2.4", "2.6.13")
@pytest.mark.parametrize("between", ["detached", "lost", "killed"])
@pytest.mark.parametrize("end", ["resumed", "begun anew"])
def test_a_group_waits_for_what_a_source_holds_that_outlives_its_link(
    broker: Broker, address: str, between: str, end: str
) -> None:
    publish(broker, address)
    owner = Client(broker.port).begin()
    where = source(string(address), durable=uint(2), expiry=symbol("never"))
    owner.send(
        attach_frame(address, 1, True, where, target()), flow_frame(uint(1), uint(1), uint(0))
    )
    (first,) = owner.arrivals(1)
    tag = first.field(2)
    assert isinstance(tag, bytes)
    if between == "detached":
        exchange(owner, detach_frame(1, closed=False))
    owner.socket.close()
    if between == "killed":
        broker.kill()
        broker.start()
    with Client(broker.port) as other, Client(broker.port) as owner:
        assert receive(other.begin(), address, 10) == []
        unsettled = mapping(binary(tag), NULL) if end == "resumed" else NULL
        owner.begin().send(attach_frame(address, 1, True, where, target(), unsettled=unsettled))
        owner.expect("attach", "flow")
        if end == "resumed":
            # It has its group again.
            assert (
                len(named(exchange(owner, flow_frame(uint(1), uint(10), uint(0))), "transfer")) == 3
            )
            assert bodies(exchange(other)) == []
        else:
            assert bodies(other.arrivals(3)) == [b"1", b"2", b"3"]
        exchange(owner, detach_frame(1))
    broker.check()


def let_one_be_active(broker: Broker, address: str) -> None:
    """Have one consumer of a queue at a time, from now on."""
    response = manage(broker.port, "UPDATE", address, mapping(string("single-active"), TRUE))
    assert b"\xc8" in response, response


@pytest.mark.spec("3.2.4")
def test_a_group_waits_for_what_its_consumer_holds_when_another_one_is_the_only_active(
    broker: Broker, address: str
) -> None:
    with Client(broker.port) as first, Client(broker.port) as second:
        # The first of equals is the one that is active: it has no credit yet.
        assert receive(first.begin(), address, 0) == []
        assert receive(second.begin(), address, 1, "other") == []
        publish(broker, address)
        assert bodies(second.arrivals(1)) == [b"1"]
        let_one_be_active(broker, address)
        assert grant(first, 10) == []
        exchange(second, disposition_frame(0, settled=TRUE, state=RELEASED))
        assert bodies(first.arrivals(3)) == [b"1", b"2", b"3"]
    broker.check()


@pytest.mark.spec("3.2.4")
def test_a_consumer_that_stays_active_goes_on_with_its_groups(broker: Broker, address: str) -> None:
    with Client(broker.port) as first:
        assert receive(first.begin(), address, 1) == []
        publish(broker, address)
        assert bodies(first.arrivals(1)) == [b"1"]
        let_one_be_active(broker, address)
        assert grant(first, 10, 1) == [b"2", b"3"]
    broker.check()
