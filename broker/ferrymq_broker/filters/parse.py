"""Parses the filter-sets of sources (AMQP 1.0 §3.5.8)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.filter import Filter
from ferrymq_broker.filters.filter_set import FilterSet, StreamPosition
from ferrymq_broker.filters.positions import position_of, since
from ferrymq_broker.filters.predicates import (
    ApplicationPropertiesFilter,
    HeadersFilter,
    NoLocalPredicate,
    PropertiesFilter,
    SubjectFilter,
    TopicFilter,
    conjunction,
)
from ferrymq_broker.filters.selector import selector
from ferrymq_codec.scalars import Described
from ferrymq_types import descriptors
from ferrymq_types import filters as types

# The kinds of filters.
_DIRECT: Final = 1
_TOPIC: Final = 2
_HEADERS: Final = 3
_NO_LOCAL: Final = 4
_SELECTOR: Final = 5
_SQL: Final = 6
_PROPERTIES: Final = 7
_APPLICATION_PROPERTIES: Final = 8
_POSITION: Final = 9
_SESSION: Final = 10

# Kinds of filters by the symbolic and numeric descriptors of their values.
_SYMBOLS: Final[dict[str, int]] = {
    "apache.org:legacy-amqp-direct-binding:string": _DIRECT,
    "apache.org:legacy-amqp-topic-binding:string": _TOPIC,
    "apache.org:legacy-amqp-headers-binding:map": _HEADERS,
    "apache.org:no-local-filter:list": _NO_LOCAL,
    "apache.org:selector-filter:string": _SELECTOR,
    "amqp:sql-filter": _SQL,
    "amqp:properties-filter": _PROPERTIES,
    "amqp:application-properties-filter": _APPLICATION_PROPERTIES,
    "rabbitmq:stream-offset-spec": _POSITION,
    "ferrymq:position": _POSITION,
    "ferrymq:session": _SESSION,
}
_CODES: Final[dict[int, int]] = {
    descriptors.LEGACY_AMQP_DIRECT_BINDING: _DIRECT,
    descriptors.LEGACY_AMQP_TOPIC_BINDING: _TOPIC,
    descriptors.LEGACY_AMQP_HEADERS_BINDING: _HEADERS,
    descriptors.NO_LOCAL_FILTER: _NO_LOCAL,
    descriptors.SELECTOR_FILTER: _SELECTOR,
    types.SQL_FILTER: _SQL,
    types.PROPERTIES_FILTER: _PROPERTIES,
    types.APPLICATION_PROPERTIES_FILTER: _APPLICATION_PROPERTIES,
}

# The longest id of a session, in characters.
MAX_SESSION: Final = 1024

# Names of filters for which some clients send a selector as a plain string without a descriptor.
PLAIN_SELECTORS: Final = ("apache.org:selector-filter:string", "jms-selector")


def parse_filters(
    asked: dict[str, object] | None, connection: i64, words: dict[object, int]
) -> FilterSet:
    """Parse the filter-set of a source on this connection. `words` are those of `since`.

    Messages have to pass every filter in it. Unknown filters are in `refused`; a filter with the
    value null is ignored. Raises `BrokerError` (amqp:invalid-field) for an invalid value of a known
    filter, and for two filters that both define where to begin.
    """
    result = FilterSet()
    if not asked:
        return result
    filters: list[Filter] = []
    fallback: Filter | None = None
    for name, value in asked.items():
        if value is None:
            continue
        kind, content = _read(name, value)
        if kind == 0:
            result.refused.append(name)
            continue
        if kind == _SESSION:
            _set_session(result, name, content)
            continue
        if kind == _POSITION:
            _set_position(result, name, position_of(content))
        elif kind in (_SELECTOR, _SQL):
            chosen = selector(_string(name, content), kind == _SQL)
            place = since(chosen, words)
            if place is None:
                filters.append(chosen)
            else:
                _set_position(result, name, place.position)
                result.position_filters = True
                fallback = place.predicate
        else:
            filters.append(_filter(name, kind, content, connection))
        result.granted[name] = value
    result.predicate = conjunction(filters)
    if result.position_filters:
        if fallback is not None:
            filters.append(fallback)
        result.instead = conjunction(filters)
    return result


def _set_session(result: FilterSet, name: str, content: object) -> None:
    if result.session_name:
        raise BrokerError(
            "amqp:invalid-field",
            f"the filters {result.session_name[:100]!r} and {name[:100]!r} both ask for a session",
        )
    if content is not None and not (isinstance(content, str) and 0 < len(content) <= MAX_SESSION):
        raise BrokerError(
            "amqp:invalid-field",
            f"the filter {name[:100]!r} needs null, or the id of a session: a string of 1 to "
            f"{MAX_SESSION} characters",
        )
    result.session = None if content is None else str(content)
    result.session_name = name
    # Only a queue with sessions grants it.
    result.refused.append(name)


def _set_position(result: FilterSet, name: str, position: StreamPosition) -> None:
    if result.position is not None:
        raise BrokerError(
            "amqp:invalid-field",
            f"the filters {result.position_name[:100]!r} and {name[:100]!r} both say where to "
            "begin",
        )
    result.position = position
    result.position_name = name


def _read(name: str, value: object) -> tuple[int, object]:
    """Return the kind of the filter that a value describes, 0 if unknown, and the described
    value."""
    if isinstance(value, Described):
        descriptor = value.descriptor
        if isinstance(descriptor, str):
            return _SYMBOLS.get(descriptor, 0), value.value
        if isinstance(descriptor, int):
            return _CODES.get(descriptor, 0), value.value
        return 0, None
    if isinstance(value, types.SelectorFilter):
        return _SELECTOR, value.value
    if isinstance(value, types.NoLocalFilter):
        return _NO_LOCAL, None
    if isinstance(value, types.LegacyAmqpDirectBinding):
        return _DIRECT, value.value
    if isinstance(value, types.LegacyAmqpTopicBinding):
        return _TOPIC, value.value
    if isinstance(value, types.LegacyAmqpHeadersBinding):
        return _HEADERS, value.value
    if isinstance(value, str) and name in PLAIN_SELECTORS:
        return _SELECTOR, value
    return 0, None


def _filter(name: str, kind: int, content: object, connection: i64) -> Filter:
    if kind == _NO_LOCAL:
        # The value does not matter, and clients send different ones.
        return NoLocalPredicate(connection)
    if kind == _DIRECT:
        return SubjectFilter(_string(name, content))
    if kind == _TOPIC:
        return TopicFilter(_string(name, content))
    entries = _entries(name, content)
    if kind == _HEADERS:
        return HeadersFilter(entries)
    if kind == _PROPERTIES:
        return PropertiesFilter(entries)
    return ApplicationPropertiesFilter(entries)


def _string(name: str, content: object) -> str:
    if not isinstance(content, str):
        raise BrokerError(
            "amqp:invalid-field", f"the filter {name[:100]!r} needs a string (AMQP 1.0 §3.5.8)"
        )
    return content


def _entries(name: str, content: object) -> dict[str, object]:
    """Check that the content is a map with string keys and simple values, and return it."""
    if not isinstance(content, dict):
        raise BrokerError(
            "amqp:invalid-field", f"the filter {name[:100]!r} needs a map (AMQP 1.0 §3.5.8)"
        )
    entries: dict[str, object] = {}
    for key, value in content.items():
        if not isinstance(key, str):
            raise BrokerError(
                "amqp:invalid-field", f"the filter {name[:100]!r} has a key that is no string"
            )
        if isinstance(value, (dict, list, Described)):
            raise BrokerError(
                "amqp:invalid-field",
                f"the filter {name[:100]!r} has a value for {key[:100]!r} that no property has",
            )
        entries[key] = value
    return entries
