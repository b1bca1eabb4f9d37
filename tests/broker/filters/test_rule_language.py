"""The language of rules: filters, actions, correlation filters."""

from __future__ import annotations

from uuid import UUID

import pytest

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.action_parser import parse_action
from ferrymq_broker.filters.correlation import Correlation, CorrelationIndex
from ferrymq_broker.filters.selector import Selector
from ferrymq_broker.filters.selector_parser import parse_rule
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_codec.scalars import UInt, ULong
from ferrymq_types.messaging import Header, Properties
from tests.broker.filters.messages import message

ID = UUID("12345678-1234-5678-1234-567812345678")
FULL = message(
    header=Header(durable=True, priority=7, ttl=5000),
    annotations={"x-opt-key": "k"},
    properties=Properties(
        message_id=ID,
        subject="order",
        group_id="g",
        reply_to_group_id="rg",
        correlation_id=ULong(5),
    ),
    application={"a": 1, "b": "x", "c d": True, "id": ID, "none": None, "u": UInt(7)},
)


@pytest.mark.parametrize(
    "text",
    [
        "sys.subject = 'order' AND sys.Label = 'order' AND sys.[label] = 'order'",
        "sys.group-id = 'g' AND sys.SessionId = 'g' AND sys.group_id = 'g'",
        "sys.reply-to-group-id = 'rg' AND sys.ReplyToSessionId = 'rg'",
        "sys.ttl = 5000 AND sys.TimeToLive = 5000 AND sys.priority-1 = 6",
        'user.a = 1 AND a = 01 AND user.[c d] AND [c d] AND "c d"',
        "EXISTS(none) AND none IS NULL AND NOT EXISTS(user.nothing) AND EXISTS(sys.MessageId)",
        "property('b') = 'x' AND p('b') = 'x' AND property('c' + ' d') AND property(a) IS NULL",
        "b + 'y' = 'xy' AND 'y' + b + b = 'yxx' AND a + a = 2 AND b + a IS NULL",
        "newid() <> newid() AND newid() LIKE '________-%'",
        "b LIKE 'x!%' ESCAPE '!' OR b IN ('x', 'y') AND a BETWEEN 0 AND 2",
        "m.x-opt-key = 'k' AND p.subject = 'order'",
        " \n ",
    ],
)
def test_true_for_the_message(text: str) -> None:
    assert Selector(parse_rule(text)).matches(FULL)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sys.nothing = 1", "line 1, column 1"),
        ("a = 1\nAND\n  b ==", "line 3, column 6"),
        ("lower(b) = 'x'", "no function 'lower'"),
        ("newid(1) = 'x'", "takes no argument"),
        ("property() = 'x'", "takes the name"),
        ("'a' + 1 = 'a1'", "+ takes numbers"),
        ("a + 1", "a value, not a condition"),
        ("a = 1; REMOVE a", "line 1, column 6"),
        ("x" * 9000, "at most 8192"),
        ("NOT " * 100 + "a", "nested"),
    ],
)
def test_mistakes_have_a_place(text: str, reason: str) -> None:
    with pytest.raises(BrokerError) as raised:
        parse_rule(text)
    assert raised.value.condition == "amqp:invalid-field"
    assert reason in raised.value.description


def test_a_selector_has_no_functions_and_no_section_sys() -> None:
    from ferrymq_broker.filters.selector_parser import parse

    assert parse("sys.label = 'x'").render() == "(a.\"sys.label\" = 'x')"
    with pytest.raises(BrokerError, match="selector, character 6"):
        parse("newid() = 'x'")


def changed(text: str, before: BrokerMessage = FULL) -> BrokerMessage:
    return parse_action(text).apply(before)


def test_an_action_changes_a_copy() -> None:
    before = FULL.payload
    copy = changed("SET a = a + 1; set [new one] = b + '!'; REMOVE b; SET i = id; SET t = a > 1;")
    assert FULL.payload == before
    view = view_of(copy)
    assert view.application_properties == {
        "a": 2, "new one": "x!", "c d": True, "id": ID, "none": None, "u": 7, "i": ID, "t": True
    }  # fmt: skip
    assert type(view.application_properties["u"]) is UInt
    assert view.message_annotations == {"x-opt-key": "k"}
    assert view.properties == view_of(FULL).properties
    assert copy.durable and copy.ttl == 5000 and copy.priority == 7
    assert copy.payload.endswith(b"body")


def test_an_action_changes_fields() -> None:
    view = view_of(
        changed(
            "SET sys.subject = 'new'; SET sys.message-id = newid(); REMOVE sys.group-id;"
            "SET sys.correlation-id = 6; SET sys.ttl = 10; SET sys.to = nothing; REMOVE none"
        )
    )
    properties = view.properties
    assert properties is not None
    assert (properties.subject, properties.group_id, properties.correlation_id) == ("new", None, 6)
    assert isinstance(properties.message_id, str) and len(properties.message_id) == 36
    assert (view.header.ttl, view.message.ttl) == (10, 10)
    assert properties.to is None and "none" not in view.application_properties


def test_a_value_that_a_field_cannot_have_changes_nothing() -> None:
    copy = changed(
        "SET sys.subject = 5; SET sys.ttl = 'x'; SET sys.priority = 300; SET sys.message-id = 1.5;"
        "SET sys.correlation-id = -1; SET sys.content-type = 'ü'; SET sys.group-sequence = TRUE"
    )
    view = view_of(copy)
    assert view.properties == view_of(FULL).properties and view.header == view_of(FULL).header


def test_an_action_does_not_make_a_message_huge() -> None:
    long = message(application={"a": "x" * 60_000})
    assert changed("SET b = a; SET c = a", long).payload == long.payload
    assert view_of(changed("SET b = a + a", long)).application_properties["b"] is None
    longer = message(application={"a": "x" * 70_000})
    assert list(view_of(changed("SET b = a", longer)).application_properties) == ["a"]


def test_an_unreadable_message_is_copied_as_it_is() -> None:
    broken = message(application={"a": "text"})
    broken.payload = broken.payload.replace(b"\xa1\x04text", b"\x99\x04text")
    opaque = BrokerMessage(b"\x00\x53\x74", 0x100, 0)
    for before in (broken, opaque):
        copy = changed("SET a = 1", before)
        assert copy is not before and copy.payload == before.payload


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1, column 1, at the end: expected REMOVE, SET"),
        ("SET a = 1;\nSET sys.user-id = 'x'", "line 2, column 4"),
        ("REMOVE m.x-opt-key", "can change application properties"),
        ("SET a > 1", "SET takes ="),
        ("SET a 1", "line 1, column 7"),
        ("SET a = 1 SET b = 2", "line 1, column 11"),
        ("SET sys.no = 1", "sys has no field"),
        (";".join(["REMOVE a"] * 33), "at most 32"),
        ("SET a = '\ud800'", "Unicode"),
    ],
)
def test_mistakes_in_actions_have_a_place(text: str, reason: str) -> None:
    with pytest.raises(BrokerError) as raised:
        parse_action(text)
    assert reason in raised.value.description


@pytest.mark.parametrize(
    ("entries", "passes"),
    [
        ({"subject": "order"}, True),
        ({"subject": "order", "group-id": "g", "properties": {"a": 1, "b": "x"}}, True),
        ({"message-id": ID}, True),
        ({"message-id": str(ID), "correlation-id": 5}, True),
        ({"properties": {"a": 1.0, "c d": True, "b": b"x"}}, True),
        ({"properties": {"a": True}}, False),
        ({"properties": {"c d": 1}}, False),
        ({"properties": {"a": "1"}}, False),
        ({"subject": "order", "to": "x"}, False),
        ({"reply-to": ""}, False),
    ],
)
def test_correlation(entries: dict[str, object], passes: bool) -> None:
    filter = Correlation(entries)
    assert filter.matches(FULL) is passes
    index = CorrelationIndex()
    index.add(filter, "r")
    assert (index.find(view_of(FULL)) == ["r"]) is passes
    assert index.matches(view_of(FULL)) is passes
    index.remove(filter, "r")
    assert not index.matches(view_of(FULL)) and index.cost == 0


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"properties": {}},
        {"label": "x"},
        {"subject": 5},
        {"properties": 5},
        {"properties": {5: 5}},
        {"properties": {"a": None}},
        {"properties": {"a": float("nan")}},
        {"properties": {"a": [1]}},
    ],
)
def test_what_is_no_correlation_filter(entries: dict[str, object]) -> None:
    with pytest.raises(BrokerError, match="correlation filter"):
        Correlation(entries)


def test_many_correlation_filters_cost_one_look_up_for_each_shape() -> None:
    index = CorrelationIndex()
    for number in range(1000):
        index.add(Correlation({"subject": f"s{number}"}), f"subject {number}")
        index.add(Correlation({"subject": "order", "group-id": str(number)}), f"both {number}")
    index.add(Correlation({"subject": "order"}), "this")
    assert index.cost == 3
    assert index.find(view_of(FULL)) == ["this"]
