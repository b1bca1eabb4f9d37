"""Transactions that are committed once, however often they are tried."""

from __future__ import annotations

import pytest

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq_broker.management.install import install
from ferrymq_broker.nodes.policy import QueuePolicy, StreamPolicy
from ferrymq_codec.scalars import ULong
from ferrymq_types.messaging import Accepted, AmqpValue, MessageAnnotations, Rejected
from ferrymq_types.transactions import Discharge
from tests.broker.harness import Network
from tests.broker.management.asker import Asker
from tests.broker.transactions.kit import Controller, post, reason

PASSED = "ferrymq:fence-passed"


def fence(sequence: object, member: str = "0", **more: object) -> dict[str | int, object]:
    named = {f"ferrymq:fence-{name}": value for name, value in more.items()}
    return {
        "ferrymq:fence-group": "query",
        "ferrymq:fence-member": member,
        "ferrymq:fence-sequence": sequence,
        **named,
    }


def commit(
    control: Controller, txn: bytes, annotations: dict[str | int, object]
) -> OutgoingDelivery:
    return control.tell(
        MessageAnnotations(value=annotations), AmqpValue(value=Discharge(txn_id=txn, fail=False))
    )


class Writer:
    """Writes a message under a fence, and is told how that went."""

    def __init__(self, net: Network) -> None:
        self.client = net.connect()
        self.control = Controller(self.client)
        self.sender = self.client.sender("out")

    def write(self, body: bytes, annotations: dict[str | int, object]) -> OutgoingDelivery:
        txn = self.control.declare()
        post(self.sender, txn, body)
        return commit(self.control, txn, annotations)


@pytest.fixture
def net() -> Network:
    net = Network()
    net.declare("out", QueuePolicy())
    return net


def written(net: Network) -> list[bytes]:
    return net.connect().receiver("out", credit=100).bodies()


def test_a_sequence_is_committed_once(net: Network) -> None:
    writer = Writer(net)
    assert writer.write(b"one", fence(1)).remote_state == Accepted()
    assert reason(writer.write(b"one again", fence(1))).startswith(PASSED)
    assert reason(writer.write(b"older", fence(0))).startswith(PASSED)
    assert writer.write(b"two", fence(2)).remote_state == Accepted()
    assert written(net) == [b"one", b"two"]


def test_the_refusal_says_how_far_the_member_is(net: Network) -> None:
    writer = Writer(net)
    writer.write(b"seven", fence(7, width=3))
    state = writer.write(b"five", fence(5, width=3)).remote_state
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.info == {"group": "query", "member": "0", "sequence": 7, "width": 3}


def test_members_and_groups_have_their_own_sequences(net: Network) -> None:
    writer = Writer(net)
    for member in ("0", "1"):
        assert writer.write(member.encode(), fence(1, member)).remote_state == Accepted()
    other = fence(1) | {"ferrymq:fence-group": "another"}
    assert writer.write(b"another", other).remote_state == Accepted()
    assert written(net) == [b"0", b"1", b"another"]


def test_another_connection_is_held_to_it_too(net: Network) -> None:
    Writer(net).write(b"first", fence(1))
    assert reason(Writer(net).write(b"second", fence(1))).startswith(PASSED)
    assert written(net) == [b"first"]


def test_what_is_rolled_back_passes_no_fence(net: Network) -> None:
    writer = Writer(net)
    txn = writer.control.declare()
    post(writer.sender, txn, b"never")
    delivery = writer.control.tell(
        MessageAnnotations(value=fence(1)), AmqpValue(value=Discharge(txn_id=txn, fail=True))
    )
    assert delivery.remote_state == Accepted()
    assert writer.write(b"now", fence(1)).remote_state == Accepted()
    assert written(net) == [b"now"]


def test_a_transaction_that_cannot_be_committed_passes_no_fence(net: Network) -> None:
    net.declare("full", QueuePolicy(max_length=1))
    client = net.connect()
    control = Controller(client)
    sender = client.sender("full")
    txn = control.declare()
    post(sender, txn, b"one", b"two")
    assert "rollback" in reason(commit(control, txn, fence(1)))
    assert Writer(net).write(b"now", fence(1)).remote_state == Accepted()


def test_a_sequence_that_others_share_out_otherwise_is_refused(net: Network) -> None:
    writer = Writer(net)
    writer.write(b"0 of 2", fence(1, "0", width=2))
    assert reason(writer.write(b"1 of 3", fence(1, "1", width=3))).startswith("ferrymq:fence-width")
    assert writer.write(b"1 of 2", fence(1, "1", width=2)).remote_state == Accepted()
    assert writer.write(b"0 of 3", fence(2, "0", width=3)).remote_state == Accepted()


def test_streams_are_fenced_alike(net: Network) -> None:
    net.space.create("log", StreamPolicy())
    client = net.connect()
    control = Controller(client)
    sender = client.sender("log")
    for _ in range(3):
        txn = control.declare()
        post(sender, txn, b"record")
        commit(control, txn, fence(1))
    assert net.space.nodes["log"].message_count() == 1


@pytest.mark.parametrize(
    "annotations",
    [
        fence("one"),
        fence(-1),
        fence(ULong(2**63)),
        fence(True),
        fence(1, ""),
        {"ferrymq:fence-group": "query"},
        fence(1) | {"ferrymq:fence-member": 7},
        fence(1) | {"ferrymq:fence-group": ""},
        fence(1) | {"ferrymq:fence-group": "g" * 2000},
    ],
)
def test_half_a_fence_is_none(net: Network, annotations: dict[str | int, object]) -> None:
    writer = Writer(net)
    delivery = writer.write(b"never", annotations)
    if annotations.get("ferrymq:fence-member") == "":
        # A writer that is alone need not have a name.
        assert delivery.remote_state == Accepted()
        return
    assert reason(delivery).startswith("amqp:invalid-field")
    assert written(net) == []


def test_there_are_no_more_than_nodes() -> None:
    net = Network(max_nodes=2)
    net.declare("out", QueuePolicy())
    writer = Writer(net)
    assert writer.write(b"0", fence(1, "0")).remote_state == Accepted()
    assert writer.write(b"1", fence(1, "1")).remote_state == Accepted()
    assert reason(writer.write(b"2", fence(1, "2"))).startswith("amqp:resource-limit-exceeded")
    assert writer.write(b"0", fence(2, "0")).remote_state == Accepted()


def test_management_knows_them(net: Network) -> None:
    install(net.space, net.broker)
    Writer(net).write(b"nine", fence(9, "m", width=4))
    asker = Asker(net)
    mine = {"group": "query", "member": "m"}
    shown = asker.ask("READ", "org.ferrymq.fence", properties=mine).map()
    assert (shown["sequence"], shown["width"], shown["time"]) == (9, 4, net.wall)
    assert [row["member"] for row in asker.query("fence", attributeNames=["member"])] == ["m"]
    assert asker.ask("READ", "fence", properties=mine | {"member": "n"}).status == 404
    assert asker.ask("DELETE", "fence", properties=mine).status == 204
    assert asker.ask("READ", "fence", properties=mine).status == 404
    assert Writer(net).write(b"one", fence(1, "m")).remote_state == Accepted()
