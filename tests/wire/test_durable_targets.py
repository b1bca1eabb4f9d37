"""Durable targets after the broker was killed: what they say they know is what was kept.

One broker is killed once for all cases: each has sent a message before, and attaches again after.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.raw.answers import Answer, Composite
from tests.raw.client import Client
from tests.raw.frames import attach_frame, source, target, transfer_frame
from tests.raw.process import Broker
from tests.raw.values import (
    NULL,
    TRUE,
    binary,
    composite,
    data_section,
    described,
    mapping,
    string,
    symbol,
    ubyte,
    uint,
)
from tests.wire.control import Control, exchange, in_transaction, outcomes_by_id, waiting

ONCE = mapping(symbol("delivery-mode"), symbol("exactly-once"))
SECOND = ubyte(1)
BATCH = uint(0x80013700)
TAG = b"t"
# The terminus durability of answers (AMQP 1.0 §3.5.5).
NOTHING = 0
STATE = 2


CONFIG = """
[store]
path = "store"

[[queue]]
pattern = "gone.*"
durable = false
[[queue]]
pattern = "all.*"
persist = true
[[queue]]
pattern = "batches.*"
unpack-batches = true
[[queue]]
name = "full"
max-bytes = 1
overflow = "reject"
[[topic]]
pattern = "topic.*"
[[topic]]
pattern = "lost.*"
durable = false
[[stream]]
pattern = "stream.*"

[[alias]]
name = "other"
to = "aliased"

[[queue]]
name = "bound"
[[queue]]
name = "bound.both"
[[queue]]
name = "gone.bound"
durable = false
[[queue]]
name = "gone.plain"
durable = false
[[queue]]
name = "gone.both"
durable = false

[[exchange]]
name = "kept"
[[exchange.binding]]
to = "bound"
key = "k"
[[exchange.binding]]
to = "gone.bound"
key = "gone"
[[exchange.binding]]
to = "gone.plain"
key = "plain"
[[exchange]]
name = "both"
routing = "fanout"
[[exchange.binding]]
to = "bound.both"
[[exchange.binding]]
to = "gone.both"
"""


def message(durable: bool, to: str = "") -> bytes:
    """Encode a message."""
    header = composite(0x70, [TRUE]) if durable else b""
    properties = composite(0x73, [NULL, NULL, string(to)]) if to else b""
    return header + properties + data_section(b"x")


@dataclass
class Case:
    """A message to `address`, and what is to be known of it after the kill.

    `granted` is the durability in the answers, `outcome` what the map of the broker says after the
    kill, None if it knows nothing. There is one message at `found` then, the one that was sent or,
    if nothing is known, the one that is sent again.
    """

    name: str
    address: str
    payload: bytes
    outcome: str | None
    granted: int = STATE
    found: str = ""
    properties: bytes = NULL
    second: bool = False
    posted: bool = False
    format: bytes = NULL


def cases() -> Iterator[Case]:
    """All of them, each with an address of its own."""
    kinds = {
        "stored": ("q", STATE),
        "not stored": ("gone.q", NOTHING),
        "persisting": ("all.q", STATE),
    }
    number = 0
    for kind, (prefix, granted) in kinds.items():
        for durable in (True, False):
            kept = granted == STATE and (durable or kind == "persisting")
            for how in ("first", "second", "exactly-once", "transaction"):
                number += 1
                address = f"{prefix}{number}"
                yield Case(
                    f"{kind} queue, durable {durable}, {how}",
                    address,
                    message(durable),
                    "accepted" if kept else None,
                    granted,
                    found=address,
                    properties=ONCE if how == "exactly-once" else NULL,
                    second=how == "second",
                    posted=how == "transaction",
                )
    plain, durable = message(False), message(True)
    yield Case("alias", "other", durable, "accepted", found="aliased")
    yield Case("topic", "topic.a", durable, "accepted")
    yield Case("topic, plain message", "topic.b", plain, None)
    yield Case("topic that is not stored", "lost.a", durable, None, NOTHING)
    yield Case("stream", "stream.a", plain, "accepted")
    yield Case("exchange", "kept::k", durable, "accepted", found="bound")
    yield Case("exchange, plain message", "kept::plain", plain, None, found="gone.plain")
    yield Case("exchange to what is not stored", "kept::gone", durable, None, found="gone.bound")
    yield Case("exchange to both", "both", durable, "accepted", found="bound.both")
    yield Case("anonymous", "", message(True, "to.a"), "accepted", found="to.a")
    yield Case("anonymous, plain message", "", message(False, "to.b"), None, found="to.b")
    yield Case("anonymous to what is not stored", "", message(True, "gone.to"), None)
    for name, inner, outcome in (("", durable, "accepted"), (" of plain messages", plain, None)):
        address = f"batches.{'plain' if name else 'durable'}"
        batch = described(0x75, binary(inner))
        yield Case(f"batch{name}", address, batch, outcome, found=address, format=BATCH)
    yield Case("refused", "full", plain, "rejected")


CASES = list(cases())


class Link:
    """A link of a case, on a connection of its own."""

    def __init__(self, broker: Broker, at: int) -> None:
        self.case = CASES[at]
        self.name = f"l{at}"
        self.peer = Client(broker.port).begin()

    def attach(self, unsettled: bytes) -> Answer:
        """Attach with this map; the broker's attach."""
        case = self.case
        address = string(case.address) if case.address else NULL
        where = target(address, durable=uint(2), expiry=symbol("never"))
        mode = SECOND if case.second else NULL
        self.peer.send(
            attach_frame(
                self.name, 0, source=source(), target=where, rcv_settle_mode=mode,
                unsettled=unsettled, properties=case.properties,
            )
        )  # fmt: skip
        answer = self.peer.expect("attach", "flow")
        granted = answer.field(6)
        assert isinstance(granted, Composite)
        assert (granted.field(1) or NOTHING) == case.granted
        return answer

    def send(self) -> str:
        """Send the message of the case, committed where it is posted; the name of its outcome."""
        case = self.case
        if not case.posted:
            frame = transfer_frame(
                case.payload, 0, uint(0), binary(TAG), message_format=case.format
            )
            state = outcomes_by_id(exchange(self.peer, frame))[0]
            return state.name
        control = Control(self.peer)
        txn = control.declare()
        post = transfer_frame(case.payload, 0, uint(1), binary(TAG), state=in_transaction(txn))
        exchange(self.peer, post)
        next(control.ids)
        outcomes = outcomes_by_id(exchange(self.peer, control.discharge(txn)))
        assert outcomes[2].name == "accepted"
        return outcomes.get(1, outcomes[2]).name


@pytest.fixture(scope="module")
def aftermath(broker: Broker) -> Broker:
    """The broker, killed when all cases had their outcome, and started again."""
    links = [Link(broker, at) for at in range(len(CASES))]
    for link in links:
        link.attach(mapping())
        expected = "rejected" if link.case.outcome == "rejected" else "accepted"
        assert link.send() == expected, link.case
    broker.kill()
    for link in links:
        link.peer.socket.close()
    return broker.start()


@pytest.mark.spec("2.6.13", "3.5.5")
@pytest.mark.parametrize("at", range(len(CASES)), ids=[case.name for case in CASES])
def test_the_map_says_what_was_kept(aftermath: Broker, at: int) -> None:
    link = Link(aftermath, at)
    case = link.case
    known = link.attach(mapping(binary(TAG), NULL)).field(7) or {}
    assert isinstance(known, dict)
    states = {tag: state.name for tag, state in known.items() if isinstance(state, Composite)}
    assert states == ({} if case.outcome is None else {TAG: case.outcome})
    if case.outcome is None:
        assert link.send() == "accepted"
    link.peer.socket.close()
    if case.found:
        assert len(waiting(aftermath.port, case.found)) == 1
    aftermath.check()
