"""Patterns of names: what they match, and which of several decides."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.addresses.templates import PatternTemplate
from ferrymq_broker.values.patterns import Pattern, overlap, specificity
from ferrymq_broker.values.policy import QueuePolicy

PATTERNS = st.text("ab*?", max_size=8)
NAMES = st.text("ab", max_size=8)


def expression(pattern: str) -> re.Pattern[str]:
    """The same as a regular expression."""
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c, re.escape(c)) for c in pattern), re.DOTALL)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("orders.*", ["orders.", "orders.eu", "orders.eu.de"], ["orders", "order.eu", "xorders.a"]),
        ("?-x", ["a-x", "ä-x"], ["-x", "ab-x"]),
        ("*.dead", [".dead", "a.dead", "a.dead.dead"], ["dead", "a.dead.b"]),
        ("a*b*c", ["abc", "axxbyyc", "abcbc"], ["abcb", "ac"]),
        ("*", ["", "x", "line\nbreak"], []),
    ],
)
def test_what_a_pattern_matches(pattern: str, yes: list[str], no: list[str]) -> None:
    shape = Pattern(pattern)
    assert [name for name in yes + no if shape.matches(name)] == yes


@given(PATTERNS, NAMES)
def test_patterns_are_regular_expressions_in_short(pattern: str, name: str) -> None:
    matched = expression(pattern).fullmatch(name) is not None
    assert Pattern(pattern).matches(name) is matched


@given(PATTERNS, PATTERNS, NAMES)
def test_a_name_that_two_patterns_match_proves_that_they_overlap(
    first: str, second: str, name: str
) -> None:
    if Pattern(first).matches(name) and Pattern(second).matches(name):
        assert overlap(first, second)
    assert overlap(first, second) == overlap(second, first)


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [("a*x", "a*y", False), ("a*x", "*bx", True), ("?", "", False), ("a?", "?b", True)],
)
def test_overlap(first: str, second: str, shared: bool) -> None:
    assert overlap(first, second) is shared


@given(st.lists(PATTERNS, unique=True, max_size=8), NAMES)
def test_the_most_specific_pattern_decides(patterns: list[str], name: str) -> None:
    template = PatternTemplate()
    for number, pattern in enumerate(patterns):
        template.add(pattern, QueuePolicy(max_length=number))
    found = template.match(name)
    matching = [pattern for pattern in patterns if expression(pattern).fullmatch(name)]
    if found is None:
        assert not matching
    else:
        assert specificity(found[0].text) == max(map(specificity, matching))
        assert found[1] == QueuePolicy(max_length=patterns.index(found[0].text))


def test_a_longer_beginning_decides_before_more_text() -> None:
    template = PatternTemplate()
    template.add("a*zzzzz", QueuePolicy(max_length=1))
    template.add("ab*", QueuePolicy(max_length=2))
    template.add("a*", QueuePolicy(max_length=3))
    assert template.policy_for("ab.zzzzz", []) == QueuePolicy(max_length=2)
    assert template.policy_for("ac.zzzzz", []) == QueuePolicy(max_length=1)
    assert template.policy_for("ac", []) == QueuePolicy(max_length=3)
    assert template.policy_for("b", []) is None


def test_many_patterns_cost_no_more_than_a_few() -> None:
    """Fifty thousand patterns: a lookup does not go through them."""
    template = PatternTemplate()
    for number in range(50_000):
        template.add(f"tenant-{number:05}.*", QueuePolicy(max_length=number))
    began = time.perf_counter()
    for number in range(0, 50_000, 50):
        assert template.policy_for(f"tenant-{number:05}.in", []) == QueuePolicy(max_length=number)
    # A walk through all of them would take minutes.
    assert time.perf_counter() - began < 5


def test_stars_do_not_multiply() -> None:
    pattern = Pattern("*a" * 400 + "b")
    began = time.perf_counter()
    assert not pattern.matches("a" * 1000)
    assert time.perf_counter() - began < 5
