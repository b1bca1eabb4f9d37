"""Names of links that are attached again, as the same link or as another (AMQP 1.0 §2.6.13)."""

from __future__ import annotations

import pytest

from tests.raw.answers import Answer, Composite
from tests.raw.client import Client
from tests.raw.frames import (
    COORDINATOR,
    attach_frame,
    detach_frame,
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
    ubyte,
    uint,
)
from tests.wire.control import Control, exchange, in_transaction, named, waiting

ONCE = mapping(symbol("delivery-mode"), symbol("exactly-once"))
LEAST = mapping(symbol("delivery-mode"), symbol("at-least-once"))
STATE = uint(2)
NEVER = symbol("never")
TAG = b"0"


CONFIG = '[store]\npath = "store"\n'


class Link:
    """A link of the name `l` over which the test sends, on one connection after the other."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.peer = Client(broker.port).begin()
        self.answer: Answer | None = None

    def attach(
        self,
        address: str,
        properties: bytes = NULL,
        durable: bytes = NULL,
        unsettled: bytes = NULL,
    ) -> Link:
        expiry = NULL if durable == NULL else NEVER
        where = target(string(address), durable=durable, expiry=expiry)
        self.peer.send(
            attach_frame(
                "l", 0, source=source(), target=where, properties=properties, unsettled=unsettled
            )
        )
        self.answer = self.peer.expect("attach", "flow")
        self.peer.expect("flow")
        return self

    def send(self, body: bytes, number: int = 0) -> Link:
        """Send a message under the tag that every attachment begins with."""
        frame = transfer_frame(data_section(body), 0, uint(number), binary(TAG))
        (disposition,) = named(exchange(self.peer, frame), "disposition")
        state = disposition.field(4)
        assert isinstance(state, Composite) and state.name == "accepted", state
        return self

    def leave(self, how: str) -> Link:
        """Detach without closing, or lose the connection."""
        if how == "detached":
            self.peer.send(detach_frame(0, closed=False))
            self.peer.expect("detach", "flow", "disposition")
        else:
            self.peer.socket.close()
            self.peer = Client(self.broker.port).begin()
        return self

    def holds(self, address: str, *bodies: bytes) -> None:
        """Check that these messages are at an address, and nothing else."""
        self.peer.socket.close()
        found = waiting(self.broker.port, address)
        assert len(found) == len(bodies), found
        assert all(one.endswith(body) for one, body in zip(found, bodies, strict=True)), found
        self.broker.check()


HOWS = pytest.mark.parametrize("how", ["detached", "lost"])
KEPT = pytest.mark.parametrize(
    ("properties", "durable"),
    [(ONCE, NULL), (ONCE, STATE), (NULL, STATE), (ONCE, uint(0))],
    ids=["once", "once-durable", "durable", "once-lasting"],
)


@pytest.mark.spec("broker-2.3.8.1")
@HOWS
@KEPT
def test_a_name_that_is_attached_to_another_target_begins_anew(
    broker: Broker, address: str, properties: bytes, durable: bytes, how: str
) -> None:
    link = Link(broker)
    link.attach(f"{address}1", properties, durable).send(b"one").leave(how)
    link.attach(f"{address}2", properties, durable)
    assert link.answer is not None and link.answer.field(7) is None
    link.send(b"two", 0 if how == "lost" else 1)
    link.holds(f"{address}2", b"two")


@HOWS
@KEPT
def test_what_the_client_asks_about_is_that_of_the_same_target(
    broker: Broker, address: str, properties: bytes, durable: bytes, how: str
) -> None:
    link = Link(broker)
    link.attach(f"{address}1", properties, durable).send(b"one").leave(how)
    link.attach(f"{address}2", properties, durable, mapping(binary(TAG), NULL))
    assert link.answer is not None and link.answer.field(7) in (None, {})
    link.send(b"two", 0 if how == "lost" else 1)
    link.holds(f"{address}2", b"two")


@KEPT
def test_a_name_that_comes_back_to_its_first_target_begins_anew(
    broker: Broker, address: str, properties: bytes, durable: bytes
) -> None:
    link = Link(broker)
    link.attach(f"{address}1", properties, durable).send(b"one").leave("lost")
    link.attach(f"{address}2", properties, durable).leave("lost")
    link.attach(f"{address}1", properties, durable).send(b"two")
    link.holds(f"{address}1", b"one", b"two")


@pytest.mark.spec("broker-2.3.8.1")
@HOWS
def test_a_link_that_is_attached_as_it_was_knows_its_tags(
    broker: Broker, address: str, how: str
) -> None:
    for at, durable in enumerate((NULL, STATE)):
        link = Link(broker)
        link.attach(f"{address}{at}", ONCE, durable).send(b"one").leave(how)
        link.attach(f"{address}{at}", ONCE, durable).send(b"one", 0 if how == "lost" else 1)
        link.holds(f"{address}{at}", b"one")


@pytest.mark.parametrize(
    ("properties", "durable"),
    [(NULL, NULL), (LEAST, NULL), (ONCE, STATE), (NULL, STATE), (LEAST, STATE)],
)
@pytest.mark.parametrize("kept", [NULL, STATE], ids=["plain", "durable"])
def test_a_link_that_was_something_else_meanwhile_begins_anew(
    broker: Broker, address: str, kept: bytes, properties: bytes, durable: bytes
) -> None:
    if (properties, durable) == (ONCE, kept):
        durable = NULL
    link = Link(broker)
    link.attach(address, ONCE, kept).send(b"one").leave("lost")
    link.attach(address, properties, durable).leave("lost")
    link.attach(address, ONCE, kept).send(b"two")
    link.holds(address, b"one", b"two")


@pytest.mark.parametrize("kept", [NULL, STATE], ids=["plain", "durable"])
def test_a_link_that_was_to_a_coordinator_meanwhile_begins_anew(
    broker: Broker, address: str, kept: bytes
) -> None:
    link = Link(broker)
    link.attach(address, ONCE, kept).send(b"one").leave("lost")
    where = composite(COORDINATOR, [])
    link.peer.send(attach_frame("l", 0, source=source(), target=where))
    link.peer.expect("attach", "flow")
    link.leave("lost").attach(address, ONCE, kept).send(b"two")
    link.holds(address, b"one", b"two")


# -- the other direction -------------------------------------------------------------------------


def receive(
    peer: Client,
    address: str,
    unsettled: bytes = NULL,
    properties: bytes = NULL,
    durable: bytes = STATE,
) -> Answer:
    """Attach a link of the name `l` whose source outlives it; the broker's answer."""
    where = source(string(address), durable=durable, expiry=NEVER)
    peer.send(
        attach_frame(
            "l", 1, receiver=True, source=where, target=target(), unsettled=unsettled,
            rcv_settle_mode=ubyte(1), properties=properties,
        )
    )  # fmt: skip
    return peer.expect("attach", "flow")


def publish(peer: Client, address: str, body: bytes) -> None:
    peer.sender(address, name=f"to-{address}", handle=5)
    frame = transfer_frame(data_section(body), 5, uint(0), binary(body), settled=TRUE)
    exchange(peer, frame, detach_frame(5))


@HOWS
@pytest.mark.parametrize(
    ("elsewhere", "properties", "durable"),
    [(True, ONCE, STATE), (True, NULL, STATE), (False, NULL, STATE), (False, ONCE, uint(1))],
    ids=["once-elsewhere", "elsewhere", "other-mode", "other-durability"],
)
def test_a_name_that_is_attached_to_another_source_resumes_nothing(
    broker: Broker, address: str, elsewhere: bool, properties: bytes, durable: bytes, how: str
) -> None:
    with Client(broker.port) as peer:
        publish(peer.begin(), f"{address}1", b"one")
        first = properties if elsewhere else ONCE
        assert receive(peer, f"{address}1", properties=first).name == "attach"
        peer.send(flow_frame(uint(1), uint(1), uint(0)))
        (transfer,) = peer.arrivals(1)
        tag = transfer.field(2)
        assert isinstance(tag, bytes)
        if how == "detached":
            peer.send(detach_frame(1, closed=False))
            peer.expect("detach", "flow")
        else:
            peer.socket.close()
            peer = Client(broker.port).begin()
        # The client says that it has accepted what it had from the other link of this name.
        told = mapping(binary(tag), composite(0x24, []))
        asked = f"{address}2" if elsewhere else f"{address}1"
        if not elsewhere and durable != STATE:
            # Exactly once cannot be kept with that.
            properties = NULL
        answer = receive(peer, asked, told, properties, durable)
        assert answer.field(7) in (None, {})
        peer.send(detach_frame(1))
        peer.expect("detach", "flow", "transfer")
        assert len(waiting(broker.port, f"{address}1")) == 1
        peer.socket.close()
    broker.check()


@pytest.mark.spec("broker-2.3.8.1")
def test_a_tag_that_is_posted_again_is_accepted_when_the_transaction_is_over(
    broker: Broker, address: str
) -> None:
    link = Link(broker)
    link.attach(address, ONCE, STATE).send(b"one").leave("lost")
    link.attach(address, ONCE, STATE)
    control = Control(link.peer)
    txn = control.declare()
    number, state = uint(1), in_transaction(txn)
    exchange(link.peer, transfer_frame(data_section(b"one"), 0, number, binary(TAG), state=state))
    next(control.ids)
    exchange(link.peer, control.discharge(txn))
    link.leave("lost")
    link.attach(address, ONCE, STATE, mapping(binary(TAG), NULL))
    assert link.answer is not None
    unsettled = link.answer.field(7)
    assert isinstance(unsettled, dict)
    known = unsettled[TAG]
    assert isinstance(known, Composite) and known.name == "accepted"
    link.holds(address, b"one")
