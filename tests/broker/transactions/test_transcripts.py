"""The exchanges of the broker book's tables 6, 7 and 8, in AMQP 1.0's terms: what goes over the
wire, in which order."""

from __future__ import annotations

import pytest

from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import Accepted, AmqpValue, Released, Source
from ferrymq_types.registry import typed
from ferrymq_types.transactions import (
    Coordinator,
    Declared,
    Discharge,
    TransactionalState,
)
from ferrymq_types.transport import Attach, Disposition, Flow, Role, Transfer
from tests.broker.harness import Network, decode
from tests.broker.transactions.kit import Controller, acquire, frames, post, retire
from tests.support.script import On


def _described(who: str, frame: On) -> tuple[object, ...] | None:
    """A frame as a table would have it; None for those that only give credit or open windows."""
    body = frame.body
    if isinstance(body, Attach):
        end = body.target if isinstance(body.target, Coordinator) else body.source
        return (who, "attach", type(end).__name__)
    if isinstance(body, Transfer):
        (section,) = decode(frame.payload or b"")
        value = typed(section.value) if isinstance(section.value, Described) else section.value
        what = type(value).__name__ if isinstance(section, AmqpValue) else value
        return (who, "transfer", body.delivery_id, what, bool(body.settled), body.state)
    if isinstance(body, Disposition):
        role = "receiver" if body.role is Role.RECEIVER else "sender"
        return (who, role, body.first, bool(body.settled), body.state)
    if isinstance(body, Flow) and body.properties:
        return (who, "flow", body.link_credit, body.drain, body.properties)
    return None


def transcript(control: Controller) -> list[tuple[object, ...]]:
    """All that was said since `wire` was set, with discharges told by their fail flag."""
    told = []
    for who, frame in frames(control.client):
        line = _described(who, frame)
        if line is not None:
            told.append(line)
    return told


@pytest.fixture
def control(net: Network) -> Controller:
    client = net.connect()
    client.wire = []
    return Controller(client)


def test_the_control_link(control: Controller) -> None:
    assert transcript(control) == [
        ("client", "attach", "Coordinator"),
        ("broker", "attach", "Coordinator"),
    ]


@pytest.mark.parametrize("committed", [True, False])
def test_transactional_publish(net: Network, control: Controller, committed: bool) -> None:
    """Table 6: the message is settled after the transaction is, and not before."""
    txn = control.declare()
    sender = control.client.sender("my_topic")
    control.client.wire = []
    post(sender, txn, b"message")
    control.discharge(txn, not committed)
    within = TransactionalState(txn_id=txn)
    decided = TransactionalState(txn_id=txn, outcome=Accepted())
    last: tuple[object, ...] = ("broker", "receiver", 1, True, Accepted() if committed else None)
    assert transcript(control) == [
        ("client", "transfer", 1, b"message", False, within),
        ("broker", "receiver", 1, False, decided),
        ("client", "transfer", 2, "Discharge", False, None),
        ("broker", "receiver", 2, True, Accepted()),
        last,
    ]


def test_the_declaration(control: Controller) -> None:
    txn = control.declare()
    assert transcript(control)[2:] == [
        ("client", "transfer", 0, "Declare", False, None),
        ("broker", "receiver", 0, True, Declared(txn_id=txn)),
    ]


@pytest.mark.parametrize("committed", [True, False])
def test_transactional_accept(net: Network, control: Controller, committed: bool) -> None:
    """Table 7: the broker settles the delivery when the transaction is, and after saying so."""
    net.connect().sender("my_queue").send(b"message")
    outcomes = ["amqp:accepted:list"]
    source = Source(address="my_queue", default_outcome=Released(), outcomes=outcomes)
    client = control.client
    client.wire = []
    receiver = client.receiver("my_queue", source=source, credit=10)
    txn = control.declare()
    retire(receiver, txn, *receiver.take())
    control.discharge(txn, not committed)
    wanted: list[tuple[object, ...]] = [
        ("client", "attach", "Source"),
        ("broker", "attach", "Source"),
        ("broker", "transfer", 0, b"message", False, None),
        ("client", "transfer", 0, "Declare", False, None),
        ("broker", "receiver", 0, True, Declared(txn_id=txn)),
        (
            "client",
            "receiver",
            0,
            False,
            TransactionalState(txn_id=txn, outcome=Accepted()),
        ),
        ("client", "transfer", 1, "Discharge", False, None),
        ("broker", "receiver", 1, True, Accepted()),
    ]
    if committed:
        wanted.append(("broker", "sender", 0, True, Accepted()))
    assert transcript(control) == wanted


@pytest.mark.parametrize("committed", [True, False])
def test_transactional_acquire(net: Network, control: Controller, committed: bool) -> None:
    """Table 8: credit with a txn-id is answered with transfers of that transaction."""
    net.connect().sender("my_queue").send(b"message")
    client = control.client
    receiver = client.receiver("my_queue")
    client.wire = []
    txn = control.declare()
    acquire(receiver, txn, 1, drain=True)
    control.discharge(txn, not committed)
    wanted: list[tuple[object, ...]] = [
        ("client", "transfer", 0, "Declare", False, None),
        ("broker", "receiver", 0, True, Declared(txn_id=txn)),
        ("client", "flow", 1, True, {"txn-id": txn}),
        ("broker", "transfer", 0, b"message", False, TransactionalState(txn_id=txn)),
        ("client", "transfer", 1, "Discharge", False, None),
        ("broker", "receiver", 1, True, Accepted()),
    ]
    if not committed:
        # It is somebody else's now.
        wanted.append(("broker", "sender", 0, False, Released()))
    assert transcript(control) == wanted
    assert net.queue("my_queue").available == (not committed)


def test_all_that_was_done_in_a_transaction_is_settled_after_it_in_every_session(
    net: Network, control: Controller
) -> None:
    client = control.client
    net.connect().sender("in").send(b"a", b"b")
    elsewhere = client.begin()
    receiver = client.receiver("in", credit=2, session=elsewhere)
    senders = [client.sender("out"), client.sender("out", session=elsewhere)]
    txn = control.declare()
    for sender in senders:
        post(sender, txn, b"c")
    retire(receiver, txn, *receiver.take())
    client.wire = []
    discharge = control.tell(AmqpValue(value=Discharge(txn_id=txn)))
    answers = [
        (frame.channel, frame.body.role, frame.body.first)
        for who, frame in frames(client)
        if who == "broker" and isinstance(frame.body, Disposition)
    ]
    assert answers[0] == (0, Role.RECEIVER, discharge.id)
    assert {channel for channel, _, _ in answers[1:]} == {0, 1}
    assert len(answers) == 4
