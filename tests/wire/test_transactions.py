"""Transactions over the wire: postings that are refused, cut off or mixed (AMQP 1.0 part 4)."""

from __future__ import annotations

import pytest

from tests.raw.answers import Answer, Composite, condition_of
from tests.raw.client import Client
from tests.raw.frames import (
    DECLARE,
    attach_frame,
    begin_frame,
    detach_frame,
    disposition_frame,
    end_frame,
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
from tests.wire.control import (
    ACCEPTED,
    HANDLE,
    RELEASED,
    Control,
    amqp_value,
    declare_body,
    delete,
    discharge_body,
    exchange,
    in_transaction,
    named,
    outcomes_by_id,
    waiting,
)

ROLLBACK = "amqp:transaction:rollback"
DATA = data_section(b"x")


# Queues with one place, and a limit of what a transaction may hold.
CONFIG = """
[[queue]]
pattern = "full-*"
max-length = 1
overflow = "reject"

[[exchange]]
name = "unbound"

[limits]
transaction-work = 4
transaction-bytes = "64KiB"
max-message-size = "50KiB"
"""


@pytest.fixture
def control(peer: Client) -> Control:
    """The peer's control link."""
    return Control(peer)


def attach(peer: Client, address: str | bytes, handle: int = 0, outcomes: bytes = NULL) -> None:
    """Attach a sender on this handle; an address that is encoded may be null."""
    where = target(string(address) if isinstance(address, str) else address)
    peer.send(attach_frame(f"s{handle}", handle, source=source(outcomes=outcomes), target=where))
    peer.expect("attach", "flow")
    peer.expect("flow")


def state_of(answers: list[Answer], number: int) -> Composite:
    """The last state of a delivery."""
    states = outcomes_by_id(answers)
    assert number in states, answers
    return states[number]


def rejection(answers: list[Answer], number: int) -> str:
    """The condition with which a delivery was rejected."""
    state = state_of(answers, number)
    assert state.name == "rejected", state
    condition = condition_of(state.field(0))
    assert condition is not None
    return condition[0]


def fill(broker: Broker, address: str) -> None:
    """Put one message into a queue, which is full then."""
    with Client(broker.port) as client:
        client.begin().sender(address).publish([DATA])


# -- refused postings before a discharge --------------------------------------------------------


@pytest.mark.spec("4.3")
@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
@pytest.mark.parametrize("settled", [NULL, TRUE], ids=["unsettled", "settled"])
def test_refused_postings_and_the_discharge_in_one_write(
    broker: Broker, peer: Client, control: Control, address: str, settled: bytes, fail: bool
) -> None:
    full = f"full-{address}"
    fill(broker, full)
    attach(peer, full)
    attach(peer, address, 1)
    one, other = control.declare(), control.declare()
    answers = exchange(
        peer,
        control.post(other, 1),
        control.post(one, 0, settled=settled),
        control.post(one, 0, settled=settled),
        control.discharge(one, fail),
    )
    # Two declares, a posting, two postings and the discharge: the ids are 0 … 5.
    assert not named(answers, "detach")
    if fail:
        assert state_of(answers, 5).name == "accepted"
    else:
        assert rejection(answers, 5) == ROLLBACK
    # The other transaction of the control link is as it was.
    answers = exchange(peer, control.discharge(other))
    assert state_of(answers, 6).name == "accepted"
    assert len(waiting(broker.port, address)) == 1


@pytest.mark.spec("4.3")
@pytest.mark.parametrize("limit", ["work", "bytes"])
def test_a_limit_of_the_transaction_is_passed_in_the_write_of_its_discharge(
    broker: Broker, peer: Client, control: Control, address: str, limit: str
) -> None:
    attach(peer, address)
    one, other = control.declare(), control.declare()
    size = 1 if limit == "work" else 40_000
    count = 6 if limit == "work" else 3
    answers = exchange(
        peer,
        *(control.post(one, 0, b"x" * size) for _ in range(count)),
        control.discharge(one),
    )
    assert not named(answers, "detach")
    assert rejection(answers, 2 + count) == ROLLBACK
    answers = exchange(peer, control.discharge(other, True))
    assert state_of(answers, 3 + count).name == "accepted"
    assert waiting(broker.port, address) == []


# -- postings that come to nothing ---------------------------------------------------------------


@pytest.mark.spec("4.4.4.1")
@pytest.mark.parametrize("frames", [1, 2], ids=["one-frame", "two-frames"])
def test_no_commit_without_a_message_that_was_too_large(
    broker: Broker, peer: Client, control: Control, address: str, frames: int
) -> None:
    attach(peer, address)
    txn = control.declare()
    state = in_transaction(txn)
    pieces = [(data_section(b"x" * (60_000 // frames)), state)] * frames
    answers = exchange(peer, control.post(txn), control.frames(pieces, 0), control.discharge(txn))
    (detach,) = named(answers, "detach")
    assert detach.error() is not None and detach.error()[0] == "amqp:link:message-size-exceeded"  # type: ignore[index]
    assert rejection(answers, 3) == ROLLBACK
    assert waiting(broker.port, address) == []


@pytest.mark.spec("4.4.4.1")
def test_no_commit_without_a_message_with_a_tag_that_is_taken(
    broker: Broker, peer: Client, control: Control, address: str
) -> None:
    attach(peer, address)
    txn = control.declare()
    state = in_transaction(txn)
    answers = exchange(
        peer,
        transfer_frame(DATA, 0, uint(1), binary(b"tag"), state=state),
        transfer_frame(DATA, 0, uint(2), binary(b"tag"), state=state),
        transfer_frame(discharge_body(txn), HANDLE, uint(3), binary(b"d")),
    )
    if named(answers, "detach"):
        assert rejection(answers, 3) == ROLLBACK
        assert waiting(broker.port, address) == []
    else:
        # Tags of links that cannot be resumed may come again: then both messages are there.
        assert state_of(answers, 3).name == "accepted"
        assert len(waiting(broker.port, address)) == 2


@pytest.mark.spec("4.4.4.1")
def test_no_commit_without_a_message_that_broke_the_settle_mode(
    broker: Broker, peer: Client, control: Control, address: str
) -> None:
    where = target(string(address))
    peer.send(attach_frame("s", 0, source=source(), target=where, snd_settle_mode=ubyte(0)))
    peer.expect("attach", "flow")
    peer.expect("flow")
    txn = control.declare()
    answers = exchange(peer, control.post(txn, settled=TRUE), control.discharge(txn))
    assert named(answers, "detach")
    assert rejection(answers, 2) == ROLLBACK
    assert waiting(broker.port, address) == []


@pytest.mark.spec("4.4.1")
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "detached"])
def test_no_commit_without_a_message_that_was_begun_when_its_link_ended(
    broker: Broker, peer: Client, control: Control, address: str, closed: bool
) -> None:
    attach(peer, address)
    txn = control.declare()
    begun = control.frames([(DATA, in_transaction(txn))], 0, whole=False)
    answers = exchange(
        peer, control.post(txn, body=b"whole"), begun, detach_frame(0, closed),
        control.discharge(txn),
    )  # fmt: skip
    assert rejection(answers, 3) == ROLLBACK
    assert waiting(broker.port, address) == []


@pytest.mark.spec("4.4.1")
@pytest.mark.parametrize("ended", [False, True], ids=["half", "whole"])
def test_no_commit_without_a_message_that_was_begun_when_its_queue_was_deleted(
    broker: Broker, peer: Client, control: Control, address: str, ended: bool
) -> None:
    attach(peer, address)
    txn = control.declare()
    state = in_transaction(txn)
    exchange(peer, control.frames([(DATA, state)], 0, whole=False))
    delete(broker.port, address)
    rest = [transfer_frame(DATA, 0, state=state)] if ended else []
    answers = exchange(peer, *rest, control.discharge(txn))
    assert rejection(answers, 2) == ROLLBACK
    assert waiting(broker.port, address) == []


@pytest.mark.spec("4.4.1")
def test_no_commit_without_a_message_that_was_begun_when_its_session_ended(
    broker: Broker, peer: Client, control: Control, address: str
) -> None:
    peer.send(begin_frame(1))
    peer.expect("begin")
    where = target(string(address))
    peer.send(attach_frame("there", 0, source=source(), target=where, channel=1))
    peer.expect("attach", "flow")
    peer.expect("flow")
    txn = control.declare()
    peer.send(
        transfer_frame(
            DATA, 0, uint(0), binary(b"t"), more=TRUE, state=in_transaction(txn), channel=1
        ),
        end_frame(1),
    )
    peer.expect("end", "flow")
    answers = exchange(peer, control.discharge(txn))
    assert rejection(answers, 1) == ROLLBACK
    assert waiting(broker.port, address) == []


@pytest.mark.spec("4.4.1")
def test_a_discharge_inside_a_delivery_ends_the_control_link(
    peer: Client, control: Control, address: str
) -> None:
    attach(peer, address)
    txn = control.declare()
    begun = control.frames([(DATA, in_transaction(txn))], 0, whole=False)
    answers = exchange(peer, begun, control.discharge(txn))
    (detach,) = named(answers, "detach")
    assert detach.error() is not None and detach.error()[0] == ROLLBACK  # type: ignore[index]


@pytest.mark.spec("4.3")
def test_a_discharge_that_fails_is_completed_inside_a_delivery(
    broker: Broker, peer: Client, control: Control, address: str
) -> None:
    attach(peer, address)
    txn = control.declare()
    state = in_transaction(txn)
    begun = control.frames([(DATA, state)], 0, whole=False)
    rest = transfer_frame(DATA, 0, state=state)
    answers = exchange(peer, begun, control.discharge(txn, True), rest)
    assert not named(answers, "detach")
    assert state_of(answers, 2).name == "accepted"
    assert rejection(answers, 1) == "amqp:transaction:unknown-id"
    assert waiting(broker.port, address) == []


# -- frames of one delivery with different states -------------------------------------------------


@pytest.mark.spec("4.4.1")
@pytest.mark.parametrize(
    "states",
    [
        ["txn", "accepted"],
        ["accepted", "txn"],
        ["txn", "released", "txn"],
        ["none", "txn"],
        ["txn", "other"],
    ],
    ids="-".join,
)
def test_frames_of_one_delivery_that_name_different_states_are_refused(
    broker: Broker, peer: Client, control: Control, address: str, states: list[str]
) -> None:
    attach(peer, address)
    txn, other = control.declare(), control.declare()
    encoded = {
        "txn": in_transaction(txn),
        "other": in_transaction(other),
        "accepted": ACCEPTED,
        "released": RELEASED,
        "none": NULL,
    }
    pieces = [(data_section(b"x"), encoded[state]) for state in states]
    answers = exchange(peer, control.frames(pieces, 0), control.discharge(txn))
    (detach,) = named(answers, "detach")
    assert detach.error() is not None and detach.error()[0] == "amqp:not-allowed"  # type: ignore[index]
    assert rejection(answers, 3) == ROLLBACK
    assert waiting(broker.port, address) == []


# -- refusals that the client cannot be told with an outcome ---------------------------------------


@pytest.mark.spec("4.4.1")
@pytest.mark.parametrize(
    ("where", "condition"),
    [
        ("full", "amqp:resource-limit-exceeded"),
        ("unbound", "amqp:not-found"),
        ("anonymous", "amqp:not-found"),
    ],
)
def test_a_refused_posting_without_an_agreed_outcome_ends_its_link(
    broker: Broker, peer: Client, control: Control, address: str, where: str, condition: str
) -> None:
    full = f"full-{address}"
    fill(broker, full)
    node = {"full": string(full), "unbound": string("unbound"), "anonymous": NULL}[where]
    attach(peer, node, outcomes=symbol("amqp:accepted:list"))
    txn = control.declare()
    # On the link without an address, it is for an address that does not exist.
    about = composite(0x73, [NULL, NULL, string("unbound::nobody")])
    posting = control.frame(about + DATA, 0, in_transaction(txn))
    answers = exchange(peer, posting, control.discharge(txn))
    (detach,) = named(answers, "detach")
    error = detach.field(2)
    assert isinstance(error, Composite)
    assert error.field(0) == condition
    info = error.field(2)
    assert isinstance(info, dict) and info["delivery-tag"] == b"1"
    assert rejection(answers, 2) == ROLLBACK


# -- what the coordinator says ---------------------------------------------------------------------


@pytest.mark.spec("4.5.8")
@pytest.mark.parametrize(
    "body",
    [
        amqp_value(composite(DECLARE, [binary(b"global")])),
        DATA,
        amqp_value(string("neither")),
        b"\x00\x53\x77\xff",
        declare_body() + declare_body(),
        declare_body() + DATA,
        amqp_value(composite(0x32, [binary(b"x")])) + declare_body(),
    ],
    ids=["global-id", "data", "string", "garbled", "twice", "and-data", "discharge-and-declare"],
)
def test_what_the_coordinator_refuses_it_refuses_with_a_transaction_error(
    peer: Client, control: Control, body: bytes
) -> None:
    answers = exchange(peer, control.frame(body))
    assert rejection(answers, 0) in (ROLLBACK, "amqp:transaction:unknown-id")


@pytest.mark.spec("4.2")
def test_a_refused_declare_ends_a_control_link_without_rejected(
    broker: Broker, address: str
) -> None:
    with Client(broker.port) as client:
        control = Control(client.begin(), outcomes=symbol("amqp:accepted:list"))
        answers = exchange(
            client, control.frame(amqp_value(composite(DECLARE, [binary(b"global")])))
        )
        (detach,) = named(answers, "detach")
        error = detach.field(2)
        assert isinstance(error, Composite) and error.field(0) == ROLLBACK


# -- links that end and come back inside a transaction ---------------------------------------------


LASTING = {"durable": uint(2), "expiry": symbol("never")}


def attach_lasting(peer: Client, address: str, unsettled: bytes = NULL) -> Answer:
    """Attach the sender `lasting` on handle 0, whose target outlives it; the broker's attach."""
    where = target(string(address), **LASTING)
    peer.send(
        attach_frame(
            "lasting", 0, source=source(), target=where, rcv_settle_mode=ubyte(1),
            unsettled=unsettled,
        )
    )  # fmt: skip
    attach = peer.expect("attach", "flow")
    peer.expect("flow")
    return attach


@pytest.mark.spec("2.6.13")
@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
def test_a_lasting_link_that_comes_back_is_told_of_what_is_posted_and_not_committed(
    broker: Broker, peer: Client, control: Control, address: str, fail: bool
) -> None:
    attach_lasting(peer, address)
    txn = control.declare()
    exchange(peer, control.post(txn), detach_frame(0, False))
    attach = attach_lasting(peer, address, mapping(binary(b"1"), NULL))
    unsettled = attach.field(7)
    assert isinstance(unsettled, dict)
    state = unsettled[b"1"]
    assert isinstance(state, Composite) and state.fields[0] == txn
    answers = exchange(
        peer,
        transfer_frame(b"", 0, uint(2), binary(b"1"), resume=TRUE),
        transfer_frame(discharge_body(txn, fail), HANDLE, uint(3), binary(b"d")),
    )
    assert state_of(answers, 3).name == "accepted"
    if fail:
        assert waiting(broker.port, address) == []
    else:
        assert state_of(answers, 2).name == "accepted"
        assert len(waiting(broker.port, address)) == 1


@pytest.mark.spec("2.6.13", "broker-2.3.8.1")
@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
@pytest.mark.parametrize("durable", [NULL, uint(2)], ids=["plain", "durable"])
def test_what_is_posted_again_on_an_exactly_once_link_that_comes_back_is_stored_once(
    broker: Broker, peer: Client, control: Control, address: str, durable: bytes, fail: bool
) -> None:
    once = mapping(symbol("delivery-mode"), symbol("exactly-once"))
    expiry = NULL if durable == NULL else symbol("never")
    where = target(string(address), durable=durable, expiry=expiry)
    link = attach_frame("once", 0, source=source(), target=where, properties=once)
    txn = control.declare()
    # The second attachment asks for nothing: it sends again what it has no outcome of.
    for number in (1, 2):
        peer.sender(address, attach=link)
        posting = transfer_frame(DATA, 0, uint(number), binary(b"tag"), state=in_transaction(txn))
        assert state_of(exchange(peer, posting), number).name == "transactional-state"
        if number == 1:
            exchange(peer, detach_frame(0, closed=False))
    discharge = transfer_frame(discharge_body(txn, fail), HANDLE, uint(3), binary(b"d"))
    assert state_of(exchange(peer, discharge), 3).name == "accepted"
    assert len(waiting(broker.port, address)) == (0 if fail else 1)


@pytest.mark.spec("2.7.6")
@pytest.mark.parametrize("lasting", [False, True], ids=["ordinary", "lasting"])
@pytest.mark.parametrize("closed", [False, True], ids=["detached", "closed"])
def test_no_commit_without_an_outcome_that_came_when_its_link_had_ended(
    broker: Broker, peer: Client, control: Control, address: str, lasting: bool, closed: bool
) -> None:
    with Client(broker.port) as other:
        other.begin().sender(address).publish([DATA])
    where = source(string(address), **(LASTING if lasting else {}))
    peer.send(attach_frame("r", 1, receiver=True, source=where, target=target()))
    peer.expect("attach", "flow")
    peer.send(flow_frame(uint(1), uint(1), uint(0)))
    (transfer,) = peer.arrivals(1)
    number = transfer.field(1)
    assert isinstance(number, int)
    txn = control.declare()
    answers = exchange(
        peer,
        detach_frame(1, closed),
        disposition_frame(number, state=in_transaction(txn, ACCEPTED)),
        control.discharge(txn),
    )
    assert rejection(answers, 1) == ROLLBACK
