"""Transactions that are committed once, however often they are tried."""

from __future__ import annotations

import pytest

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq_broker.management.setup import install
from ferrymq_broker.values.policy import QueuePolicy, StreamPolicy
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


def test_each_target_has_fences_of_its_own(net: Network) -> None:
    writer = Writer(net)
    for target in ("here", "there"):
        assert writer.write(b"x", fence(7, target=target)).remote_state == Accepted()
        assert reason(writer.write(b"x", fence(7, target=target))).startswith(PASSED)
    assert reason(writer.write(b"x", fence(6, target="here"))).startswith(PASSED)
    # Without a target it is another fence again.
    assert writer.write(b"x", fence(1)).remote_state == Accepted()
    assert len(written(net)) == 3


def test_a_fence_without_a_target_rules_where_there_is_none_for_the_target(net: Network) -> None:
    """That of a writer of an older release, which names its target from now on."""
    writer = Writer(net)
    writer.write(b"old", fence(7))
    for sequence in (6, 7):
        again = writer.write(b"again", fence(sequence, target="here"))
        assert reason(again).startswith(PASSED)
    assert writer.write(b"new", fence(8, target="here")).remote_state == Accepted()
    assert reason(writer.write(b"again", fence(8, target="here"))).startswith(PASSED)
    assert reason(writer.write(b"again", fence(7, target="there"))).startswith(PASSED)
    assert written(net) == [b"old", b"new"]


def content(rows: int, digest: bytes) -> dict[str, object]:
    return {"target": "t", "rows": ULong(rows), "digest": digest}


def test_a_sequence_with_other_content_is_refused_as_such(net: Network) -> None:
    writer = Writer(net)
    writer.write(b"first", fence(1, **content(3, b"d" * 16)))
    assert reason(writer.write(b"x", fence(1, **content(3, b"d" * 16)))).startswith(PASSED)
    for other in (content(3, b"e" * 16), content(4, b"d" * 16)):
        state = writer.write(b"x", fence(1, **other)).remote_state
        assert isinstance(state, Rejected) and state.error is not None
        assert state.error.condition == "ferrymq:fence-content"
        assert state.error.info is not None
        assert (state.error.info["rows"], state.error.info["digest"]) == (3, b"d" * 16)
    # Who says nothing of the content is not held to it, nor is a lower sequence.
    assert reason(writer.write(b"x", fence(1, target="t"))).startswith(PASSED)
    assert reason(writer.write(b"x", fence(0, **content(9, b"f")))).startswith(PASSED)
    assert writer.write(b"second", fence(2, **content(9, b"f"))).remote_state == Accepted()
    assert written(net) == [b"first", b"second"]


def test_members_of_one_target_share_out_work_among_themselves(net: Network) -> None:
    writer = Writer(net)
    writer.write(b"0 of 2", fence(1, "0", width=2, target="here"))
    refused = writer.write(b"1 of 3", fence(1, "1", width=3, target="here"))
    assert reason(refused).startswith("ferrymq:fence-width")
    elsewhere = writer.write(b"1 of 3", fence(1, "1", width=3, target="there"))
    assert elsewhere.remote_state == Accepted()


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
        fence(1, target="t" * 2000),
        fence(1, target="a\nb"),
        fence(1, "a\nb", target="t"),
        fence(1, target=7),
        fence(1, digest="text", rows=1),
        fence(1, digest=b"d" * 65, rows=1),
        fence(1, digest=b"d"),
        fence(1, digest=b"d", rows=-1),
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


def test_management_tells_them_apart_by_target(net: Network) -> None:
    install(net.space, net.broker)
    writer = Writer(net)
    writer.write(b"x", fence(9, "m", **content(5, bytes(range(16)))))
    writer.write(b"x", fence(3, "m", target="u"))
    writer.write(b"x", fence(1, "m"))
    asker = Asker(net)
    shown = asker.ask("READ", "fence", "query\nm\nt").map()
    assert (shown["sequence"], shown["target"], shown["rows"]) == (9, "t", 5)
    assert (shown["digest"], shown["repeated"]) == (bytes(range(16)).hex(), 0)
    other = asker.ask("READ", "fence", properties={"group": "query", "member": "m", "target": "u"})
    assert (other.map()["sequence"], other.map()["rows"], other.map()["digest"]) == (3, None, None)
    # Where there is none for the target, the one without rules.
    third = asker.ask("READ", "fence", properties={"group": "query", "member": "m", "target": "v"})
    assert (third.map()["sequence"], third.map()["target"]) == (1, "")
    assert asker.ask("DELETE", "fence", "query\nm\nu").status == 204
    assert [row["target"] for row in asker.query("fence", attributeNames=["target"])] == ["", "t"]


def test_all_fences_of_a_group_are_forgotten_together(net: Network) -> None:
    install(net.space, net.broker)
    writer = Writer(net)
    for member in range(600):
        writer.write(b"x", fence(1, str(member), target=f"t{member % 2}"))
    writer.write(b"x", fence(1, "m") | {"ferrymq:fence-group": "query-2"})
    asker = Asker(net)
    only = asker.ask("DELETE", "fence", properties={"group": "query", "target": "t1"})
    assert only.status == 204
    assert len(net.space.fences) == 301
    assert asker.ask("DELETE", "fence", "query").status == 204
    assert net.space.fences.names() == [("query-2", "m", "")]
    assert asker.ask("DELETE", "fence", "query").status == 404


def test_several_members_at_once(net: Network) -> None:
    install(net.space, net.broker)
    writer = Writer(net)
    for member, sequence in (("0", 4), ("1", 6)):
        writer.write(b"x", fence(sequence, member, target="t"))
    # Without a target it is valid for all targets, as for READ.
    writer.write(b"x", fence(9, "all"))
    asker = Asker(net)

    def members(*names: object) -> object:
        body = {"group": "query", "target": "t", "members": list(names)}
        answer = asker.ask("MEMBERS", "fence", body=body)
        return answer.status if answer.status != 200 else answer.map()["fences"]

    read = asker.ask("READ", "fence", body={"group": "query", "member": "1", "target": "t"}).map()
    found = members("1", "missing", "all")
    assert isinstance(found, list)
    assert [(one["member"], one["target"], one["sequence"]) for one in found] == [
        ("1", "t", 6),
        ("all", "", 9),
    ]
    assert found[0].items() <= read.items()
    assert members() == []
    assert members(7) == 400
    assert members(*(["m"] * 101)) == 400


def test_the_member_that_is_furthest(net: Network) -> None:
    install(net.space, net.broker)
    writer = Writer(net)
    for member, sequence in (("0", 4), ("1", 6), ("2", 5)):
        writer.write(b"x", fence(sequence, member, target="t"))
    writer.write(b"x", fence(9, "0", target="u"))
    asker = Asker(net)
    found = asker.ask("LATEST", "fence", body={"group": "query", "target": "t"}).map()
    assert (found["member"], found["sequence"], found["target"]) == ("1", 6, "t")
    assert asker.ask("LATEST", "fence", body={"group": "query", "target": "v"}).status == 404
    assert asker.ask("LATEST", "fence", body={"group": "other", "target": "t"}).status == 404


def test_what_comes_again_is_counted(net: Network) -> None:
    install(net.space, net.broker)
    writer = Writer(net)
    writer.write(b"x", fence(9, "m", **content(5, b"d" * 16)))
    asker = Asker(net)

    def repeat(sequence: int, **more: object) -> int:
        arguments = {"group": "query", "member": "m", "target": "t", "sequence": sequence}
        return asker.ask("REPEAT", "fence", body=arguments | more).status

    assert repeat(9, rows=5, digest=b"d" * 16) == 200
    assert repeat(9) == 200
    assert repeat(9, rows=6, digest=b"d" * 16) == 409
    assert repeat(9, rows=5, digest=b"e" * 16) == 409
    assert repeat(8, rows=5, digest=b"d" * 16) == 409
    assert repeat(10, rows=5, digest=b"d" * 16) == 404
    assert repeat(9, rows=5, digest="text") == 400
    assert asker.ask("READ", "fence", "query\nm\nt").map()["repeated"] == 10
    # The count stays when the member goes on.
    writer.write(b"x", fence(10, "m", **content(7, b"f" * 16)))
    shown = asker.ask("READ", "fence", "query\nm\nt").map()
    assert (shown["rows"], shown["repeated"]) == (7, 10)
