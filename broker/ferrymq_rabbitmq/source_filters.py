"""Filters of RabbitMQ's streams that the broker has in other words.

A client may ask for messages with one of several values in the annotation
``x-stream-filter-value``, and for those without that annotation. RabbitMQ chooses chunks by a Bloom
filter, so that its clients have to compare again; here each message is compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ferrymq_broker.errors import BrokerError
from ferrymq_codec.containers import Array
from ferrymq_codec.scalars import Described, Symbol

if TYPE_CHECKING:
    from ferrymq_broker.nodes.link_terms import SourceTerms
    from ferrymq_types.messaging import Source

VALUES: Final = "rabbitmq:stream-filter"
UNFILTERED: Final = "rabbitmq:stream-match-unfiltered"
_SQL: Final = Symbol("amqp:sql-filter")
# The name of the filter in the broker's words, which no client uses.
_OURS: Final = "ferrymq:stream-filter-values"
_ANNOTATION: Final = 'm."x-stream-filter-value"'
_MOST: Final = 255


def meant_filters(asked: Source) -> Source:
    """Return a source with the filters of streams in the broker's words. Raises `BrokerError`."""
    filters: dict[str, object] = dict(asked.filter or {})
    if VALUES not in filters and UNFILTERED not in filters:
        return asked
    values = _values(filters.pop(VALUES, None))
    unfiltered = _described(filters.pop(UNFILTERED, None))
    if values:
        listed = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
        expression = f"{_ANNOTATION} IN ({listed})"
        if unfiltered is True:
            expression += f" OR {_ANNOTATION} IS NULL"
        filters[_OURS] = Described(_SQL, expression)
    return replace(asked, filter=filters)


def grant_filters(terms: SourceTerms) -> None:
    """Write the client's own filters into the answer, where they were granted."""
    if _OURS in terms.filters.granted and terms.asked is not None:
        del terms.filters.granted[_OURS]
        for name in (VALUES, UNFILTERED):
            value = (terms.asked.filter or {}).get(name)
            if value is not None:
                terms.filters.granted[name] = value


def _values(filter: object) -> list[str]:
    content = _described(filter)
    if content is None:
        return []
    if isinstance(content, Array):
        content = list(content.items)
    values = content if isinstance(content, list) else [content]
    if len(values) > _MOST or not all(isinstance(value, str) for value in values):
        raise BrokerError(
            "amqp:invalid-field", f"the filter {VALUES} needs a string, or at most {_MOST} of them"
        )
    return [str(value) for value in values]


def _described(filter: object) -> object:
    return filter.value if isinstance(filter, Described) else filter
