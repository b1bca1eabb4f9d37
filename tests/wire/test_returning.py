"""Rejected messages go back to their publisher by their reply-to (AMQP broker book §2.3.7)."""

from __future__ import annotations

import pytest

from tests.raw.answers import Answer
from tests.raw.client import Client
from tests.raw.frames import (
    attach_frame,
    begin_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    open_frame,
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
    string,
    symbol,
    uint,
)

REJECTED = composite(0x25, [composite(0x1D, [symbol("app:broken"), string("no such article")])])


# A broker with rules: eve may send to the queue, and nowhere else; ann to her box, too.
CONFIG = """
    [security.users]
    ann = "secret"
    eve = "secret"
    [[queue]]
    name = "work"
    return-rejected = true
    dead-letter = "dead"
    [[queue]]
    name = "dead"
    [[queue]]
    name = "box"
    [[queue]]
    name = "orders"
    return-rejected = true
    [[alias]]
    name = "way"
    to = "box"
    [[rule]]
    who = "user:ann"
    may = ["send", "receive", "dead-letter"]
    where = ["work", "dead", "box", "orders"]
    [[rule]]
    who = "user:eve"
    may = ["send"]
    where = ["work", "orders"]
"""


def log_in(broker: Broker, user: str) -> Client:
    """Open a connection of a user, and a session on it."""
    client = Client(broker.port)
    client.authenticate("PLAIN", b"\0" + user.encode() + b"\0secret")
    client.open(open_frame(string(user))).send(begin_frame())
    client.expect("begin")
    return client


def message(reply_to: bytes, body: bytes) -> bytes:
    """Encode a message with a reply-to."""
    return composite(0x73, [NULL, NULL, NULL, NULL, reply_to]) + data_section(body)


def publish(client: Client, queue: str, reply_to: bytes, body: bytes) -> None:
    """Send one message on link 0 of a connection, and see it accepted."""
    client.sender(queue)
    client.send(transfer_frame(message(reply_to, body), 0, uint(0), binary(b"t")))
    client.expect("disposition", "flow")


def reject_one(client: Client, queue: str) -> None:
    """Take a message from a queue and reject it."""
    client.receiver(queue, credit=1, name="worker", handle=3)
    (arrived,) = client.arrivals(1)
    number = arrived.field(1)
    assert isinstance(number, int)
    client.send(disposition_frame(number, settled=TRUE, state=REJECTED), detach_frame(3))
    client.expect("detach", "flow")


def take(client: Client, queue: str, handle: int) -> Answer:
    """Take and accept the next message of a queue."""
    client.receiver(queue, credit=1, name=f"taker-{handle}", handle=handle)
    (arrived,) = client.arrivals(1)
    number = arrived.field(1)
    assert isinstance(number, int)
    client.send(disposition_frame(number, settled=TRUE, state=composite(0x24, [])))
    return arrived


def is_empty(client: Client, queue: str, handle: int) -> bool:
    """Whether a drain of the queue brings nothing."""
    client.send(
        attach_frame(f"drain-{handle}", handle, True, source=source(string(queue)), target=target())
    )
    client.expect("attach", "flow")
    client.send(flow_frame(uint(handle), uint(1), uint(0), drain=TRUE))
    while True:
        answer = client.read()
        assert answer is not None
        if answer.name == "transfer":
            return False
        if answer.name == "flow" and answer.field(8) is True:
            return True


@pytest.mark.spec("broker-2.3.7")
@pytest.mark.parametrize("reply_to", ["box", "way"])
def test_a_rejected_message_returns_with_the_reason(broker: Broker, reply_to: str) -> None:
    with log_in(broker, "ann") as ann:
        publish(ann, "work", string(reply_to), b"mine")
        reject_one(ann, "work")
        returned = take(ann, "box", 5)
        # The bare message is untouched, the reason is in the annotations.
        assert returned.payload.endswith(message(string(reply_to), b"mine"))
        for told in (b"x-opt-deadletter-reason", b"rejected", b"app:broken", b"no such article"):
            assert told in returned.payload
        assert is_empty(ann, "dead", 6)


@pytest.mark.spec("broker-2.3.7")
@pytest.mark.parametrize("reply_to", ["box", "way", "$management", "nowhere", "orders::x", None])
def test_a_publisher_gets_no_message_where_it_may_not_send(
    broker: Broker, reply_to: str | None
) -> None:
    route = NULL if reply_to is None else string(reply_to)
    with log_in(broker, "ann") as ann, log_in(broker, "eve") as eve:
        publish(eve, "work", route, b"forged")
        reject_one(ann, "work")
        # There is no way back: the dead letters get it.
        assert take(ann, "dead", 5).payload.endswith(message(route, b"forged"))
        assert is_empty(ann, "box", 6)


@pytest.mark.spec("broker-2.3.7")
def test_what_a_publisher_that_is_gone_may_do_nobody_knows(broker: Broker) -> None:
    with log_in(broker, "ann") as ann:
        with log_in(broker, "ann") as gone:
            publish(gone, "work", string("box"), b"late")
            gone.close()
        reject_one(ann, "work")
        assert take(ann, "dead", 5).payload.endswith(message(string("box"), b"late"))


@pytest.mark.spec("broker-2.3.7")
def test_a_message_that_returns_to_the_queue_that_it_left_returns_once(broker: Broker) -> None:
    with log_in(broker, "ann") as ann:
        publish(ann, "orders", string("orders"), b"round")
        reject_one(ann, "orders")
        assert not is_empty(ann, "orders", 5)
        ann.send(detach_frame(5))
        ann.expect("detach", "flow")
        reject_one(ann, "orders")
        assert is_empty(ann, "orders", 6)
