"""Bounded queues give no credit too much, and malformed messages reach nobody (§2.2.1, §2.3.9)."""

from __future__ import annotations

import pytest

from tests.raw.client import Client
from tests.raw.frames import (
    attach_frame,
    begin_frame,
    open_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.process import Broker
from tests.raw.values import binary, data_section, string, uint

# A broker with queues that hold three messages and keep senders back.
CONFIG = """
    [[queue]]
    pattern = "small-*"
    max-length = 3
    overflow = "block"
"""


def credit_of(peer: Client, handle: int) -> int:
    """Attach a sender; the credit that it is given at once."""
    where = target(string("small-shared"))
    peer.send(attach_frame(f"s{handle}", handle, source=source(), target=where))
    peer.expect("attach", "flow")
    found = [answer for answer in peer.come() if answer.name == "flow"]
    credit = found[-1].field(6) if found else 0
    return credit if isinstance(credit, int) else 0


@pytest.mark.spec("broker-2.3.9")
def test_links_together_get_no_more_credit_than_there_is_room(broker: Broker, peer: Client) -> None:
    with Client(broker.port) as other:
        # Another container: link names are its own.
        other.open(open_frame(string("other"))).send(begin_frame())
        other.expect("begin")
        given = [credit_of(client, handle) for client in (peer, other) for handle in range(3)]
    assert 1 <= sum(given) <= 3


@pytest.mark.spec("broker-2.3.9")
def test_a_transfer_beyond_the_credit_ends_its_link(peer: Client) -> None:
    where = target(string("small-own"))
    peer.send(attach_frame("s", 0, source=source(), target=where))
    allowed, sent, settled = 0, 0, 0
    while settled < 3:
        answer = peer.read()
        assert answer is not None
        if answer.name == "disposition":
            settled += 1
        elif answer.name == "flow":
            count, credit = answer.field(5), answer.field(6)
            assert isinstance(count, int) and isinstance(credit, int)
            allowed = count + credit
            assert allowed <= 3
        if sent < allowed:
            peer.send(message(sent))
            sent += 1
    # The queue is full, and there is no credit left.
    peer.send(message(3))
    assert peer.expect("detach", "flow").condition == "amqp:link:transfer-limit-exceeded"
    # The session goes on.
    peer.receiver("small-own", handle=1)
    assert len(peer.arrivals(3)) == 3


def message(number: int) -> bytes:
    """Encode a delivery of this number on link 0."""
    return transfer_frame(data_section(), 0, uint(number), binary(b"%d" % number))


@pytest.mark.spec("broker-2.2.1")
@pytest.mark.parametrize(
    "payload",
    [
        b"\x00\x53\x70\xc0\x05\x01",
        b"\x00\x53\x72\xc1\x09\x02",
        b"\x70\x00",
        b"\x00\x53\x70\xa1\x01x",
    ],
    ids=["header cut off", "annotations cut off", "no section", "header that is no list"],
)
def test_a_malformed_message_reaches_no_consumer(
    peer: Client, address: str, payload: bytes
) -> None:
    peer.sender(address).send(transfer_frame(payload, 0, uint(0), binary(b"t")))
    assert peer.verdict()[:2] == ("delivery", "amqp:decode-error")
    peer.send(transfer_frame(data_section(), 0, uint(1), binary(b"u")))
    peer.expect("disposition", "flow")
    peer.receiver(address, credit=10)
    (arrived,) = peer.arrivals(1)
    assert arrived.payload == data_section()
