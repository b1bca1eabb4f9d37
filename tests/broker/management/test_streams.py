"""Streams: what lies in one is shown, and dropped."""

from __future__ import annotations

import pytest

from ferrymq_codec.scalars import Timestamp
from ferrymq_types.messaging import Data
from tests.broker.harness import Network, encode, message_annotations, text
from tests.broker.management.asker import Answer, Asker


def messages(answer: Answer) -> list[dict[str, object]]:
    assert answer.status == 200, answer.description
    found = answer.map()["messages"]
    assert isinstance(found, list)
    return found


def bodies(answer: Answer) -> list[bytes]:
    payloads = [message["message"] for message in messages(answer)]
    return [text(payload) for payload in payloads if isinstance(payload, bytes)]


def test_records_are_shown_and_stay(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "stream", "s")
    writer = net.connect().sender("s")
    writer.send(*[str(number).encode() for number in range(20)])
    assert bodies(asker.ask("PEEK", "stream", "s")) == [str(n).encode() for n in range(10)]
    some = asker.ask("PEEK", "stream", "s", {"from-offset": 17, "count": 100})
    assert bodies(some) == [b"17", b"18", b"19"]
    first = messages(some)[0]
    assert (first["offset"], first["partition"]) == (17, 0)
    assert type(first["time"]) is Timestamp and first["time"] == net.wall
    payload = first["message"]
    assert isinstance(payload, bytes)
    assert message_annotations(payload)["x-opt-offset"] == 17
    assert messages(asker.ask("PEEK", "stream", "s", {"from-offset": 20})) == []
    assert len(bodies(asker.ask("PEEK", "stream", "s"))) == 10


def test_records_are_shown_from_a_time_on(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "stream", "s")
    writer = net.connect().sender("s")
    for body in (b"a", b"b", b"c"):
        writer.send(body)
        net.advance(10)
    since = net.wall - 15_000
    assert bodies(asker.ask("PEEK", "stream", "s", {"from-time": since})) == [b"c"]


def test_partitions_are_looked_at_one_by_one(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "stream", "s", {"partitions": 2})
    net.connect().sender("s::1").send(b"x", b"y")
    assert bodies(asker.ask("PEEK", "stream", "s")) == []
    assert bodies(asker.ask("PEEK", "stream", "s", {"partition": 1})) == [b"x", b"y"]
    assert asker.ask("PEEK", "stream", "s", {"partition": 2}).status == 404


def test_an_answer_is_not_endless(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "stream", "s")
    writer = net.connect().sender("s")
    for _ in range(5):
        writer.send_encoded(encode(Data(b"x" * 400_000)))
    assert len(bodies(asker.ask("PEEK", "stream", "s"))) == 2
    writer.send_encoded(encode(Data(b"y" * 3_000_000)))
    assert len(bodies(asker.ask("PEEK", "stream", "s", {"from-offset": 5}))) == 1


@pytest.mark.parametrize(
    "body", [{"count": 1001}, {"count": -1}, {"from-offset": "x"}, {"partition": -1}, {"from": 1}]
)
def test_arguments_that_make_no_sense(asker: Asker, body: dict[str, object]) -> None:
    asker.ask("CREATE", "stream", "s")
    answer = asker.ask("PEEK", "stream", "s", body)
    assert answer.status == 400
    assert next(iter(body)) in answer.description


def test_a_purged_stream_goes_on_counting(net: Network, asker: Asker) -> None:
    asker.ask("CREATE", "stream", "s")
    writer = net.connect().sender("s")
    writer.send(b"a", b"b")
    assert asker.ask("PURGE", "stream", "s").map() == {"count": 2}
    writer.send(b"c")
    (message,) = messages(asker.ask("PEEK", "stream", "s"))
    assert message["offset"] == 2
