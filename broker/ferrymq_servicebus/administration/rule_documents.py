"""Rules of subscriptions as XML elements."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import Element, SubElement

from ferrymq_broker.filters.rule import CORRELATION, FALSE, SQL, TRUE, SubscriptionRule, make_rule
from ferrymq_codec.scalars import Timestamp
from ferrymq_servicebus.administration.atom import INSTANCE, SCHEMA, TYPE, name
from ferrymq_servicebus.administration.errors import HttpError
from ferrymq_servicebus.administration.times import iso, milliseconds_of

DEFAULT_RULE: Final = "$Default"
# The elements of a correlation filter in their order, and the broker's names.
_FIELDS: Final[dict[str, str]] = {
    "CorrelationId": "correlation-id",
    "MessageId": "message-id",
    "To": "to",
    "ReplyTo": "reply-to",
    "Label": "subject",
    "SessionId": "group-id",
    "ReplyToSessionId": "reply-to-group-id",
    "ContentType": "content-type",
}
_PAIR: Final = "KeyValueOfstringanyType"
# What every SQL expression carries.
_LEVEL: Final = "20"
_INT32: Final = 0x7FFF_FFFF
_INT64: Final = 0x7FFF_FFFF_FFFF_FFFF
# The most characters of a number.
_DIGITS: Final = 20
_PREFIX: Final = "d6p1"


def read_rule(element: Element, called: str) -> SubscriptionRule:
    """Return the rule of a description. Raises `HttpError` (400), or `BrokerError`."""
    filter = element.find(name("Filter"))
    fields: dict[str, object] = {TRUE: True} if filter is None else _read_filter(filter)
    action = element.find(name("Action"))
    if action is not None and _type(action) == "SqlRuleAction":
        _expect_no_parameters(action)
        fields["action"] = _expression(action)
    return make_rule(called, fields)


def _read_filter(filter: Element) -> dict[str, object]:
    kind = _type(filter)
    if kind == "TrueFilter":
        return {TRUE: True}
    if kind == "FalseFilter":
        return {FALSE: True}
    if kind == "SqlFilter":
        _expect_no_parameters(filter)
        return {SQL: _expression(filter)}
    if kind != "CorrelationFilter":
        raise HttpError(400, f"{kind[:100]!r} is not a kind of filter")
    entries: dict[str, object] = {}
    for tag, field in _FIELDS.items():
        text = filter.findtext(name(tag))
        if text:
            entries[field] = text
    application = {}
    for pair in filter.iterfind(f"{name('Properties')}/{name(_PAIR)}"):
        value = pair.find(name("Value"))
        application[pair.findtext(name("Key")) or ""] = None if value is None else _value(value)
    if application:
        entries["properties"] = application
    return {CORRELATION: entries}


def _value(element: Element) -> object:
    text = element.text or ""
    kind = _type(element)
    try:
        if kind in ("int", "long", "short", "byte"):
            number = int(text[:_DIGITS])
            if abs(number) > _INT64 or len(text) > _DIGITS:
                raise ValueError
            return number
        if kind in ("double", "float", "decimal"):
            return float(text)
        if kind == "dateTime":
            return Timestamp(milliseconds_of(text))
    except ValueError:
        raise HttpError(400, f"{text[:100]!r} is not of type {kind}") from None
    if kind == "boolean":
        return text.lower() == "true"
    return text


def write_rule(rule: SubscriptionRule, created: str) -> Element:
    """Return a rule as a description."""
    made = Element(name("RuleDescription"))
    filter = SubElement(made, name("Filter"))
    given = rule.fields.get(rule.kind)
    if rule.kind == CORRELATION and isinstance(given, dict):
        filter.set(TYPE, "CorrelationFilter")
        _write_correlation(filter, given)
    else:
        kinds = {TRUE: "TrueFilter", FALSE: "FalseFilter", SQL: "SqlFilter"}
        filter.set(TYPE, kinds[rule.kind])
        constant = {TRUE: "1=1", FALSE: "1=0"}.get(rule.kind)
        SubElement(filter, name("SqlExpression")).text = constant or str(given)
        SubElement(filter, name("CompatibilityLevel")).text = _LEVEL
    action = SubElement(made, name("Action"))
    text = rule.fields.get("action")
    action.set(TYPE, "SqlRuleAction" if text else "EmptyRuleAction")
    if text:
        SubElement(action, name("SqlExpression")).text = str(text)
        SubElement(action, name("CompatibilityLevel")).text = _LEVEL
    SubElement(made, name("CreatedAt")).text = created
    SubElement(made, name("Name")).text = rule.name
    return made


def _write_correlation(filter: Element, entries: dict[object, object]) -> None:
    for tag, field in _FIELDS.items():
        value = entries.get(field)
        if value is not None:
            SubElement(filter, name(tag)).text = str(value)
    application = entries.get("properties")
    properties = SubElement(filter, name("Properties"))
    if isinstance(application, dict):
        for key, value in application.items():
            pair = SubElement(properties, name(_PAIR))
            SubElement(pair, name("Key")).text = str(key)
            kind, text = _typed(value)
            element = SubElement(pair, name("Value"), {f"xmlns:{_PREFIX}": SCHEMA})
            element.set(f"{{{INSTANCE}}}type", f"{_PREFIX}:{kind}")
            element.text = text


def _typed(value: object) -> tuple[str, str]:
    if isinstance(value, bool):
        return "boolean", str(value).lower()
    if isinstance(value, Timestamp):
        return "dateTime", iso(int(value) / 1000)
    if isinstance(value, int):
        return ("int" if abs(value) <= _INT32 else "long"), str(int(value))
    if isinstance(value, float):
        return "double", str(float(value))
    return "string", str(value)


def _type(element: Element) -> str:
    return element.get(TYPE, "").rpartition(":")[2]


def _expression(element: Element) -> str:
    return element.findtext(name("SqlExpression")) or ""


def _expect_no_parameters(element: Element) -> None:
    if element.find(f"{name('Parameters')}/{name(_PAIR)}") is not None:
        raise HttpError(501, "parameters of SQL expressions are not supported")
