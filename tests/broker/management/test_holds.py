"""HOLD and RELEASE: what somebody still has to copy stays, over restarts, until he says so."""

from __future__ import annotations

import logging

import pytest

from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.setup import install
from ferrymq_codec.scalars import Timestamp
from tests.broker.harness import Network
from tests.broker.management.asker import Answer, Asker
from tests.broker.management.rules import guard, rule, user
from tests.broker.stores import ManualStore
from tests.broker.streams.kit import declare, numbered


def hold(asker: Asker, holder: str, *offsets: tuple[int, int]) -> Answer:
    items = [{"partition": partition, "offset": offset} for partition, offset in offsets]
    return asker.ask("HOLD", "stream", "s", {"holder": holder, "offsets": items})


def holds(asker: Asker) -> list[dict[str, object]]:
    found = asker.ask("READ", "stream", "s").map()["holds"]
    assert isinstance(found, list)
    return found


def ends(asker: Asker) -> list[tuple[object, object]]:
    found = asker.ask("RANGES", "stream", "s").map()["streams"]
    assert isinstance(found, list)
    (stream,) = found
    return [(p["first-offset"], p["next-offset"]) for p in stream["partitions"]]


def test_from_hold_to_release(net: Network, asker: Asker) -> None:
    declare(net, partitions=2, max_records=2, segment_bytes=1)
    made = net.wall
    assert hold(asker, "copy", (0, 0), (1, 0)).status == 200
    net.connect().sender("s").send(*numbered(20))
    assert ends(asker) == [(0, 10), (0, 10)]
    (shown,) = holds(asker)
    assert (shown["holder"], shown["since"], shown["offsets"]) == ("copy", made, [0, 0])
    kept = shown["bytes"]
    assert isinstance(kept, int) and kept > 0
    assert asker.ask("READ", "stream", "s").map()["bytes-for-holds"] == kept
    (row,) = asker.query("stream", attributeNames=["name", "holds"])
    assert row["holds"] == [shown]
    assert hold(asker, "copy", (1, 6)).status == 200
    assert ends(asker) == [(0, 10), (6, 10)]
    assert asker.ask("RELEASE", "stream", "s", {"holder": "copy"}).status == 200
    assert ends(asker) == [(8, 10), (8, 10)]
    answer = asker.ask("RELEASE", "stream", "s", {"holder": "copy"})
    assert (answer.status, answer.description) == (404, "'s' has no hold 'copy'")


def test_offsets_out_of_range(net: Network, asker: Asker) -> None:
    declare(net, partitions=2, max_records=2, segment_bytes=1)
    net.connect().sender("s::1").send(*numbered(10))
    for offset in (7, 11):
        answer = hold(asker, "copy", (0, 0), (1, offset))
        assert answer.status == 409
        assert "'s::1' has the records from 8 to before 10" in answer.description
        assert str(offset) in answer.description
    assert holds(asker) == []
    assert hold(asker, "copy", (2, 0)).status == 404
    assert asker.ask("HOLD", "stream", "t", {"holder": "x", "offsets": [{}]}).status == 404


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"offsets": [{"partition": 0, "offset": 0}]}, "holder is missing"),
        ({"holder": "", "offsets": [{"partition": 0, "offset": 0}]}, "1 to 256 characters"),
        ({"holder": "x"}, "offsets: a list"),
        ({"holder": "x", "offsets": []}, "at least one map"),
        ({"holder": "x", "offsets": [1]}, "a list with at least one map"),
        ({"holder": "x", "offsets": [{"partition": 0}]}, "partition and offset"),
        ({"holder": "x", "offsets": [{"partition": 0, "offset": -1}]}, "offset: -1"),
        ({"holder": "x", "offsets": [{"partition": 0, "offset": "a"}]}, "offset: an integer"),
        ({"holder": "x", "offsets": [{"partition": 0, "offset": 0}] * 2}, "0 occurs twice"),
        ({"holder": "x", "offset": 0}, "unknown argument 'offset'"),
    ],
)
def test_holds_that_make_no_sense(
    net: Network, asker: Asker, body: dict[str, object], told: str
) -> None:
    declare(net)
    answer = asker.ask("HOLD", "stream", "s", body)
    assert answer.status == 400 and told in answer.description, answer.description
    assert holds(asker) == []


def test_purge_and_delete_work_all_the_same(net: Network, asker: Asker) -> None:
    declare(net, max_records=2, segment_bytes=1)
    hold(asker, "copy", (0, 0))
    net.connect().sender("s").send(*numbered(10))
    assert asker.ask("PURGE", "stream", "s").map() == {"count": 10}
    assert ends(asker) == [(10, 10)]
    assert holds(asker)[0]["offsets"] == [10]
    assert asker.ask("DELETE", "stream", "s").status == 204
    declare(net)
    assert holds(asker) == []


def test_retention_that_is_changed_minds_holds(net: Network, asker: Asker) -> None:
    declare(net)
    net.connect().sender("s").send(*numbered(100))
    hold(asker, "copy", (0, 40))
    changed = asker.ask("UPDATE", "stream", "s", {"max-records": 8, "segment-bytes": 1024})
    assert changed.status == 200, changed.description
    first, end = ends(asker)[0]
    assert isinstance(first, int) and first <= 40 and end == 100


def test_a_hold_is_answered_when_it_is_on_disk() -> None:
    store = ManualStore()
    net = Network(store=store)
    if ADDRESS not in net.space.nodes:
        install(net.space, net.broker)
    asker = Asker(net)
    declare(net, max_records=1, segment_bytes=1)
    asker.ask("READ", "stream", "s")
    store.held = True
    with pytest.raises(ValueError, match="not enough values"):
        hold(asker, "copy", (0, 0))
    store.release()
    net.run()
    (delivery,) = asker.receiver.take()
    assert b"held" in delivery.payload
    net.connect().sender("s").send(*numbered(10))
    net.restart()
    if ADDRESS not in net.space.nodes:
        install(net.space, net.broker)
    again = Asker(net)
    assert ends(again) == [(0, 10)]
    (shown,) = holds(again)
    assert shown["holder"] == "copy" and not isinstance(shown["since"], Timestamp)


def test_changes_of_holds_are_on_record(
    net: Network, asker: Asker, caplog: pytest.LogCaptureFixture
) -> None:
    declare(net)
    caplog.set_level(logging.DEBUG)
    hold(asker, "copy", (0, 0))
    asker.ask("RANGES", "stream")
    asker.ask("LOCATE", "stream", "s", {"positions": []})
    asker.ask("RELEASE", "stream", "s", {"holder": "copy"})
    events = [one.getMessage() for one in caplog.records if one.name == "ferrymq.audit"]
    assert ["HOLD" in events[0], "RELEASE" in events[1], len(events)] == [True, True, 2]


@pytest.mark.parametrize(
    "name", ["line\nend", "\x1b[2J", "'; DROP", "Ü" * 256, "\U0001f980", "\x00", " ", "::0"]
)
def test_names_are_of_the_holders_choice(
    net: Network, asker: Asker, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    declare(net, max_records=1, segment_bytes=1)
    with caplog.at_level(logging.INFO, logger="ferrymq"):
        assert hold(asker, name, (0, 0)).status == 200
        net.connect().sender("s").send(*numbered(20))
        assert [shown["holder"] for shown in holds(asker)] == [name]
        assert ends(asker) == [(0, 20)]
        assert asker.ask("RELEASE", "stream", "s", {"holder": name}).status == 200
    # Nothing of it is a line of its own in the log, or obeyed by a terminal.
    assert not any("\x1b" in line or "\x00" in line for line in caplog.text.splitlines())
    assert holds(asker) == []


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_names_have_a_length(net: Network, asker: Asker, name: str) -> None:
    declare(net)
    assert hold(asker, name, (0, 0)).status == 400
    assert holds(asker) == []


def test_who_may_manage_one_stream_holds_nothing_of_another(net: Network) -> None:
    declare(net, "s", max_records=1, segment_bytes=1)
    declare(net, "mine", max_records=1, segment_bytes=1)
    guard(
        net,
        rule("user:eve", "receive", "s"),
        rule("user:eve", "receive manage", "mine"),
        rule("user:root", "*", "*"),
    )
    eve, root = user(net, "eve"), user(net, "root")
    items = [{"partition": 0, "offset": 0}]
    for operation, body in (
        ("HOLD", {"holder": "copy", "offsets": items}),
        ("RELEASE", {"holder": "copy"}),
    ):
        assert eve.ask(operation, "stream", "s", body).status == 403
        assert eve.ask(operation, "stream", "mine", body).status == 200
    assert root.ask("HOLD", "stream", "s", {"holder": "copy", "offsets": items}).status == 200
    # Nor does it let go what others hold.
    assert eve.ask("RELEASE", "stream", "s", {"holder": "copy"}).status == 403
    assert [shown["holder"] for shown in holds(root)] == ["copy"]
