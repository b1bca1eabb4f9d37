"""Decisions of the driver of a query over several brokers, while brokers come and go."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pyspark_ferrymq.brokers.discovery import BrokerDiscovery
from pyspark_ferrymq.brokers.grouping import Answer, Unreached, group
from pyspark_ferrymq.brokers.several_brokers import SeveralBrokers
from pyspark_ferrymq.errors import AmqpDataLossError, AmqpOptionError
from pyspark_ferrymq.offsets import Offset
from pyspark_ferrymq.options import BrokerOptions, SourceOptions, Values
from pyspark_ferrymq.options.broker_identity import BrokerIdentity, identity_of
from pyspark_ferrymq.options.connection import AmqpUnreachableError
from pyspark_ferrymq.reading import stream_reader as reading
from pyspark_ferrymq.reading.stream_reader import OffsetStreamReader
from pyspark_ferrymq.task_planning import RangePartition
from tests.spark.test_source_deciding import There, follow, ranges

DOWN = Unreached("nobody listens")


class Brokers:
    """Brokers that a test starts and stops: their answers and their streams, by URL."""

    def __init__(self, **streams: There) -> None:
        self.streams = {f"amqp://{host}": there for host, there in streams.items()}
        self.answers: dict[str, Answer] = {
            f"amqp://{host}": BrokerIdentity(f"id-{host}") for host in streams
        }
        self.now = 0.0
        self.asked: list[str] = []

    def discovery(self, settings: BrokerOptions) -> BrokerDiscovery:
        def start(work: Callable[[], None]) -> None:
            work()

        return BrokerDiscovery(settings, self.ask, lambda: self.now, start)

    def ask(self, settings: BrokerOptions) -> Answer:
        self.asked.append(settings.url)
        return self.answers.get(settings.url, DOWN)

    def open_one(self, settings: BrokerOptions) -> There:
        return self.streams[settings.url.split(",")[0]]

    def reader(
        self, monkeypatch: pytest.MonkeyPatch, *hosts: str, **options: str
    ) -> OffsetStreamReader:
        """A process of the driver that has just begun."""
        monkeypatch.setattr(reading, "open_service", self.open_one)
        brokers = self

        class Several(SeveralBrokers):
            def __init__(self, settings: BrokerOptions) -> None:
                super().__init__(settings, brokers.discovery(settings), brokers.open_one)

        monkeypatch.setattr(reading, "SeveralBrokers", Several)
        url = ",".join(f"amqp://{host}" for host in hosts)
        given = {"url": url, "subscribe": "orders", "startingOffsets": "earliest", **options}
        return OffsetStreamReader(SourceOptions.parse(given), ["body"])


def settings(*hosts: str, **options: str) -> BrokerOptions:
    url = ",".join(f"amqp://{host}" for host in hosts)
    return BrokerOptions.parse(Values({"url": url, **options}))


def orders(*ends: int, incarnation: str) -> There:
    there = There()
    there.make("orders", list(ends), incarnation)
    return there


# -- which URLs are one broker -----------------------------------------------------------------


def test_what_an_open_says() -> None:
    both = {"ferrymq:cluster": "c", "ferrymq:broker-id": "b"}
    assert identity_of(both) == BrokerIdentity("c", True)
    assert identity_of({"ferrymq:broker-id": "b"}) == BrokerIdentity("b")
    assert identity_of({"product": "other"}) == BrokerIdentity("")


def test_urls_of_one_identity_are_failovers() -> None:
    a, b = BrokerIdentity("a"), BrokerIdentity("b")
    brokers, silent = group(settings("h1", "h2", "h3"), [b, a, b])
    found = [(one.id, one.connection.url, one.connection.broker) for one in brokers]
    assert found == [("a", "amqp://h2", "a"), ("b", "amqp://h1,amqp://h3", "b")]
    assert brokers[1].connection.place == "amqp://h1:5672, amqp://h3:5672"
    assert silent == []


def test_a_url_without_an_answer_is_tried_only_where_it_is_a_failover() -> None:
    one, member = BrokerIdentity("a"), BrokerIdentity("a", True)
    for options, identity, url in (
        ({}, one, "amqp://h1"),
        ({"brokers": "1"}, one, "amqp://h1,amqp://h2"),
        ({}, member, "amqp://h1,amqp://h2"),
    ):
        brokers, silent = group(settings("h1", "h2", **options), [identity, DOWN])
        assert [broker.connection.url for broker in brokers] == [url]
        assert [each.url for each in silent] == ["amqp://h2"]


def test_several_brokers_need_an_id() -> None:
    answers = [BrokerIdentity(""), BrokerIdentity("b")]
    with pytest.raises(AmqpOptionError, match="amqp://h1:5672 tells no id"):
        group(settings("h1", "h2"), answers)
    # Two URLs of a broker that tells none are taken for one, as before.
    brokers, _ = group(settings("h1", "h2"), [BrokerIdentity(""), BrokerIdentity("")])
    assert [one.connection.url for one in brokers] == ["amqp://h1,amqp://h2"]


def test_more_brokers_than_the_option_says() -> None:
    answers = [BrokerIdentity("a"), BrokerIdentity("b")]
    with pytest.raises(AmqpOptionError, match=r"'brokers': it says 1, and the URLs lead to 2"):
        group(settings("h1", "h2", brokers="1"), answers)


def test_who_did_not_answer_is_asked_again_later() -> None:
    brokers = Brokers(a=There())
    found = brokers.discovery(settings("a", "b"))
    assert [one.id for one in found.find()] == ["id-a"]
    with pytest.raises(AmqpUnreachableError, match=r"amqp://b:5672 cannot be reached.*'brokers'"):
        found.require_all()
    brokers.answers["amqp://b"] = BrokerIdentity("id-b")
    brokers.now = 29.0
    assert [one.id for one in found.find()] == ["id-a"]
    brokers.now = 30.0
    found.find()
    assert [one.id for one in found.find()] == ["id-a", "id-b"]
    found.require_all()
    assert brokers.asked == ["amqp://a", "amqp://b", "amqp://b"]


def test_members_of_a_cluster_may_be_away(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers()
    brokers.answers["amqp://a"] = BrokerIdentity("c", True)
    found = brokers.discovery(settings("a", "b"))
    found.find()
    found.require_all()
    found.require_all()
    (record,) = caplog.records
    assert "goes on without amqp://b:5672" in record.getMessage()


def test_nobody_there() -> None:
    with pytest.raises(AmqpUnreachableError, match="nobody listens"):
        Brokers().discovery(settings("a", "b")).find()


# -- offsets -----------------------------------------------------------------------------------

TWO = (
    '{"v":2,"streams":{"orders":{"id-a":{"id":"1","p":{"0":10,"1":4}},'
    '"id-b":{"id":"2","p":{"0":7}}}}}'
)


def text(offset: dict[str, Any]) -> str:
    return json.dumps(offset, separators=(",", ":"))


def test_the_form_of_an_offset_with_brokers() -> None:
    assert text(Offset.from_json(json.loads(TWO)).to_json()) == TWO
    pinned = Offset.from_json(json.loads(TWO)).pinned().to_json()
    assert text(pinned).startswith('{"v":2,"pin":true,"streams":')
    assert Offset.from_json(pinned).pinned() == Offset.from_json(pinned)


def test_all_brokers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(a=orders(10, 4, incarnation="1"), b=orders(7, incarnation="2"))
    reader = brokers.reader(monkeypatch, "b", "a")
    start = reader.initialOffset()
    end = follow(reader, start)
    assert text({"v": 2, "streams": end["streams"]}) == TWO
    assert end["begin"] == start["streams"] and follow(reader, end) == end
    ends = reader.reportLatestOffset()
    assert ends is not None and text(ends) == TWO
    assert ranges(reader, start, end) == [
        "orders::0 at the broker 'id-a' from 0 to before 10",
        "orders::1 at the broker 'id-a' from 0 to before 4",
        "orders::0 at the broker 'id-b' from 0 to before 7",
    ]
    tasks = [one for one in reader.partitions(start, end) if isinstance(one, RangePartition)]
    urls = [one.connection and one.connection.url for one in tasks]
    assert urls == ["amqp://a", "amqp://a", "amqp://b"]
    # Another process repeats the batch.
    again = brokers.reader(monkeypatch, "a", "b")
    assert ranges(again, start, end) == ranges(reader, start, end)


def test_one_limit_for_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(a=orders(30, incarnation="1"), b=orders(10, incarnation="2"))
    reader = brokers.reader(monkeypatch, "a", "b", maxOffsetsPerTrigger="8")
    start = reader.initialOffset()
    assert ranges(reader, start, follow(reader, start)) == [
        "orders::0 at the broker 'id-a' from 0 to before 5",
        "orders::0 at the broker 'id-b' from 0 to before 3",
    ]


def test_a_broker_is_added_to_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(a=orders(10, incarnation="1"), b=orders(7, incarnation="2"))
    brokers.streams["amqp://b"].first = 3
    alone = brokers.reader(monkeypatch, "a")
    before = follow(alone, alone.initialOffset())
    # With one broker, offsets are what they always were.
    assert text(before["streams"]) == '{"orders":{"id":"1","p":{"0":10}}}'
    reader = brokers.reader(monkeypatch, "a", "b")
    middle = follow(reader, before)
    # In the first batch the new broker gets its position, in the next one it is read.
    assert ranges(reader, before, middle) == []
    assert ranges(brokers.reader(monkeypatch, "a", "b"), before, middle) == []
    end = follow(reader, middle)
    assert ranges(reader, middle, end) == ["orders::0 at the broker 'id-b' from 3 to before 7"]
    assert follow(reader, end) == end


def test_a_broker_that_comes_while_the_query_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(a=orders(10, incarnation="1"))
    reader = brokers.reader(monkeypatch, "a", "b", brokers="2")
    with pytest.raises(AmqpUnreachableError, match="amqp://b:5672 cannot be reached"):
        reader.initialOffset()
    # A query that has read only from the first broker goes on.
    checkpoint = json.loads('{"v":1,"streams":{"orders":{"id":"1","p":{"0":4}}}}')
    end = follow(reader, checkpoint)
    assert end["v"] == 1
    brokers.streams["amqp://b"] = orders(7, incarnation="2")
    brokers.answers["amqp://b"] = BrokerIdentity("id-b")
    brokers.now = 31.0
    follow(reader, end)
    middle = follow(reader, end)
    assert list(middle["streams"]["orders"]) == ["id-a", "id-b"]
    assert ranges(reader, middle, follow(reader, middle)) == [
        "orders::0 at the broker 'id-b' from 0 to before 7"
    ]


def test_a_broker_of_the_checkpoint_has_to_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(a=orders(10, incarnation="1"))
    reader = brokers.reader(monkeypatch, "a", "b", failOnDataLoss="false")
    with pytest.raises(AmqpUnreachableError, match="amqp://b:5672 cannot be reached"):
        follow(reader, json.loads(TWO))


@pytest.mark.parametrize("hosts", [("a",), ("a", "c")])
def test_a_broker_that_is_lost(
    hosts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = Brokers(a=orders(15, 4, incarnation="1"), c=orders(incarnation="3"))
    brokers.streams["amqp://a"].make("orders", [15, 4])
    two = json.loads(TWO)
    with pytest.raises(AmqpDataLossError) as caught:
        follow(brokers.reader(monkeypatch, *hosts), two)
    message = str(caught.value)
    assert "stream 'orders' at the broker 'id-b', partition 0: expected offsets from 7" in message
    assert "no URL leads to this broker any more" in message
    assert "'failOnDataLoss' to false" in message
    reader = brokers.reader(monkeypatch, *hosts, failOnDataLoss="false")
    end = follow(reader, two)
    assert [one.split(" from")[1] for one in ranges(reader, two, end)] == [" 10 to before 15"]
    after = follow(reader, end)
    assert "id-b" not in text(after)
    said = [each for each in caplog.records if "id-b" in each.getMessage()]
    assert len(said) == 1


def test_a_lost_broker_in_a_batch_that_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(a=orders(10, 4, incarnation="1"))
    start, end = Offset().to_json(), json.loads(TWO)
    with pytest.raises(AmqpDataLossError, match=r"'id-b'.*no URL leads to this broker"):
        brokers.reader(monkeypatch, "a").partitions(start, end)
    reader = brokers.reader(monkeypatch, "a", failOnDataLoss="false")
    assert ranges(reader, start, end) == [
        "orders::0 from 0 to before 10",
        "orders::1 from 0 to before 4",
    ]


def test_a_broker_that_has_become_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id is another one, and its streams are the same."""
    brokers = Brokers(a=orders(12, 4, incarnation="1"), b=orders(7, incarnation="2"))
    brokers.answers["amqp://a"] = BrokerIdentity("cluster", True)
    reader = brokers.reader(monkeypatch, "a", "b")
    end = follow(reader, json.loads(TWO))
    assert ranges(reader, json.loads(TWO), end) == [
        "orders::0 at the broker 'cluster' from 10 to before 12"
    ]


def test_without_the_broker_in_offsets_records_would_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: the brokers in an offset are needed."""
    brokers = Brokers(a=orders(10, 4, incarnation="1"), b=orders(7, incarnation="2"))
    reader = brokers.reader(monkeypatch, "a", "b", failOnDataLoss="false")
    kept: dict[str, Any] = json.loads(TWO)
    assert follow(reader, kept) == kept
    for broker in ("id-a", "id-b"):
        stripped = {"v": 1, "streams": {"orders": kept["streams"]["orders"][broker]}}
        other = brokers.reader(monkeypatch, "a", "b", failOnDataLoss="false")
        middle = follow(other, stripped)
        assert ranges(other, middle, follow(other, middle))
    # Without the incarnation too, the position of one broker would count for the other.
    wrong = {"v": 1, "streams": {"orders": {"id": "3", "p": {"0": 10}}}}
    with pytest.raises(AmqpDataLossError, match="no broker has this stream as it was"):
        follow(brokers.reader(monkeypatch, "a", "b"), wrong)


def test_offsets_that_are_given_name_their_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(a=orders(10, 4, incarnation="1"), b=orders(7, incarnation="2"))
    short = {"startingOffsets": '{"orders":{"0":1,"1":1}}'}
    with pytest.raises(AmqpOptionError, match=r"to name its broker.*\{\"v\":2,\"streams\":") as no:
        brokers.reader(monkeypatch, "a", "b", **short).initialOffset()
    assert '"id-a":{"id":"1","p":{"0":23}}' in str(no.value)
    brokers.reader(monkeypatch, "a", **short).initialOffset()
    reader = brokers.reader(monkeypatch, "a", "b", startingOffsets=TWO)
    assert text(Offset.from_json(reader.initialOffset()).unpinned().to_json()) == TWO
    lost = TWO.replace("id-b", "id-x").replace('"id":"2"', '"id":"9"')
    with pytest.raises(AmqpOptionError, match="no URL leads to a broker id-x"):
        brokers.reader(monkeypatch, "a", "b", startingOffsets=lost).initialOffset()


def test_holds_of_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(a=orders(10, 4, incarnation="1"), b=orders(7, incarnation="2"))
    reader = brokers.reader(monkeypatch, "a", "b", hold="q", startingOffsets="latest")
    reader.commit(follow(reader, reader.initialOffset()))
    assert brokers.streams["amqp://a"].holds == {"orders": {0: 10, 1: 4}}
    assert brokers.streams["amqp://b"].holds == {"orders": {0: 7}}


def test_a_stream_of_one_of_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(a=orders(10, incarnation="1"), b=There(returns=[3]))
    reader = brokers.reader(monkeypatch, "a", "b", subscribe="orders,returns")
    start = reader.initialOffset()
    assert len(ranges(reader, start, follow(reader, start))) == 2
    with pytest.raises(Exception, match="there is no stream 'none'; there is no stream 'none'"):
        brokers.reader(monkeypatch, "a", "b", subscribe="none").initialOffset()
