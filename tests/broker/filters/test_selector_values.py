"""The values of selectors: literals, comparisons, arithmetic (JMS 2.0 §3.8.1)."""

from __future__ import annotations

import pytest

from ferrymq_broker.filters.selector import selector
from tests.broker.filters.messages import message, verdict

SUBJECT = message(application={"i": 7, "n": -7, "f": 2.5, "s": "abc", "t": True, "big": 2**63 - 1})


@pytest.mark.parametrize(
    "text",
    [
        # Literals.
        "'it''s' = 'it''s' AND '' <> ' '",
        "i = 0x7 AND i = 0X07L AND i = 07 AND 010 = 8 AND 0 = 00",
        "7. = i AND 7.0 = 7 AND .5 = 5e-1 AND 7E0 = i AND 70e-1d = 7f AND 7d = i",
        "TRUE AND true AND NOT FALSE",
        # Comparisons.
        "i = 7 AND i <> 8 AND i != 8 AND i < 8 AND i <= 7 AND i > 6.5 AND i >= 7.0",
        "s = 'abc' AND s < 'abd' AND s >= 'ab'",
        "t = TRUE AND t <> FALSE AND (i > 1) = t",
        "i BETWEEN 7 AND 7 AND i NOT BETWEEN 8 AND 9 AND s BETWEEN 'a' AND 'b'",
        "s IN ('x', 'abc') AND s NOT IN ('x') AND i IN (1, 7.0) AND s IN (s)",
        # Arithmetic.
        "1 + 2 * 3 = 7 AND (1 + 2) * 3 = 9 AND 10 - 2 - 3 = 5 AND 2 * 7 % 4 = 2",
        "7 / 2 = 3 AND n / 2 = -3 AND 7 / 2.0 = 3.5 AND n % 3 = -1 AND i % -3 = 1",
        "7.5 % 2 = 1.5 AND -7.5 % 2 = -1.5",
        "-i = n AND - -i = i AND +i = 7 AND -(i + 1) = -8 AND 3 - -2 = 5",
        "big * big > 0 AND big + big > 1e18",
        # Precedence: NOT before AND before OR.
        "TRUE OR FALSE AND FALSE",
        "NOT FALSE AND TRUE",
        "NOT (TRUE AND FALSE)",
        "NOT i = 8",
        # Keywords in any case; names only in their own.
        "i Between 6 and 8 aNd s lIKE 'a%' and I is null",
        "\n\ti\n=\t7 ",
    ],
)
def test_true(text: str):
    assert verdict(text, SUBJECT) is True


@pytest.mark.parametrize(
    "text",
    [
        # Values of different kinds are not equal, and not unequal either.
        "i = '7'",
        "i <> '7'",
        "s > 5",
        "t = 1",
        "t <> 'TRUE'",
        "t > FALSE",
        "s BETWEEN 1 AND 5",
        "i IN ('7')",
        "s = 'ABC'",
        "S = 'abc' OR i = 8 AND TRUE AND s IS NULL OR FALSE",
    ],
)
def test_not_true(text: str):
    assert not selector(text).matches(SUBJECT)


@pytest.mark.parametrize(
    "text",
    [
        "missing = 1",
        "missing <> 1",
        "missing = missing",
        "missing > 'a'",
        "missing + 1 > 0",
        "-missing > 0",
        "1 / 0 = 1",
        "1 % 0 = 1",
        "1.0 / 0 > 1",
        "1 % 0.0 < 1",
        "s + 1 = 2",
        "-s = 1",
        "t + 1 = 2",
        "missing IN ('a', 'b')",
        "missing NOT IN ('a')",
        "s IN ('x', missing)",
        "missing BETWEEN 1 AND 2",
        "i BETWEEN 1 AND missing",
        "missing",
        "s",
        "i",
        "NOT s",
        "missing AND TRUE",
        "TRUE AND missing",
        "missing OR FALSE",
        "FALSE OR missing",
        "NOT missing",
        "missing AND missing",
    ],
)
def test_unknown(text: str):
    assert verdict(text, SUBJECT) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("missing AND FALSE", False),
        ("FALSE AND missing", False),
        ("missing OR TRUE", True),
        ("TRUE OR missing", True),
        ("missing IS NULL", True),
        ("missing IS NOT NULL", False),
        ("i IS NOT NULL", True),
        ("(missing > 1) IS NULL", True),
        ("s IN (missing, 'abc')", True),
        ("i BETWEEN 8 AND missing", False),
        ("i BETWEEN missing AND 6", False),
    ],
)
def test_the_unknown_does_not_always_matter(text: str, wanted: bool):
    assert verdict(text, SUBJECT) is wanted


def test_an_empty_selector_passes_everything():
    assert selector("").matches(SUBJECT)
    assert selector(" \n").matches(SUBJECT)


def test_equal_selectors_are_one():
    assert selector("i=7").key == selector(" ( i  =\n007 ) ").key
    assert selector("s IN ('a','b')").key == selector("s in ('b', 'a')").key
    assert selector("JMSType = 'x'").key == selector("p.subject = 'x'").key
    assert selector("a = 1").key != selector("a = 1.0").key
    assert selector("a = '1'").key != selector("a = 1").key
    assert selector("a = 'x'").key != selector("A = 'x'").key
    assert selector("a LIKE 'x!%' ESCAPE '!'").key != selector("a LIKE 'x!%'").key
    assert selector("a OR b AND c").key != selector("(a OR b) AND c").key
    assert selector("m.a = 1").key != selector("a = 1").key
    assert selector("i=7") is selector("i=7")
