"""Filters as selectors, which a broker applies before it sends anything."""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

LONGEST: Final = 8000
"""Characters of a selector; the broker takes a few more."""

# Fields of the properties whose values are strings and nothing else (AMQP 1.0 §3.2.4). An id may be
# a number, which a selector does not compare with the string that the column has.
_FIELDS: Final = {
    "to": "p.to",
    "subject": "p.subject",
    "replyTo": "p.reply_to",
    "contentType": "p.content_type",
    "contentEncoding": "p.content_encoding",
    "groupId": "p.group_id",
    "replyToGroupId": "p.reply_to_group_id",
}
_ESCAPE: Final = "!"


def selector_of(filter: Filter) -> str | None:
    """A selector that is true of every message for which the filter is; None if there is none."""
    if isinstance(filter, Not):
        return _negated(filter.child)
    name = _FIELDS.get(_column(filter))
    if name is None:
        return None
    if isinstance(filter, IsNotNull):
        return f"{name} IS NOT NULL"
    if isinstance(filter, In):
        values = [value for value in filter.value if value is not None]
        if not values or not all(isinstance(value, str) for value in values):
            return None
        return f"{name} IN ({', '.join(map(_quoted, values))})"
    value = getattr(filter, "value", None)
    if not isinstance(value, str):
        return None
    if isinstance(filter, StringStartsWith):
        return f"{name} LIKE {_pattern(value)}%' ESCAPE '{_ESCAPE}'"
    if isinstance(filter, StringEndsWith):
        return f"{name} LIKE '%{_pattern(value)[1:]}' ESCAPE '{_ESCAPE}'"
    if isinstance(filter, StringContains):
        return f"{name} LIKE '%{_pattern(value)[1:]}%' ESCAPE '{_ESCAPE}'"
    for kind, operator in (
        (EqualTo, "="),
        (EqualNullSafe, "="),
        (GreaterThan, ">"),
        (GreaterThanOrEqual, ">="),
        (LessThan, "<"),
        (LessThanOrEqual, "<="),
    ):
        if isinstance(filter, kind):
            return f"{name} {operator} {_quoted(value)}"
    return None


def _negated(filter: Filter) -> str | None:
    """Of something that is not so: what is null is neither, for Spark and for the broker, but where
    nulls are compared."""
    if isinstance(filter, EqualNullSafe | IsNotNull):
        return None
    if isinstance(filter, In) and None in filter.value:
        return None
    condition = selector_of(filter)
    return None if condition is None else f"NOT ({condition})"


def _column(filter: Filter) -> str:
    """The column a filter is about; none for a part of one."""
    path: tuple[str, ...] = getattr(filter, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _pattern(text: str) -> str:
    """The beginning of a pattern, without its end: an opening quote and the text."""
    for character in (_ESCAPE, "%", "_"):
        text = text.replace(character, _ESCAPE + character)
    return "'" + text.replace("'", "''")
