"""Transactions over the wire: what a controller is told, and when (AMQP 1.0 part 4)."""

from __future__ import annotations

import pytest

from tests.raw.answers import Answer, Composite
from tests.raw.client import Client
from tests.raw.frames import (
    COORDINATOR,
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
    array,
    binary,
    composite,
    data_section,
    described,
    mapping,
    string,
    symbol,
    uint,
)
from tests.wire.control import (
    ACCEPTED,
    HANDLE,
    RELEASED,
    Control,
    declare_body,
    delete,
    discharge_body,
    exchange,
    in_transaction,
    named,
    outcomes_by_id,
    waiting,
)

ROLLBACK, UNKNOWN = "amqp:transaction:rollback", "amqp:transaction:unknown-id"
BODIES = [data_section(b"%d" % number) for number in range(3)]


CONFIG = """
[[queue]]
pattern = "bounded-*"
max-length = 4
overflow = "block"
"""


@pytest.fixture
def control(peer: Client) -> Control:
    """The peer's control link."""
    return Control(peer)


def fill(broker: Broker, address: str, *bodies: bytes) -> None:
    """Put messages into a queue."""
    with Client(broker.port) as client:
        client.begin().sender(address).publish(list(bodies))


def take(peer: Client, address: str, count: int) -> list[int]:
    """Receive so many messages on handle 1, unsettled; their delivery-ids."""
    peer.send(attach_frame("mine", 1, True, source(string(address)), target()))
    peer.expect("attach", "flow")
    peer.send(flow_frame(uint(1), uint(count), uint(0)))
    return [number_of(one) for one in peer.arrivals(count)]


def number_of(transfer: Answer) -> int:
    """The delivery-id of a transfer."""
    number = transfer.field(1)
    assert isinstance(number, int)
    return number


def said_of(answers: list[Answer], role: bool, number: int) -> list[tuple[str, str, object]]:
    """What dispositions of this role say of a delivery: state, outcome in it, settled."""
    found: list[tuple[str, str, object]] = []
    for answer in named(answers, "disposition"):
        first, last, state = answer.field(1), answer.field(2), answer.field(4)
        assert isinstance(first, int)
        if answer.field(0) is not role or not first <= number <= (
            last if isinstance(last, int) else first
        ):
            continue
        inner = state.field(1) if isinstance(state, Composite) else None
        found.append(
            (
                state.name if isinstance(state, Composite) else "",
                inner.name if isinstance(inner, Composite) else "",
                answer.field(3),
            )
        )
    return found


@pytest.mark.spec("4.4.4.1", "broker-3")
@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
def test_the_outcome_of_a_posting_comes_before_the_discharge_and_is_settled_with_it(
    broker: Broker, peer: Client, control: Control, address: str, fail: bool
) -> None:
    peer.sender(address)
    txn = control.declare()
    (provisional,) = said_of(exchange(peer, control.post(txn)), True, 1)
    assert provisional == ("transactional-state", "accepted", False)
    assert waiting(broker.port, address) == []
    # One more, with the discharge right behind it.
    answers = exchange(peer, control.post(txn), control.discharge(txn, fail))
    first, last = said_of(answers, True, 1), said_of(answers, True, 2)
    (discharged,) = said_of(answers, True, 3)
    assert discharged == ("accepted", "", True)
    # Without a commit there is none, and nothing is left to wait for.
    final = ("" if fail else "accepted", "", True)
    assert first == [final] and last == [provisional, final]
    order = [said_of([answer], True, 2) or said_of([answer], True, 3) for answer in answers]
    assert [one for one in order if one] == [[provisional], [discharged], [final]]
    assert len(waiting(broker.port, address)) == (0 if fail else 2)


@pytest.mark.spec("4.4.4.1")
def test_an_outcome_that_cannot_be_kept_makes_the_commit_fail(
    broker: Broker, peer: Client, control: Control, address: str
) -> None:
    peer.sender(address)
    txn = control.declare()
    (promised,) = said_of(exchange(peer, control.post(txn)), True, 1)
    assert promised == ("transactional-state", "accepted", False)
    delete(broker.port, address)
    answers = exchange(peer, control.discharge(txn))
    refused = outcomes_by_id(answers)[2]
    assert refused.name == "rejected"
    reason = refused.field(0)
    assert isinstance(reason, Composite) and reason.field(0) == ROLLBACK


@pytest.mark.spec("4.4.2", "broker-3")
@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
def test_an_outcome_is_settled_with_the_discharge(
    broker: Broker, peer: Client, control: Control, address: str, fail: bool
) -> None:
    fill(broker, address, *BODIES)
    one, two, _ = take(peer, address, 3)
    txn = control.declare()
    accepted = in_transaction(txn, ACCEPTED)
    answers = exchange(peer, disposition_frame(one, uint(two), state=accepted))
    assert not any(answer.field(3) is True for answer in named(answers, "disposition"))
    answers = exchange(peer, control.discharge(txn, fail))
    settled = ("accepted", "", True)
    for number in (one, two):
        assert said_of(answers, False, number) == ([] if fail else [settled])
    # The delivery is the controller's as before, and nobody else's.
    assert waiting(broker.port, address) == []
    if fail:
        exchange(peer, disposition_frame(two, settled=TRUE, state=RELEASED))
        assert len(waiting(broker.port, address)) == 1
    exchange(peer, detach_frame(1))
    assert len(waiting(broker.port, address)) == (3 if fail else 1)


@pytest.mark.spec("4.4.2")
def test_a_delivery_in_two_transactions_ends_the_control_link(
    broker: Broker, peer: Client, control: Control, address: str
) -> None:
    fill(broker, address, BODIES[0])
    (number,) = take(peer, address, 1)
    first, second = control.declare(), control.declare()
    answers = exchange(
        peer,
        disposition_frame(number, state=in_transaction(first, ACCEPTED)),
        disposition_frame(number, state=in_transaction(second, ACCEPTED)),
    )
    (detach,) = named(answers, "detach")
    assert detach.field(0) == 0 and detach.condition == ROLLBACK


@pytest.mark.spec("4.4.3")
def test_a_browser_acquires_in_no_transaction(
    broker: Broker, peer: Client, control: Control, address: str
) -> None:
    fill(broker, address, BODIES[0])
    txn = control.declare()
    where = source(string(address), mode=symbol("copy"))
    peer.send(attach_frame("mine", 1, True, where, target()))
    peer.expect("attach", "flow")
    flow = flow_frame(uint(1), uint(1), uint(0), properties=mapping(symbol("txn-id"), binary(txn)))
    answers = exchange(peer, flow)
    (detach,) = named(answers, "detach")
    assert detach.condition == "amqp:not-implemented"
    assert not named(answers, "transfer")


@pytest.mark.spec("2.6.12", "4.4.4.3")
@pytest.mark.parametrize(
    "confirmed",
    [disposition_frame(0, settled=TRUE, state=RELEASED), disposition_frame(0, state=RELEASED)],
    ids=["settled", "unsettled"],
)
def test_what_a_rollback_releases_is_settled_when_the_receiver_has_confirmed_it(
    broker: Broker, peer: Client, control: Control, address: str, confirmed: bytes
) -> None:
    fill(broker, address, BODIES[0])
    # Its own outcome needs no agreement.
    where = source(string(address), outcomes=symbol("amqp:accepted:list"))
    peer.send(attach_frame("mine", 1, True, where, target()))
    peer.expect("attach", "flow")
    txn = control.declare()
    acquired = mapping(symbol("txn-id"), binary(txn))
    peer.send(flow_frame(uint(1), uint(1), uint(0), properties=acquired))
    assert number_of(peer.arrivals(1)[0]) == 0
    answers = exchange(peer, control.discharge(txn, fail=True))
    assert said_of(answers, False, 0) == [("released", "", False)]
    assert waiting(broker.port, address) == [BODIES[0]]
    # Whoever settles the confirmation has the last word.
    settled = [] if confirmed == disposition_frame(0, settled=TRUE, state=RELEASED) else [
        ("released", "", True)
    ]  # fmt: skip
    assert said_of(exchange(peer, confirmed), False, 0) == settled
    # It is forgotten.
    answers = exchange(peer, disposition_frame(0, settled=TRUE, state=ACCEPTED))
    assert not named(answers, "disposition") and not named(answers, "detach")
    assert len(waiting(broker.port, address)) == 1


@pytest.mark.spec("2.6.12", "4.4.4.3")
@pytest.mark.parametrize("settled", [NULL, TRUE], ids=["unsettled", "settled"])
def test_an_outcome_that_crosses_the_rollback_changes_nothing(
    broker: Broker, peer: Client, control: Control, address: str, settled: bytes
) -> None:
    fill(broker, address, BODIES[0])
    peer.send(attach_frame("mine", 1, True, source(string(address)), target()))
    peer.expect("attach", "flow")
    txn = control.declare()
    acquired = mapping(symbol("txn-id"), binary(txn))
    peer.send(flow_frame(uint(1), uint(1), uint(0), properties=acquired))
    peer.arrivals(1)
    exchange(peer, control.discharge(txn, fail=True))
    answers = exchange(peer, disposition_frame(0, settled=settled, state=ACCEPTED))
    assert not named(answers, "detach")
    assert said_of(answers, False, 0) == ([] if settled == TRUE else [("released", "", True)])
    assert waiting(broker.port, address) == [BODIES[0]]


@pytest.mark.spec("2.6.12", "4.4.4.1")
@pytest.mark.parametrize("settled", [NULL, TRUE], ids=["unsettled", "settled"])
def test_a_transaction_cannot_be_committed_with_an_outcome_of_what_a_rollback_has_released(
    broker: Broker, peer: Client, control: Control, address: str, settled: bytes
) -> None:
    fill(broker, address, BODIES[0])
    peer.send(attach_frame("mine", 1, True, source(string(address)), target()))
    peer.expect("attach", "flow")
    first, second = control.declare(), control.declare()
    acquired = mapping(symbol("txn-id"), binary(first))
    peer.send(flow_frame(uint(1), uint(1), uint(0), properties=acquired))
    peer.arrivals(1)
    exchange(peer, control.discharge(first, fail=True))
    late = disposition_frame(0, settled=settled, state=in_transaction(second, ACCEPTED))
    answers = exchange(peer, late, control.discharge(second))
    refused = outcomes_by_id([a for a in answers if a.field(0) is True])[3]
    reason = refused.field(0)
    assert refused.name == "rejected"
    assert isinstance(reason, Composite) and reason.field(0) == ROLLBACK
    assert waiting(broker.port, address) == [BODIES[0]]


@pytest.mark.spec("4.4.3")
@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
def test_a_message_that_was_acquired_and_sent_in_part_is_sent_to_its_end(
    broker: Broker, address: str, fail: bool
) -> None:
    large = data_section(b"x" * 60_000)
    fill(broker, address, large)
    with Client(broker.port) as peer:
        peer.open(open_frame(max_frame_size=512)).send(begin_frame(incoming_window=2)).expect(
            "begin"
        )
        control = Control(peer)
        txn = control.declare()
        peer.send(attach_frame("mine", 1, True, source(string(address)), target()))
        peer.expect("attach", "flow")
        acquired = mapping(symbol("txn-id"), binary(txn))
        window = {"next_incoming_id": uint(0), "incoming_window": 1}
        peer.send(flow_frame(uint(1), uint(1), uint(0), properties=acquired, **window))  # type: ignore[arg-type]
        (part,) = peer.arrivals(1)
        payload = part.payload
        peer.send(control.discharge(txn, fail), flow_frame(next_incoming_id=uint(1)))
        # Whatever becomes of it, it has come as a whole before its transaction ends.
        while (answer := peer.expect("transfer", "flow")).field(5) is True:
            payload += answer.payload
        assert (payload + answer.payload).endswith(large)
        discharged = peer.expect("disposition", "flow")
        assert said_of([discharged], True, 1) == [("accepted", "", True)]
        # It is the controller's now, or everybody's again.
        released = [("released", "", False)] if fail else []
        assert said_of(exchange(peer), False, 0) == released
        assert len(waiting(broker.port, address)) == fail
        peer.socket.close()


@pytest.mark.spec("4.2", "4.5.4")
def test_ids_are_short_and_each_its_own_whatever_stands_around_the_declare(
    peer: Client, control: Control
) -> None:
    ids = [control.declare() for _ in range(5)]
    assert len(set(ids)) == 5 and all(0 < len(txn) <= 32 for txn in ids)
    around = (
        composite(0x70, [TRUE])
        + composite(0x73, [NULL, NULL, NULL, string("noise")])
        + described(0x74, mapping(string("a"), TRUE))
        + declare_body()
        + described(0x78, mapping())
    )
    answers = exchange(peer, control.frame(around))
    assert outcomes_by_id(answers)[5].name == "declared"


@pytest.mark.spec("4.2")
@pytest.mark.parametrize(
    "body", [declare_body(), discharge_body(b"x")], ids=["declare", "discharge"]
)
def test_a_settled_message_ends_the_control_link(
    peer: Client, control: Control, body: bytes
) -> None:
    (detach,) = named(exchange(peer, control.frame(body, settled=TRUE)), "detach")
    assert detach.condition == "amqp:illegal-state"


@pytest.mark.spec("4.3")
def test_a_refused_discharge_ends_a_control_link_without_rejected(peer: Client) -> None:
    control = Control(peer, array(b"\xa3", 1, b"\x12amqp:accepted:list"))
    (detach,) = named(exchange(peer, control.discharge(b"nothing")), "detach")
    assert detach.condition == UNKNOWN


@pytest.mark.spec("4.1")
def test_an_id_is_good_on_every_session_of_its_connection_and_nowhere_else(
    broker: Broker, peer: Client, control: Control, address: str
) -> None:
    txn = control.declare()
    where = target(string(address))
    peer.send(begin_frame(1), attach_frame("s1", 0, source=source(), target=where, channel=1))
    peer.expect("begin")
    peer.expect("attach", "flow")
    peer.expect("flow")
    peer.send(
        transfer_frame(BODIES[0], 0, uint(0), binary(b"t"), state=in_transaction(txn), channel=1)
    )
    state = peer.expect("disposition", "flow").field(4)
    assert isinstance(state, Composite) and state.name == "transactional-state"
    with Client(broker.port) as other:
        other.open(open_frame(string("stranger"))).send(begin_frame()).expect("begin")
        other.sender(address)
        stranger = Control(other)
        answers = exchange(other, stranger.post(txn), stranger.discharge(txn))
        for number in (0, 1):
            refused = outcomes_by_id(answers)[number]
            reason = refused.field(0)
            assert refused.name == "rejected"
            assert isinstance(reason, Composite) and reason.field(0) == UNKNOWN
    exchange(peer, control.discharge(txn))
    assert waiting(broker.port, address) == [BODIES[0]]


@pytest.mark.spec("4.1", "4.2")
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "detached"])
def test_the_end_of_the_control_link_rolls_back_and_it_is_not_resumed(
    broker: Broker, peer: Client, control: Control, address: str, closed: bool
) -> None:
    peer.sender(address)
    txn = control.declare()
    exchange(peer, control.post(txn))
    exchange(peer, detach_frame(HANDLE, closed))
    assert waiting(broker.port, address) == []
    where = composite(COORDINATOR, [])
    tag = mapping(binary(b"0"), NULL)
    peer.send(attach_frame("control", HANDLE, source=source(), target=where, unsettled=tag))
    assert peer.expect("attach", "flow").field(7) in (None, {})
    answers = exchange(peer, control.discharge(txn))
    refused = outcomes_by_id(answers)[2]
    assert refused.name == "rejected"
    assert waiting(broker.port, address) == []


@pytest.mark.spec("broker-3")
def test_credit_that_was_used_in_a_transaction_that_failed_stays_used(
    broker: Broker, peer: Client, control: Control
) -> None:
    peer.sender("bounded-1")
    txn = control.declare()
    exchange(peer, control.post(txn), control.post(txn), control.discharge(txn, fail=True))
    peer.send(flow_frame(uint(0), delivery_count=uint(2), echo=TRUE))
    flow = peer.expect("flow", "empty")
    assert (flow.field(4), flow.field(5)) == (1, 2)
    # Four were granted in all, for the room of four.
    assert flow.field(6) == 2
