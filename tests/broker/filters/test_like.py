"""LIKE: % is any text, _ is one character, and no pattern takes long (JMS 2.0 §3.8.1.2)."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.like import LONGEST, LikePattern
from ferrymq_broker.filters.selector import selector
from tests.broker.filters.messages import message, verdict


@pytest.mark.parametrize(
    ("pattern", "escape", "matching", "other"),
    [
        ("12%3", "", ["123", "12993", "123123"], ["1234", "312"]),
        ("l_se", "", ["lose", "lüse"], ["loose", "lse"]),
        ("\\_%", "\\", ["_foo", "_"], ["bar", "x_"]),
        ("%", "", ["", "a", "a\nb"], []),
        ("", "", [""], ["a"]),
        ("_", "", ["a", "%", "\n", "😎"], ["", "ab"]),
        ("%%", "", ["", "abc"], []),
        ("a%a", "", ["aa", "aba"], ["a", "ab"]),
        ("%ab%ab%", "", ["abab", "xabyabz"], ["ab", "aba", "xabz"]),
        ("a.c", "", ["a.c"], ["abc"]),
        ("100!%", "!", ["100%"], ["100", "1000"]),
        ("!!!_!a", "!", ["!_a"], ["!xa"]),
        ("%%%x", "%", ["%x"], ["x", "aax"]),
        ("%_b_%", "", ["abc", "xxabc", "abbc"], ["bc", "ab"]),
    ],
)
def test_patterns(pattern: str, escape: str, matching: list[str], other: list[str]):
    compiled = LikePattern(pattern, escape)
    assert [text for text in matching if not compiled.matches(text)] == []
    assert [text for text in other if compiled.matches(text)] == []


def as_regex(pattern: str, escape: str) -> re.Pattern[str]:
    tokens = re.findall(re.escape(escape) + "." if escape else "(?!)", pattern, re.S)
    parts = []
    rest = pattern
    while rest:
        if escape and rest.startswith(escape):
            parts.append(re.escape(rest[1]))
            rest = rest[2:]
        else:
            parts.append({"%": ".*", "_": "."}.get(rest[0], re.escape(rest[0])))
            rest = rest[1:]
    assert escape or not tokens
    return re.compile("".join(parts), re.S)


@given(st.text("ab%_!", max_size=10), st.text("ab%_!", max_size=14), st.sampled_from(["", "!"]))
def test_as_a_regular_expression_says(pattern: str, text: str, escape: str):
    if escape and len(pattern.replace("!!", "").rstrip("!")) != len(pattern.replace("!!", "")):
        return  # ends with its escape character
    wanted = as_regex(pattern, escape).fullmatch(text) is not None
    assert LikePattern(pattern, escape).matches(text) == wanted


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%_" * 2000 + "b", "a" * 200_000),
        ("%a" * 2000 + "%b%", "a" * 200_000),
        ("%" + "a" * 4000 + "_b%", "a" * 200_000),
        ("%" + "a_" * 2000 + "b%", "a" * 200_000),
        ("%" + "a" * 4000 + "b%", "a" * 200_000),
        ("%" + "_" * 4000 + "b", "a" * 200_000),
        ("a%" * 2000 + "b", "a" * 200_000),
    ],
)
def test_no_pattern_takes_long(pattern: str, text: str):
    compiled = LikePattern(pattern)
    began = time.process_time()
    assert not compiled.matches(text)
    assert compiled.matches(text + "b") == (as_if_backwards(pattern, text + "b"))
    assert time.process_time() - began < 3.0


def as_if_backwards(pattern: str, text: str) -> bool:
    """The textbook's answer by length and letters alone, for texts of a's with a b at the end."""
    if pattern.endswith("_b%"):
        return True
    return len(re.sub("%", "", pattern)) <= len(text)


def test_endless_texts_are_not_searched_step_by_step():
    longest = "x" * (LONGEST - 1) + "a"
    assert LikePattern("%_a%").matches(longest)
    assert not LikePattern("%_a%").matches("x" + longest)
    # Where nothing has to be searched, or only letters, the length does not matter.
    assert LikePattern("_x%_a").matches("x" + longest)
    assert LikePattern("%xa%").matches("x" + longest)


def test_an_escape_character_at_the_end_is_an_error():
    with pytest.raises(BrokerError, match="ends with its escape character"):
        selector("a LIKE 'b!' ESCAPE '!'")
    assert selector("a LIKE 'b!!' ESCAPE '!'").matches(message(application={"a": "b!"}))


def test_an_escape_is_one_character():
    for escape in ("''", "'ab'"):
        with pytest.raises(BrokerError, match="single character"):
            selector(f"a LIKE 'b' ESCAPE {escape}")


def test_what_is_no_string_is_not_like_one():
    subject = message(application={"n": 5, "t": True, "s": "5"})
    assert verdict("s LIKE '_'", subject) is True
    assert verdict("n LIKE '_'", subject) is False
    assert verdict("t NOT LIKE '_'", subject) is True
    assert verdict("missing LIKE '%'", subject) is None
    assert verdict("missing NOT LIKE '%'", subject) is None
