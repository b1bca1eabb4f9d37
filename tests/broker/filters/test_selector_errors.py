"""Selectors that are wrong: refused with a place and a reason, and never anything else."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.selector import selector
from ferrymq_broker.filters.selector_parser import MAX_DEPTH, MAX_LENGTH
from tests.broker.filters.messages import message


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("colour =", 8, "expected"),
        ("colour = 'red' weight = 2", 15, "near 'weight = 2': expected"),
        ("x BETWEN 2 AND 3", 2, "an operator"),
        ("x BETWEEN 2", 11, "AND"),
        ("a = b = c", 6, "near '= c'"),
        ("a = 'x", 4, "quotation is not closed"),
        ('"a = 1', 0, "quotation is not closed"),
        ("[a = 1", 0, "quotation is not closed"),
        ("(a = 1", 6, "'\\)'"),
        ("a = 1)", 5, "near '\\)'"),
        ("a ! b", 2, "no such character"),
        ("a = 1; b = 2", 5, "no such character"),
        ("a = 1 /* comment */", 7, "near"),
        ("a IN ()", 6, "a value"),
        ("a IN ('x',)", 10, "a value"),
        ("a IS 5", 5, "NOT, NULL|NULL"),
        ("AND", 0, "expected"),
        ("and = 1", 0, "expected"),
        ("NULL = a", 0, "expected"),
        ("a LIKE b", 7, "a string"),
        ('a LIKE "b"', 7, "a string, in single quotes"),
        ("'abc'", 0, "not a condition"),
        ("1 + 2", 0, "not a condition"),
        ("-a", 0, "not a condition"),
        ("a AND 'x'", 2, "AND takes conditions"),
        ("NOT 5", 0, "NOT takes conditions"),
        ("a OR b + 1", 2, "OR takes conditions"),
        ("a + 'x' = 1", 2, "takes numbers"),
        ("a * (b > 1) = 1", 2, "takes numbers"),
        ("-TRUE = a", 0, "takes numbers"),
        ("a = 08", 4, "octal"),
        ("a = 18446744073709551616", 4, "too large"),
        ("a = 1e999", 4, "too large"),
        ("properties.subjct = 'x'", 0, "no field 'subjct'"),
        ("header.size > 1", 0, "no field 'size'"),
        ("EXISTS('a')", 7, "a name"),
        ("UTC() > 5", 3, "near '\\(\\) > 5'"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, position: int, words: str):
    with pytest.raises(BrokerError, match=words) as refused:
        selector(text)
    assert refused.value.condition == "amqp:invalid-field"
    assert refused.value.info == {"position": position}
    assert f"character {position + 1}," in refused.value.description


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p.size = 1", "no field 'size'"),
        ("h.foo = 1", "no field 'foo'"),
        ("a = 0x123", "two digits for each byte"),
    ],
)
def test_the_dialect_of_the_draft_is_stricter(text: str, words: str):
    with pytest.raises(BrokerError, match=words):
        selector(text, sql=True)
    selector(text)


def test_a_selector_has_a_length_at_most():
    longest = "a = '" + "x" * (MAX_LENGTH - 6) + "'"
    assert len(longest) == MAX_LENGTH
    assert selector(longest).matches(message(application={"a": longest[5:-1]}))
    with pytest.raises(BrokerError, match="at most 8192 are allowed"):
        selector(longest + " ")


@pytest.mark.parametrize("nesting", ["NOT {}", "NOT(NOT {})", "({} = TRUE)", "({}) AND b"])
def test_only_so_many_expressions_are_nested(nesting: str):
    text = "a"
    for _ in range(MAX_DEPTH):
        text = nesting.format(text)
    with pytest.raises(BrokerError, match="nested"):
        selector(text)


def test_parentheses_and_long_chains_are_not_nesting():
    subject = message(application={"a": 1500})
    assert selector("(" * 4000 + "a=1500" + ")" * 4000).matches(subject)
    assert selector(" OR ".join(f"a={n}" for n in range(700)) + " OR a=1500").matches(subject)
    assert selector(" AND ".join(["a>1"] * 1000)).matches(subject)
    assert selector("+".join(["1"] * 1500) + " = a").matches(subject)
    assert selector("a IN (" + ",".join(str(n) for n in range(1600)) + ")").matches(subject)


VOCABULARY = (
    "a b.c 'x' 1 2.5 AND OR NOT = <> ( ) , IN LIKE BETWEEN IS NULL ESCAPE + - * / TRUE EXISTS "
    '"q" [q] JMSPriority p.subject m.x-y 0x1F 07'
)
WORDS = st.lists(
    st.sampled_from(VOCABULARY.split()),
    max_size=12,
).map(" ".join)


@given(st.one_of(WORDS, st.text(max_size=40)), st.booleans())
def test_no_text_raises_anything_else(text: str, sql: bool):
    try:
        chosen = selector(text, sql)
    except BrokerError as refused:
        assert refused.condition == "amqp:invalid-field"
        return
    assert chosen.matches(message(application={"a": 1})) in (True, False)


@pytest.mark.parametrize(
    "piece", ["a-", "-", "(", "m.", "a.a.", "''", "NOT ", "[[", '""', "1e", "."]
)
def test_no_text_takes_long(piece: str):
    text = (piece * MAX_LENGTH)[:MAX_LENGTH]
    began = time.process_time()
    with contextlib.suppress(BrokerError):
        assert not selector(text).matches(message())
    assert time.process_time() - began < 2.0
