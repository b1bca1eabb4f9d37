"""Selectors against another reading of the rules, written down as plainly as they are stated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.filters.messages import message, verdict

# A tree is a tuple: the name of what it is, and its parts. `show` writes it as a selector, `judge`
# says what it is for given application properties: a number is a pair of "exact" or "rounded" and
# a Fraction; None is unknown.

NAMES = ["i", "j", "f", "s", "t", "b", "missing"]

PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "i": st.integers(-9, 9),
        "j": st.sampled_from([0, 1, 2**62, -(2**63)]),
        "f": st.sampled_from([0.0, 0.1, -2.5, 4.0, 1e15]),
        "s": st.sampled_from(["", "a", "ab", "b%", "1"]),
        "t": st.sampled_from(["a", "abc"]),
        "b": st.booleans(),
    },
)

names = st.sampled_from(NAMES).map(lambda name: ("name", name))
numbers = st.one_of(
    st.integers(0, 12).map(lambda n: ("number", n)),
    st.sampled_from([0.0, 0.1, 2.5, 3e2]).map(lambda n: ("number", n)),
)
strings = st.sampled_from(["", "a", "ab", "it's", "1"]).map(lambda s: ("string", s))
truths = st.booleans().map(lambda t: ("truth", t))
patterns = st.text("ab_%", max_size=4)


def arithmetic(inner: st.SearchStrategy[tuple]) -> st.SearchStrategy[tuple]:
    return st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "/", "%"]), inner, inner),
        st.tuples(st.sampled_from(["plus", "minus"]), inner),
    )


sums = st.recursive(st.one_of(names, numbers), arithmetic, max_leaves=4)
values = st.one_of(sums, strings, truths, names)


def logic(inner: st.SearchStrategy[tuple]) -> st.SearchStrategy[tuple]:
    return st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("null"), inner),
    )


conditions = st.recursive(
    st.one_of(
        names,
        truths,
        st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), values, values),
        st.tuples(st.just("between"), values, values, values),
        st.tuples(st.just("in"), values, st.lists(values, min_size=1, max_size=3)),
        st.tuples(st.just("like"), st.one_of(names, strings), patterns),
        st.tuples(st.just("null"), values),
    ),
    logic,
    max_leaves=8,
)


def show(tree: tuple) -> str:
    kind, *parts = tree
    if kind == "name":
        return parts[0]
    if kind == "number":
        return repr(parts[0])
    if kind == "string":
        return "'" + parts[0].replace("'", "''") + "'"
    if kind == "truth":
        return str(parts[0])
    if kind in ("plus", "minus"):
        return f"({'+' if kind == 'plus' else '-'} {show(parts[0])})"
    if kind == "not":
        return f"(not {show(parts[0])})"
    if kind == "null":
        return f"({show(parts[0])} is null)"
    if kind == "between":
        return f"({show(parts[0])} BETWEEN {show(parts[1])} AND {show(parts[2])})"
    if kind == "in":
        return f"({show(parts[0])} IN ({', '.join(map(show, parts[1]))}))"
    if kind == "like":
        return f"({show(parts[0])} LIKE '{parts[1]}')"
    return f"({show(parts[0])} {kind} {show(parts[1])})"


def lift(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return ("exact" if isinstance(value, int) else "rounded", Fraction(value))


def compute(op: str, left: object, right: object) -> object:
    if not isinstance(left, tuple) or not isinstance(right, tuple):
        return None
    exact = left[0] == right[0] == "exact"
    a, b = left[1], right[1]
    if not exact:
        a, b = Fraction(float(a)), Fraction(float(b))
    if op in "/%" and b == 0:
        return None
    if op == "+":
        result = a + b
    elif op == "-":
        result = a - b
    elif op == "*":
        result = a * b
    elif op == "/":
        result = Fraction(math.trunc(a / b)) if exact else a / b
    else:
        result = a - b * math.trunc(a / b)
    if exact and abs(result) < 2**64:
        return ("exact", result)
    return ("rounded", Fraction(float(result)))


def relate(op: str, left: object, right: object) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, tuple) and isinstance(right, tuple):
        left, right = left[1], right[1]
    elif type(left) is not type(right) or (isinstance(left, bool) and op not in ("=", "<>")):
        return False
    return {
        "=": left == right,
        "<>": left != right,
        "<": left != right and not left > right,
        "<=": not left > right,
        ">": left > right,
        ">=": not left < right,
    }[op]


def fits(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(fits(pattern[1:], text[at:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and fits(pattern[1:], text[1:])


def evaluate(tree: tuple, properties: Mapping[str, object]) -> object:
    kind, *parts = tree
    if kind == "name":
        return lift(properties.get(parts[0]))
    if kind in ("number", "string", "truth"):
        return lift(parts[0])
    if kind in ("plus", "minus"):
        value = evaluate(parts[0], properties)
        if not isinstance(value, tuple):
            return None
        return value if kind == "plus" else (value[0], -value[1])
    if kind in ("+", "-", "*", "/", "%"):
        return compute(kind, evaluate(parts[0], properties), evaluate(parts[1], properties))
    return judge(tree, properties)


def both(left: bool | None, right: bool | None) -> bool | None:
    return min((left, right), key=[False, None, True].index)


def judge(tree: tuple, properties: Mapping[str, object]) -> bool | None:
    kind, *parts = tree
    if kind == "and":
        return both(judge(parts[0], properties), judge(parts[1], properties))
    if kind == "or":
        known = [judge(part, properties) for part in parts]
        return max(known, key=[False, None, True].index)
    if kind == "not":
        known_one = judge(parts[0], properties)
        return None if known_one is None else not known_one
    if kind in ("name", "truth"):
        value = evaluate(tree, properties)
        return value if isinstance(value, bool) else None
    first = evaluate(parts[0], properties)
    if kind == "null":
        return first is None
    if kind == "between":
        return both(
            relate(">=", first, evaluate(parts[1], properties)),
            relate("<=", first, evaluate(parts[2], properties)),
        )
    if kind == "in":
        known = [relate("=", first, evaluate(part, properties)) for part in parts[1]]
        return max(known, key=[False, None, True].index)
    if kind == "like":
        if first is None:
            return None
        return isinstance(first, str) and fits(parts[1], first)
    return relate(kind, first, evaluate(parts[1], properties))


@settings(max_examples=1000)
@given(conditions, PROPERTIES)
def test_any_selector_is_what_the_rules_say(tree: tuple, properties: dict[str, object]):
    assert verdict(show(tree), message(application=properties)) is judge(tree, properties)
