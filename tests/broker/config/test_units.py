"""Durations and sizes: what people may write, and what the broker makes of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.config.units import (
    MAX_COUNT,
    MAX_DURATION,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("2d", 172_800_000),
        ("1h30m", 5_400_000),
        (" 1 H 30 m ", 5_400_000),
        ("1.5s", 1500),
        ("0.1ms", 1),
        ("0s", 0),
        (7, 7000),
        (0.25, 250),
        (0, 0),
    ],
)
def test_durations(text: object, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("value", [250, "250ms", 249.2])
def test_plain_numbers_of_a_machine_are_milliseconds(value: object) -> None:
    assert parse_duration(value, machine=True) == 250


@pytest.mark.parametrize(
    "value",
    [
        "",
        "5",
        "s",
        "5 parsecs",
        "-5s",
        "5s!",
        -1,
        True,
        None,
        [],
        math.inf,
        math.nan,
        "9" * 30 + "s",
    ],
)
def test_durations_that_are_none(value: object) -> None:
    with pytest.raises(ValueError):
        parse_duration(value)


@pytest.mark.parametrize("value", ["36526d", 10**12])
def test_a_duration_ends_within_a_lifetime(value: object) -> None:
    with pytest.raises(ValueError, match="100 years"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10MiB", 10 * 2**20),
        ("1GB", 10**9),
        ("64 kib", 65536),
        ("1.5KiB", 1536),
        ("2TiB", 2**41),
        ("12", 12),
        ("12B", 12),
        (12, 12),
        (0, 0),
    ],
)
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("value", ["", "MiB", "10 MiBs", "-1", "1e3", -1, 1.5, True, None])
def test_sizes_that_are_none(value: object) -> None:
    with pytest.raises(ValueError):
        parse_size(value)


def test_a_size_has_room_in_a_counter() -> None:
    assert parse_size(MAX_COUNT) == MAX_COUNT
    with pytest.raises(ValueError, match="the number is too large"):
        parse_size(MAX_COUNT + 1)


@given(st.integers(0, MAX_DURATION))
def test_a_duration_is_read_as_it_is_written(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@given(st.integers(0, 10**17))
def test_a_size_is_read_as_it_is_written(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    for parse in (parse_duration, parse_size):
        try:
            assert parse(text) >= 0
        except ValueError:
            pass
