"""What there is in streams, for who reads them by offsets: RANGES and LOCATE."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrymq_broker.management import ranges, sliced_query
from ferrymq_broker.management.policies import node_policy
from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.policy import StreamPolicy
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.messaging import Data
from tests.broker.harness import Network, encode
from tests.broker.management.asker import Answer, Asker, read_answer, request_sections
from tests.broker.management.rules import guard, rule, user
from tests.broker.stores import ManualStore
from tests.broker.streams.kit import declare


def streams_in(answer: Answer) -> dict[str, dict[str, object]]:
    assert answer.status == 200, answer.description
    found = answer.map()["streams"]
    assert isinstance(found, list)
    return {stream["name"]: stream for stream in found}


def ends(stream: dict[str, object]) -> list[tuple[object, object, object]]:
    partitions = stream["partitions"]
    assert isinstance(partitions, list)
    return [(p["partition"], p["first-offset"], p["next-offset"]) for p in partitions]


def located(asker: Asker, name: str, *positions: dict[str, object]) -> list[int]:
    answer = asker.ask("LOCATE", "stream", name, {"positions": list(positions)})
    assert answer.status == 200, answer.description
    found = answer.map()["offsets"]
    assert isinstance(found, list)
    return found


def test_ranges_of_some_streams(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "stream", "a", {"partitions": 2, "max-records": 8})
    asker.ask("CREATE", "stream", "b")
    net.space.set_alias("c", "a")
    begun = net.wall
    sender = net.connect().sender("a::1")
    for number in range(30):
        sender.send(b"%d" % number)
        net.advance(1)
    answer = asker.ask("RANGES", "stream", body={"names": ["b", "nosuch", "c", "a", "a"]})
    found = streams_in(answer)
    assert list(found) == ["a", "b", "c"]
    assert answer.map()["missing"] == ["nosuch"]
    assert "after" not in answer.map()
    _, first, end = ends(found["a"])[1]
    assert ends(found["a"])[0] == (0, 0, 0)
    assert end == 30 and isinstance(first, int) and first >= 20
    assert ends(found["c"]) == ends(found["a"])
    assert found["a"]["incarnation"] == asker.ask("READ", "stream", "a").map()["incarnation"]
    assert found["b"]["incarnation"] != found["a"]["incarnation"]
    partitions = found["a"]["partitions"]
    assert isinstance(partitions, list)
    empty, full = partitions
    assert (empty["first-time"], empty["last-time"], empty["bytes"]) == (None, None, 0)
    assert type(full["first-time"]) is Timestamp
    assert full["first-time"] == begun + first * 1000
    assert full["last-time"] == begun + 29_000
    peeked = asker.ask("PEEK", "stream", "a", {"partition": 1, "count": 1}).map()["messages"]
    assert isinstance(peeked, list) and peeked[0]["time"] == full["first-time"]


def test_ranges_of_one_that_the_request_names(asker: Asker) -> None:
    asker.ask("CREATE", "stream", "a")
    assert list(streams_in(asker.ask("RANGES", "stream", "a"))) == ["a"]
    assert asker.ask("RANGES", "stream", "nosuch").status == 404
    assert asker.ask("RANGES", "stream", "a", {"names": ["a"]}).status == 400


def test_ranges_of_all_that_one_may_read(net: Network, asker: Asker) -> None:
    for name in ("mine", "ours", "secret", "written"):
        asker.ask("CREATE", "stream", name)
    asker.ask("CREATE", "queue", "queue")
    net.space.set_alias("also", "mine")
    guard(
        net,
        rule("user:eve", "receive", "mine queue"),
        rule("user:eve", "browse", "ours"),
        rule("user:eve", "send manage", "written"),
    )
    eve = user(net, "eve")
    assert list(streams_in(eve.ask("RANGES", "stream"))) == ["mine", "ours"]
    names = ["mine", "also", "queue", "written", "secret", "nosuch"]
    answer = eve.ask("RANGES", "stream", body={"names": names})
    assert list(streams_in(answer)) == ["also", "mine"]
    # No difference between what is not there and what is not for her.
    assert answer.map()["missing"] == ["nosuch", "queue", "secret", "written"]
    nobody = user(net, "bob")
    assert nobody.ask("RANGES", "stream").map() == {"streams": [], "missing": []}
    assert eve.ask("RANGES", "stream", "mine").status == 200
    for name in ("secret", "nosuch", "written"):
        assert eve.ask("RANGES", "stream", name).status == 403
        assert eve.ask("LOCATE", "stream", name, {"positions": []}).status == 403
    assert eve.ask("LOCATE", "stream", "also", {"positions": []}).status == 200


def test_dynamic_ones_are_found_by_who_knows_them(net: Network) -> None:
    address = net.space.create_dynamic(StreamPolicy()).address
    declare(net, "s")
    guard(
        net,
        rule("user:eve", "receive", "s dynamic.*"),
        rule("user:bob", "receive manage", "s dynamic.*"),
    )
    eve, bob = user(net, "eve"), user(net, "bob")
    assert list(streams_in(eve.ask("RANGES", "stream"))) == ["s"]
    assert list(streams_in(eve.ask("RANGES", "stream", body={"names": [address]}))) == [address]
    assert list(streams_in(bob.ask("RANGES", "stream"))) == [address, "s"]


def test_what_dead_letters_are_in_takes_its_own_right(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "stream", "dead")
    asker.ask("CREATE", "queue", "q", {"dead-letter": "dead"})
    guard(
        net,
        rule("user:eve", "receive browse", "dead"),
        rule("user:dora", "dead-letter", "dead"),
    )
    assert user(net, "eve").ask("RANGES", "stream").map()["streams"] == []
    assert list(streams_in(user(net, "dora").ask("RANGES", "stream"))) == ["dead"]


def test_an_answer_that_ends_early_says_where_to_go_on(
    net: Network, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "_ANSWERED", 5)
    sizes = {"a": 2, "b": 2, "c": 9, "d": 1, "e": 4}
    for name, size in sizes.items():
        asker.ask("CREATE", "stream", name, {"partitions": size})
    for names in (None, ["x", *sizes]):
        parts: list[list[str]] = []
        missing: list[object] = []
        body: dict[str, object] = {} if names is None else {"names": names}
        while True:
            answer = asker.ask("RANGES", "stream", body=body)
            found = streams_in(answer)
            parts.append(list(found))
            assert all(len(ends(stream)) == sizes[name] for name, stream in found.items())
            left_out = answer.map()["missing"]
            assert isinstance(left_out, list)
            missing += left_out
            if "after" not in answer.map():
                break
            body["after"] = answer.map()["after"]
        assert parts == [["a", "b"], ["c"], ["d", "e"]]
        assert missing == ([] if names is None else ["x"])


def test_what_changes_between_two_answers(
    net: Network, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there all the time is told once; what has come or gone is told as it is then."""
    monkeypatch.setattr(ranges, "_ANSWERED", 2)
    for name in "bdfhj":
        net.space.create(name, node_policy("stream", {}))
    for names in (None, [*"abcdefghij"]):
        net.space.create("e", node_policy("stream", {}))
        body: dict[str, object] = {} if names is None else {"names": names}
        told: list[str] = []
        gone: list[object] = []

        def go_on(
            body: dict[str, object] = body, told: list[str] = told, gone: list[object] = gone
        ) -> object:
            answer = asker.ask("RANGES", "stream", body=body)
            told += streams_in(answer)
            missing = answer.map()["missing"]
            assert isinstance(missing, list)
            gone += missing
            body["after"] = answer.map().get("after")
            return body["after"]

        assert go_on() == "d"
        # The one that the last answer ended with goes, one that was told, one that was not; others
        # come before that place, and behind it.
        for name in "bde":
            net.space.remove(net.space.nodes[name])
        for name in "ag":
            net.space.create(name, node_policy("stream", {}))
        # One more has grown beyond any answer.
        asker.ask("UPDATE", "stream", "h", {"partitions": 9})
        while go_on() is not None:
            pass
        assert told == list("bdfghj")
        assert gone == ([] if names is None else list("acei"))
        for name in "ag":
            net.space.remove(net.space.nodes[name])
        for name in "bd":
            net.space.create(name, node_policy("stream", {}))


def test_others_are_served_while_many_are_gone_through(
    net: Network, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "_NAMES_AT_ONCE", 10)
    monkeypatch.setattr(sliced_query, "_SLICE", 0.0)
    for number in range(300):
        net.space.create(f"s{number:03}", node_policy("stream", {}))
    sections = request_sections(
        "RANGES", "stream", None, None, reply_to=asker.reply_to, message_id="1"
    )
    asker.sender.link.send(encode(*sections))
    turns = 0
    while not asker.receiver.deliveries:
        calls = net.later.copy()
        net.later.clear()
        for call in calls:
            call()
        while asker.client.step():
            pass
        turns += 1
        assert turns < 1000
        if turns == 3:
            # What is gone when its turn comes is left out.
            net.space.remove(net.space.nodes["s299"])
    assert turns >= 30
    (delivery,) = asker.receiver.take()
    assert list(streams_in(read_answer(delivery.payload))) == [f"s{n:03}" for n in range(299)]


def test_by_time(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "stream", "s", {"partitions": 2})
    sender = net.connect().sender("s::1")
    begun = net.wall
    for body in (b"a", b"b", b"c"):
        sender.send(body)
        net.advance(10)
    at = [begun - 1, begun, begun + 1, begun + 20_000, begun + 20_001, 2**62, -1]
    positions: list[dict[str, object]] = [{"partition": 1, "time": Timestamp(t)} for t in at]
    assert located(asker, "s", *positions) == [0, 0, 1, 2, 3, 3, 0]
    assert located(asker, "s", {"time": begun}) == [0]


SIZES = [10, 200, 30, 3000, 1, 1, 500, 60]


def fill(net: Network, address: str, sizes: list[int]) -> list[int]:
    """Records of about these sizes; what they have come to weigh."""
    sender = net.connect().sender(address)
    payloads = [encode(Data(b"x" * size)) for size in sizes]
    for payload in payloads:
        sender.link.send(payload, settled=True)
    net.run()
    return [len(payload) for payload in payloads]


def expected(sizes: list[int], offset: int, size: int) -> int:
    """Where so many bytes from an offset on end, the plain way."""
    end = offset
    while end < len(sizes) and size >= sizes[end]:
        size -= sizes[end]
        end += 1
    return min(len(sizes), max(end, offset + 1))


@pytest.mark.parametrize("segment", [1, 500, 100_000])
def test_by_bytes_in_memory(net: Network, asker: Asker, segment: int) -> None:
    declare(net, segment_bytes=segment, durable=False)
    weights = fill(net, "s", SIZES * 5)
    asked = [
        (offset, size)
        for offset in range(len(weights) + 1)
        for size in (0, 1, 25, 26, 300, 4000, 4001, 10**6, 2**63 - 1)
    ]
    positions: list[dict[str, object]] = [{"offset": o, "bytes": s} for o, s in asked]
    assert located(asker, "s", *positions) == [expected(weights, o, s) for o, s in asked]


def test_by_bytes_from_what_is_gone(net: Network, asker: Asker) -> None:
    stream = declare(net, max_records=5, segment_bytes=1)
    weights = fill(net, "s", [100] * 20)
    assert stream.range(0) == (15, 20)
    assert located(asker, "s", {"offset": 2, "bytes": 2 * weights[0]}) == [17]
    assert located(asker, "s", {"offset": 2, "bytes": 0}) == [16]
    assert located(asker, "s", {"offset": 20, "bytes": 5}) == [20]
    answer = asker.ask("LOCATE", "stream", "s", {"positions": [{"offset": 21, "bytes": 1}]})
    assert answer.status == 409
    assert "'s::0' has the records from 15 to before 20; offset 21" in answer.description


@given(
    sizes=st.lists(st.integers(1, 2000), min_size=1, max_size=120),
    segment=st.integers(1, 5000),
    steps=st.lists(st.integers(0, 3000), min_size=1, max_size=8),
)
@settings(max_examples=60, deadline=None)
def test_by_bytes_of_what_has_left_memory(sizes: list[int], segment: int, steps: list[int]) -> None:
    # After a restart nothing is in memory but the index of stretches.
    net = Network(store=ManualStore())
    declare(net, segment_bytes=segment)
    weights = fill(net, "s", sizes)
    net.restart()
    if "$management" not in net.space.nodes:
        install(net.space, net.broker)
    asker = Asker(net)
    end = len(weights)
    # Never goes back, whether the bytes become more or the offset.
    asked = sorted(itertools.accumulate(steps))
    table = [
        located(asker, "s", *[dict[str, object](offset=offset, bytes=size) for size in asked])
        for offset in range(end + 1)
    ]
    for offset, row in enumerate(table):
        assert row == sorted(row)
        assert all(min(offset + 1, end) <= found <= end for found in row)
        assert offset == 0 or all(a <= b for a, b in zip(table[offset - 1], row, strict=True))
    # No further from what is right than a segment at either end: one has `segment` bytes, or one
    # record.
    slack = 2 * max(segment, *weights)
    for offset in range(end):
        for size, found in zip(asked, table[offset], strict=True):
            if found < end:
                assert found >= expected(weights, offset, max(0, size - slack))
            assert found <= expected(weights, offset, size + slack)


@pytest.mark.parametrize(
    ("positions", "told"),
    [
        (None, "positions: a list"),
        ([1], "positions: a list"),
        ([{}], "time, or offset and bytes; one has nothing"),
        ([{"offset": 1}], "time, or offset and bytes"),
        ([{"offset": 1, "bytes": 1, "time": 1}], "time, or offset and bytes"),
        ([{"time": 1, "bytes": 1}], "time, or offset and bytes"),
        ([{"time": 1, "from": 1}], "time, or offset and bytes"),
        ([{"time": "x"}], "time: an integer"),
        ([{"offset": -1, "bytes": 1}], "offset: -1"),
        ([{"offset": 0, "bytes": -1}], "bytes: -1"),
        ([{"time": 0}] * 8001, "the list has 8001 items"),
    ],
)
def test_positions_that_make_no_sense(asker: Asker, positions: object, told: str) -> None:
    asker.ask("CREATE", "stream", "s")
    answer = asker.ask("LOCATE", "stream", "s", {"positions": positions})
    assert (answer.status, told in answer.description) == (400, True), answer.description


def test_a_partition_that_is_not_there(asker: Asker) -> None:
    asker.ask("CREATE", "stream", "s", {"partitions": 3})
    answer = asker.ask("LOCATE", "stream", "s", {"positions": [{"partition": 3, "time": 0}]})
    assert answer.status == 404
    assert "no partition '3'" in answer.description
    assert asker.ask("LOCATE", "stream", "nosuch", {"positions": []}).status == 404


@pytest.mark.parametrize(
    "body", [{"names": "s"}, {"names": [1]}, {"names": ["s"] * 10_001}, {"what": 1}, {"after": 1}]
)
def test_names_that_make_no_sense(asker: Asker, body: dict[str, object]) -> None:
    answer = asker.ask("RANGES", "stream", body=body)
    assert answer.status == 400
    assert next(iter(body)) in answer.description


def test_what_is_not_on_disk_is_not_there() -> None:
    store = ManualStore()
    net = Network(store=store)
    if "$management" not in net.space.nodes:
        install(net.space, net.broker)
    asker = Asker(net)
    asker.ask("CREATE", "stream", "s")
    weights = fill(net, "s", [100] * 5)
    writer, reader = net.connect().sender("s"), Asker(net)
    store.held = True
    writer.link.send(encode(Data(b"x" * 100)), settled=True)
    net.run()
    stream = net.space.nodes["s"]
    assert isinstance(stream, Stream) and stream.range(0) == (0, 5)
    assert stream.partitions[0].log.reach(3, 10**9) == 5
    store.release()
    net.run()
    found = streams_in(reader.ask("RANGES", "stream", body={"names": ["s"]}))
    assert ends(found["s"]) == [(0, 0, 6)]
    assert located(reader, "s", {"offset": 3, "bytes": 3 * weights[0]}) == [6]
