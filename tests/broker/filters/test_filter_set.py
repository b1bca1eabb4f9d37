"""What a filter-set means: which filters are kept, what they let pass, what is refused."""

from __future__ import annotations

import pytest

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.filter_set import (
    FIRST,
    LAST,
    NEXT,
    OFFSET,
    TIME,
    FilterSet,
    StreamPosition,
)
from ferrymq_broker.filters.parse import parse_filters
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_codec.scalars import Described, Symbol, Timestamp, UByte, UInt, ULong
from ferrymq_servicebus.hub_tables import HUB_TABLES
from ferrymq_types.filters import (
    LegacyAmqpDirectBinding,
    LegacyAmqpHeadersBinding,
    LegacyAmqpTopicBinding,
    NoLocalFilter,
    SelectorFilter,
)
from ferrymq_types.messaging import Properties
from tests.broker.filters.messages import message

ME = 7
WORDS = dict(HUB_TABLES.position_words)
SELECTOR = "apache.org:selector-filter:string"


def read(*values: object) -> FilterSet:
    return parse_filters({f"f{at}": value for at, value in enumerate(values)}, ME, WORDS)


def passes(filters: FilterSet, subject: BrokerMessage) -> bool:
    return filters.predicate is None or filters.predicate.matches(subject)


RED = message(application={"colour": "red", "size": UByte(3)}, origin=ME)
BLUE = message(application={"colour": "blue"}, origin=8)


@pytest.mark.parametrize(
    "value",
    [
        SelectorFilter("colour = 'red'"),
        Described(SELECTOR, "colour = 'red'"),
        Described(0x468C00000004, "colour = 'red'"),
        Described("amqp:sql-filter", 'a.colour = "red"'),
        Described(0x120, "colour = 'red'"),
        Described("amqp:application-properties-filter", {"colour": "red"}),
        Described(0x174, {"colour": "&p:re", "size": 3}),
        LegacyAmqpHeadersBinding({"colour": "red"}),
        Described("apache.org:legacy-amqp-headers-binding:map", {"size": ULong(3)}),
        Described(0x468C00000002, {"x-match": "any", "colour": "red", "other": "x"}),
    ],
)
def test_filters_in_all_their_spellings(value: object):
    filters = read(value)
    assert passes(filters, RED)
    assert not passes(filters, BLUE)
    assert filters.granted == {"f0": value}
    assert filters.refused == []


@pytest.mark.parametrize("name", [SELECTOR, "jms-selector"])
def test_a_selector_without_a_descriptor_is_known_by_its_name(name: str):
    filters = parse_filters({name: "colour = 'red'"}, ME, WORDS)
    assert passes(filters, RED)
    assert not passes(filters, BLUE)
    assert filters.granted == {name: "colour = 'red'"}
    assert parse_filters({"other": "colour = 'red'"}, ME, WORDS).refused == ["other"]


@pytest.mark.parametrize(
    "value",
    [
        NoLocalFilter(),
        Described("apache.org:no-local-filter:list", []),
        Described(0x468C00000003, None),
        Described("apache.org:no-local-filter:list", True),
    ],
)
def test_no_local(value: object):
    filters = read(value)
    assert not passes(filters, RED)
    assert passes(filters, BLUE)
    assert passes(filters, message(origin=0))
    assert list(filters.granted) == ["f0"]


def subject_message(subject: str | None) -> BrokerMessage:
    return message(properties=Properties(subject=subject))


@pytest.mark.parametrize(
    ("value", "matching", "other"),
    [
        (LegacyAmqpDirectBinding("a.b"), ["a.b"], ["a", "a.b.c", "", None]),
        (Described(0x468C00000000, ""), [""], ["a", None]),
        (LegacyAmqpTopicBinding("a.*"), ["a.b", "a."], ["a", "a.b.c", None]),
        (Described("apache.org:legacy-amqp-topic-binding:string", "a.#"), ["a", "a.b"], ["b"]),
        (Described(0x468C00000001, "#"), ["a", "", None], []),
    ],
)
def test_bindings_on_the_subject(
    value: object, matching: list[str | None], other: list[str | None]
):
    filters = read(value)
    assert [one for one in matching if not passes(filters, subject_message(one))] == []
    assert [one for one in other if passes(filters, subject_message(one))] == []


@pytest.mark.parametrize(
    ("entries", "properties", "wanted"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"x-match": "all", "a": 1, "b": 2}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {"a": 1}, True),
        ({"x-match": "any", "a": 1, "b": 2}, {"a": 2, "b": 1}, False),
        ({"a": None}, {"a": "whatever"}, True),
        ({"a": None}, {}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({}, {"a": 1}, True),
        ({"x-match": "any"}, {"a": 1}, False),
    ],
)
def test_headers_bindings(entries: dict[str, object], properties: dict[str, object], wanted: bool):
    filters = read(LegacyAmqpHeadersBinding(dict(entries)))
    assert passes(filters, message(application=properties)) is wanted


FULL = message(
    properties=Properties(
        message_id=5, user_id=b"John", subject="Order.new", group_sequence=2, to="there"
    ),
    application={"region": "emea", "odd": "&x", "n": UInt(4), "nothing": None},
)


@pytest.mark.parametrize(
    ("descriptor", "entries", "wanted"),
    [
        ("amqp:properties-filter", {"subject": "Order.new", "user-id": b"John"}, True),
        ("amqp:properties-filter", {"subject": "Order"}, False),
        ("amqp:properties-filter", {"subject": "&p:Order"}, True),
        ("amqp:properties-filter", {"subject": "&s:.new", "to": "&p:"}, True),
        ("amqp:properties-filter", {"subject": "&s:.old"}, False),
        (0x173, {"message-id": ULong(5), "group-sequence": 2}, True),
        (0x173, {"message-id": "5"}, False),
        (0x173, {"reply-to": "x"}, False),
        (0x173, {"reply-to": "&p:"}, False),
        (0x173, {"reply-to": None, "subject": None}, True),
        ("amqp:application-properties-filter", {"region": "&p:em", "n": 4.0}, True),
        ("amqp:application-properties-filter", {"odd": "&&x"}, True),
        ("amqp:application-properties-filter", {"odd": "&&y"}, False),
        ("amqp:application-properties-filter", {"nothing": None, "region": None}, True),
        ("amqp:application-properties-filter", {"missing": None}, False),
        ("amqp:application-properties-filter", {"n": "&p:4"}, False),
        (0x174, {}, True),
    ],
)
def test_property_filters(descriptor: str | int, entries: dict[str, object], wanted: bool):
    keyed = {Symbol(key): value for key, value in entries.items()}
    assert passes(read(Described(descriptor, keyed)), FULL) is wanted


@pytest.mark.spec("3.5.8")
def test_a_message_has_to_pass_every_filter():
    filters = read(
        SelectorFilter("size > 2"), NoLocalFilter(), Described(0x174, {"colour": "red"}), None
    )
    same = {"colour": "red", "size": 3}
    assert passes(filters, message(application=same, origin=8))
    assert not passes(filters, message(application=same, origin=ME))
    assert not passes(filters, message(application={"colour": "red", "size": 1}, origin=8))
    assert not passes(filters, message(application={"colour": "blue", "size": 3}, origin=8))
    assert list(filters.granted) == ["f0", "f1", "f2"]


def test_what_is_unknown_is_refused_and_not_granted():
    unknown = {
        "a": Described("rabbitmq:stream-filter", "x"),
        "b": Described(0x468C000000FF, "x"),
        "c": Described(Timestamp(1), "x"),
        "d": "plain",
        "e": None,
    }
    filters = parse_filters({**unknown, "s": SelectorFilter("colour = 'red'")}, ME, WORDS)
    assert filters.refused == ["a", "b", "c", "d"]
    assert list(filters.granted) == ["s"]
    assert not passes(filters, BLUE)


def test_no_filters():
    for asked in (None, {}, {"a": None}):
        filters = parse_filters(asked, ME, WORDS)
        assert filters.predicate is None and filters.position is None
        assert filters.granted == {} and filters.refused == []


@pytest.mark.parametrize(
    "value",
    [
        Described(SELECTOR, 5),
        Described(SELECTOR, None),
        Described(SELECTOR, "a = "),
        Described("amqp:sql-filter", ["x"]),
        Described(0x468C00000000, b"bytes"),
        Described(0x468C00000001, {}),
        Described(0x468C00000002, "a"),
        LegacyAmqpHeadersBinding({"x-match": "some"}),
        LegacyAmqpHeadersBinding({1: "a"}),
        LegacyAmqpHeadersBinding({"a": ["list"]}),
        LegacyAmqpHeadersBinding({f"k{n}": n for n in range(300)}),
        Described(0x173, {"no-such-field": 1}),
        Described(0x173, {"subject": "&x:y"}),
        Described(0x174, {"a": "&"}),
        Described(0x174, {f"k{n}": n for n in range(300)}),
        Described("ferrymq:position", "middle"),
        Described("ferrymq:position", -1),
        Described("ferrymq:position", True),
        Described("ferrymq:position", None),
        Described("ferrymq:position", 2.5),
        Described("rabbitmq:stream-offset-spec", 2**63),
    ],
)
def test_malformed_values_are_errors(value: object):
    with pytest.raises(BrokerError) as refused:
        read(value)
    assert refused.value.condition == "amqp:invalid-field"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"a": SelectorFilter("x = 1")}, {"b": Described(SELECTOR, "x  =  01")}),
        (
            {"a": SelectorFilter("x = 1"), "b": NoLocalFilter()},
            {"b": SelectorFilter("x = 1"), "a": NoLocalFilter(), "c": SelectorFilter("x=1")},
        ),
        (
            {"a": LegacyAmqpHeadersBinding({"x": 1, "y": 2})},
            {"a": LegacyAmqpHeadersBinding({"y": 2, "x": 1, "x-match": "all"})},
        ),
        ({"a": Described(0x174, {"x": 1, "y": 2})}, {"a": Described(0x174, {"y": 2, "x": 1})}),
    ],
)
def test_equal_filter_sets_have_equal_keys(first: dict[str, object], second: dict[str, object]):
    one, other = (
        parse_filters(first, ME, WORDS).predicate,
        parse_filters(second, ME, WORDS).predicate,
    )
    assert one is not None and other is not None and one.key == other.key


def test_different_filter_sets_have_different_keys():
    values: list[object] = [
        SelectorFilter("x = 1"),
        SelectorFilter("x = '1'"),
        LegacyAmqpDirectBinding("x"),
        LegacyAmqpTopicBinding("x"),
        LegacyAmqpHeadersBinding({"x": 1}),
        LegacyAmqpHeadersBinding({"x": 1, "x-match": "any"}),
        LegacyAmqpHeadersBinding({"x": "1"}),
        Described(0x173, {"subject": "x"}),
        Described(0x174, {"subject": "x"}),
        NoLocalFilter(),
        Described(SELECTOR, "amqp.annotation.x-opt-offset > '5'"),
    ]
    sets = [read(value) for value in values]
    for filters in sets:
        filters.decline_position()
    keys = [filters.predicate.key for filters in sets if filters.predicate is not None]
    assert len(set(keys)) == len(values)
    others = parse_filters({"a": NoLocalFilter()}, ME + 1, WORDS).predicate
    assert others is not None and others.key not in keys


# -- positions -----------------------------------------------------------------------------


def shape(position: StreamPosition | None) -> tuple[int, int, bool] | None:
    return None if position is None else (position.kind, position.value, position.inclusive)


@pytest.mark.parametrize("descriptor", ["ferrymq:position", "rabbitmq:stream-offset-spec"])
@pytest.mark.parametrize(
    ("value", "kind", "number"),
    [
        ("first", FIRST, 0),
        (Symbol("last"), LAST, 0),
        ("next", NEXT, 0),
        (ULong(42), OFFSET, 42),
        (0, OFFSET, 0),
        (Timestamp(1_700_000_000_000), TIME, 1_700_000_000_000),
    ],
)
def test_positions(descriptor: str, value: object, kind: int, number: int):
    described = Described(descriptor, value)
    filters = parse_filters({"where": described, "what": SelectorFilter("x = 1")}, ME, WORDS)
    assert shape(filters.position) == (kind, number, True)
    assert filters.predicate is not None
    assert filters.granted["where"] is described
    filters.decline_position()
    assert filters.position is None
    assert list(filters.granted) == ["what"]
    assert filters.refused == ["where"]
    filters.decline_position()
    assert filters.refused == ["where"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("amqp.annotation.x-opt-offset > '-1'", (FIRST, 0, True)),
        ("amqp.annotation.x-opt-offset >= '-1'", (FIRST, 0, True)),
        ("amqp.annotation.x-opt-offset > '@latest'", (NEXT, 0, True)),
        ("amqp.annotation.x-opt-offset > '100'", (OFFSET, 100, False)),
        ("amqp.annotation.x-opt-offset >= '100'", (OFFSET, 100, True)),
        ("amqp.annotation.x-opt-sequence-number > '-1'", (FIRST, 0, True)),
        ("amqp.annotation.x-opt-sequence-number > '12'", (OFFSET, 12, False)),
        ("amqp.annotation.x-opt-sequence-number >= 12", (OFFSET, 12, True)),
        ("amqp.annotation.x-opt-enqueued-time > '1700000000000'", (TIME, 1700000000000, False)),
        ("amqp.annotation.x-opt-enqueued-time >= '1700000000000'", (TIME, 1700000000000, True)),
    ],
)
def test_positions_that_are_written_as_selectors(text: str, wanted: tuple[int, int, bool]):
    for descriptor in (SELECTOR, 0x468C00000004):
        filters = read(Described(descriptor, text), Described(0x174, {"colour": "red"}))
        assert shape(filters.position) == wanted
        # Where there are positions nothing needs to be looked at for this filter's sake.
        assert passes(filters, RED)
        assert not passes(filters, BLUE)
        assert list(filters.granted) == ["f0", "f1"]


def test_a_position_that_is_declined_still_filters():
    def numbered(value: object) -> BrokerMessage:
        return message(annotations={"x-opt-offset": value}, application={"colour": "red"})

    filters = read(
        Described(SELECTOR, "amqp.annotation.x-opt-offset > '100'"),
        Described(0x174, {"colour": "red"}),
    )
    filters.decline_position()
    assert filters.position is None
    assert list(filters.granted) == ["f0", "f1"]
    assert filters.refused == []
    assert passes(filters, numbered("101"))
    assert passes(filters, numbered(ULong(1000)))
    assert not passes(filters, numbered("100"))
    assert not passes(filters, numbered("99"))
    assert not passes(filters, numbered("soon"))
    assert not passes(filters, message(application={"colour": "red"}))
    assert not passes(filters, message(annotations={"x-opt-offset": "101"}))


@pytest.mark.parametrize("bound", ["-1", "@latest"])
def test_a_start_that_is_declined_holds_nothing_back(bound: str):
    filters = read(Described(SELECTOR, f"amqp.annotation.x-opt-offset > '{bound}'"))
    filters.decline_position()
    assert passes(filters, message())
    assert list(filters.granted) == ["f0"]


@pytest.mark.parametrize(
    "text",
    [
        "amqp.annotation.x-opt-offset > '1' AND a = 1",
        "amqp.annotation.x-opt-offset < '1'",
        "amqp.annotation.x-opt-offset = '1'",
        "'1' > amqp.annotation.x-opt-offset",
        "amqp.annotation.x-opt-offset > 'soon'",
        "amqp.annotation.x-opt-enqueued-time > '@latest'",
        "amqp.annotation.x-opt-key > '1'",
        "a.x-opt-offset > 1",
    ],
)
def test_other_selectors_are_no_positions(text: str):
    filters = read(Described(SELECTOR, text))
    assert filters.position is None
    assert filters.predicate is not None


def test_two_positions_are_one_too_many():
    with pytest.raises(BrokerError, match="both say where to begin") as refused:
        read(
            Described("ferrymq:position", "first"),
            Described(SELECTOR, "amqp.annotation.x-opt-offset > '5'"),
        )
    assert refused.value.condition == "amqp:invalid-field"
