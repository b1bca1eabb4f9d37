"""Filters that become ranges and selectors: never a row less than Spark would give."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from ferrymq import Message
from pyspark_ferrymq.metadata import StreamRanges
from pyspark_ferrymq.options.selection import Selection
from pyspark_ferrymq.planning import Range
from pyspark_ferrymq.reading.pushdown import Bounds
from pyspark_ferrymq.reading.selectors import selector_of
from tests.interop.broker_process import BrokerProcess
from tests.spark.kit import Streams, read

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Times of the records of each partition, in milliseconds: they never go back.
TIMES = [0, 0, 5, 5, 5, 7, 8, 100, 100, 101]


class Clock:
    """A service whose partitions have records of `TIMES`."""

    def at_time(self, name: str, times: Mapping[int, int]) -> dict[int, int]:
        return {
            number: next((i for i, at in enumerate(TIMES) if at >= time), len(TIMES))
            for number, time in times.items()
        }

    def ranges(self, selection: Selection) -> dict[str, StreamRanges]:
        raise AssertionError("nobody asks")

    def explain(self, name: str) -> str:
        raise AssertionError("nobody asks")

    def behind(self, name: str, places: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        raise AssertionError("nobody asks")

    def hold(self, name: str, holder: str, offsets: Mapping[int, int]) -> None:
        raise AssertionError("nobody asks")

    def close(self) -> None:
        pass


def true_of(filter: Filter, row: Mapping[str, object]) -> bool:
    """What Spark makes of a filter, of columns that are not null."""
    value = row[filter.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(filter, IsNotNull):
        return True
    wanted = filter.value  # type: ignore[attr-defined]
    return {
        EqualTo: lambda: value == wanted,
        EqualNullSafe: lambda: value == wanted,
        GreaterThan: lambda: value > wanted,
        GreaterThanOrEqual: lambda: value >= wanted,
        LessThan: lambda: value < wanted,
        LessThanOrEqual: lambda: value <= wanted,
        In: lambda: value in wanted,
    }[type(filter)]()


comparing = st.sampled_from(
    [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
)
moments = st.integers(-1000, 120_000).map(lambda us: EPOCH + timedelta(microseconds=us))


def filters_of(column: str, values: st.SearchStrategy[object]) -> st.SearchStrategy[Filter]:
    return (
        st.builds(lambda kind, value: kind((column,), value), comparing, values)
        | st.builds(
            lambda some: In((column,), tuple(some)), st.lists(values, min_size=1, max_size=4)
        )
        | st.just(IsNotNull((column,)))
    )


filters = st.lists(
    filters_of("offset", st.integers(-3, 13))
    | filters_of("partition", st.integers(-1, 4))
    | filters_of("address", st.sampled_from(["a", "b", "c"]))
    | filters_of("enqueuedTime", moments),
    max_size=4,
)


@given(filters)
def test_ranges_hold_what_filters_pass(given_filters: list[Filter]) -> None:
    bounds = Bounds()
    rest = [filter for filter in given_filters if not bounds.add(filter)]
    whole = [Range(name, "id", number, 0, len(TIMES)) for name in ("a", "b") for number in range(3)]
    left = {
        (each.stream, each.partition, offset)
        for each in bounds.narrow(whole, Clock())
        for offset in range(each.first, each.until)
    }
    for name, number, offset in itertools.product(("a", "b"), range(3), range(len(TIMES))):
        row = {
            "address": name,
            "partition": number,
            "offset": offset,
            "enqueuedTime": EPOCH + timedelta(milliseconds=TIMES[offset]),
        }
        passes = all(true_of(filter, row) for filter in given_filters)
        here = (name, number, offset) in left and all(true_of(filter, row) for filter in rest)
        assert here == passes


def test_what_ranges_do_not_say_is_left_to_spark() -> None:
    bounds = Bounds()
    for filter in (
        EqualTo(("body",), b"x"),
        EqualTo(("offset",), "7"),
        EqualTo(("offset",), None),
        EqualTo(("enqueuedTime",), datetime(2026, 1, 1)),
        Not(EqualTo(("offset",), 7)),
        IsNull(("offset",)),
        GreaterThan(("address",), "a"),
        In(("offset",), (1, 7)),
    ):
        assert not bounds.add(filter), filter


@pytest.mark.parametrize(
    ("filter", "selector"),
    [
        (EqualTo(("subject",), "it's"), "p.subject = 'it''s'"),
        (EqualNullSafe(("to",), "x"), "p.to = 'x'"),
        (In(("groupId",), ("a", None, "b")), "p.group_id IN ('a', 'b')"),
        (Not(In(("groupId",), ("a", "b"))), "NOT (p.group_id IN ('a', 'b'))"),
        (StringStartsWith(("subject",), "5%_!"), "p.subject LIKE '5!%!_!!%' ESCAPE '!'"),
        (StringEndsWith(("subject",), "'"), "p.subject LIKE '%''' ESCAPE '!'"),
        (StringContains(("subject",), "a"), "p.subject LIKE '%a%' ESCAPE '!'"),
        (IsNotNull(("contentType",)), "p.content_type IS NOT NULL"),
        # An id may be a number; in a selector a number is no string.
        (EqualTo(("messageId",), "5"), None),
        (EqualTo(("body",), "x"), None),
        (EqualTo(("subject", "x"), "x"), None),
        (EqualTo(("subject",), None), None),
        (EqualNullSafe(("subject",), None), None),
        # A malformed message has no subject for Spark, and may have one for the broker.
        (IsNull(("subject",)), None),
        (Not(IsNotNull(("subject",))), None),
        (Not(EqualNullSafe(("subject",), "x")), None),
        (Not(In(("subject",), ("a", None))), None),
        (In(("subject",), (None,)), None),
    ],
)
def test_selectors(filter: Filter, selector: str | None) -> None:
    assert selector_of(filter) == selector


@pytest.fixture(scope="module")
def streams(broker: BrokerProcess) -> Iterator[Streams]:
    with Streams(broker) as kit:
        yield kit


def test_with_and_without(spark: SparkSession, broker: BrokerProcess, streams: Streams) -> None:
    name = "pushed"
    streams.create(name, 2)
    subjects = [None, "", "a", "A", "ab", "a%b", "a_b", "a!b", "it's", "ä", "\U0001f600", "zz"]
    streams.publish(
        name,
        [
            Message(b"%d" % number, subject=subject, message_id=number if number % 2 else "5")
            for number, subject in enumerate(subjects * 20)
        ],
    )
    conditions = [
        "subject = 'a'",
        "subject <=> 'a'",
        "subject <> 'a'",
        "subject IN ('a', 'zz', 'it\\'s')",
        "subject NOT IN ('a', 'zz')",
        "subject IS NULL",
        "subject IS NOT NULL",
        "subject LIKE 'a%'",
        "subject LIKE '%b'",
        "contains(subject, '%')",
        "contains(subject, '_')",
        "NOT subject LIKE 'a%'",
        "subject > 'a'",
        "subject <= 'ä'",
        "messageId = '5'",
        "offset >= 30 AND offset < 50 AND partition = 1",
        "offset IN (3, 5, 99)",
        "partition <> 0",
        "address = 'pushed' AND offset < 3",
        "address = 'other'",
        "subject = 'a' AND offset > 60",
        "enqueuedTime < timestamp'2020-01-01 00:00:00'",
        "enqueuedTime > timestamp'2020-01-01 00:00:00' AND subject = 'zz'",
        "subject = 'a' OR offset = 1",
    ]
    plain = read(spark, broker, subscribe=name)
    expected = {text: _places(plain.where(text).collect()) for text in conditions}
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for text in conditions:
            # A frame of its own: Spark 4.3 gives the reader of one query to the next one.
            pushed = read(spark, broker, subscribe=name, pushdown=True)
            assert _places(pushed.where(text).collect()) == expected[text], text
        assert expected["subject = 'a'"] and not expected["address = 'other'"]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def _places(rows: list[object]) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in rows)  # type: ignore[attr-defined]
