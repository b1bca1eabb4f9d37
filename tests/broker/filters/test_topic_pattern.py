"""Patterns of words: * is one, # is any number (Apache filters §1.2)."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.topic_pattern import MAX_PATTERN, MAX_WORDS, TopicPattern, split


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.stock.#", ["usd.stock", "eur.stock.db"], ["stock.nasdaq", "usd.a.stock", "stock"]),
        ("#", ["", "a", "a.b.c", "."], []),
        ("*", ["a"], ["", "a.b", "."]),
        ("#.#", ["", "a", "a.b.c"], []),
        ("#.*", ["a", "a.b"], [""]),
        ("a.#", ["a", "a.b", "a.b.c"], ["", "b", "b.a", "aa"]),
        ("#.a", ["a", "b.a", "a.b.a"], ["", "a.b"]),
        ("#.a.#", ["a", "b.a", "a.b", "b.a.b"], ["", "b.b"]),
        ("a.*.b", ["a.x.b", "a..b"], ["a.b", "a.x.y.b"]),
        ("a.*.#.b", ["a.x.b", "a.x.y.b"], ["a.b"]),
        ("a.b", ["a.b"], ["a", "a.b.c", "a.*", "#"]),
        ("", [""], ["a", "."]),
        ("a#.b*", ["a#.b*"], ["a.b", "ax.by"]),
        ("*.b.#.b", ["a.b.b", "a.b.c.b"], ["a.b"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], other: list[str]):
    compiled = TopicPattern(pattern)
    assert [key for key in matching if not compiled.matches(key)] == []
    assert [key for key in other if compiled.matches(key)] == []


def test_what_a_pattern_knows_about_itself():
    assert TopicPattern("a.b").literal
    assert not TopicPattern("a.*").literal
    assert not TopicPattern("#").literal
    assert TopicPattern("#").everything
    assert TopicPattern("#.#").everything
    assert not TopicPattern("#.*").everything
    assert not TopicPattern("").everything


WORDS = st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=7).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "ab", "", "*", "#"]), max_size=7).map(".".join)


def as_regex(pattern: str) -> re.Pattern[str]:
    """Each word of a key ends with a semicolon here; so does each word of the pattern."""
    parts = {"*": "[^;]*;", "#": "(?:[^;]*;)*"}
    return re.compile("".join(parts.get(w, re.escape(w) + ";") for w in split(pattern)))


@given(PATTERNS, WORDS)
def test_as_a_regular_expression_says(pattern: str, key: str):
    words = split(key)
    wanted = as_regex(pattern).fullmatch("".join(word + ";" for word in words)) is not None
    assert TopicPattern(pattern).matches(key) == wanted
    assert TopicPattern(pattern).matches_words(words) == wanted


def test_no_pattern_takes_long():
    pattern = TopicPattern(".".join(["#.a"] * 500 + ["b"]))
    key = ".".join(["a"] * 100_000)
    began = time.process_time()
    assert not pattern.matches(key)
    assert time.process_time() - began < 2.0


def test_endless_keys_take_no_memory():
    assert len(split("." * 1_000_000)) == MAX_WORDS
    assert TopicPattern("a.#").matches("a" + "." * 1_000_000)
    assert not TopicPattern("a.#").matches("b" + "." * 1_000_000)


def test_a_pattern_has_a_length_at_most():
    assert TopicPattern("a" * MAX_PATTERN).matches("a" * MAX_PATTERN)
    with pytest.raises(BrokerError, match="2048") as refused:
        TopicPattern("a" * (MAX_PATTERN + 1))
    assert refused.value.condition == "amqp:invalid-field"
