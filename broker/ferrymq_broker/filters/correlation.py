"""Correlation filters: equal values of some properties, found by hashing.

An index of any number of these filters takes one look-up for each set of names that they compare,
not one comparison for each filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.filter import Filter
from ferrymq_broker.filters.headers_pattern import sorted_items
from ferrymq_broker.filters.identifiers import PROPERTIES_FIELDS, field_value
from ferrymq_broker.filters.values import plain
from ferrymq_broker.nodes.message_view import view_of

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.message_view import MessageView

# The key of the map of application properties in the description of a filter.
APPLICATION: Final = "properties"
# The fields of the properties that a filter may compare.
FIELDS: Final = (
    "correlation-id",
    "message-id",
    "to",
    "reply-to",
    "subject",
    "group-id",
    "reply-to-group-id",
    "content-type",
)

_MOST: Final = 256
# A value that is equal to nothing.
_NOTHING: Final = ()


@final
class Correlation(Filter):
    """A filter that passes messages with equal values of all named properties.

    `entries` has the values of fields of the properties by name, and under ``properties`` a map of
    application properties. Values of different kinds are not equal; numbers are compared by value.
    Raises `BrokerError` (amqp:invalid-field) for unknown fields, for values that no property has,
    and for a filter without conditions.
    """

    __slots__ = ("fields", "names", "shape", "values")

    def __init__(self, entries: dict[str, object]) -> None:
        super().__init__("correlation " + repr(sorted_items(entries)))
        # The numbers of the fields, then the names of the application properties, each in order.
        self.fields: list[int] = []
        self.names: list[str] = []
        values: list[object] = []
        for field in FIELDS:
            value = entries.get(field)
            if value is not None:
                if field not in ("message-id", "correlation-id") and not isinstance(value, str):
                    raise _invalid(f"{field} must be a string")
                self.fields.append(PROPERTIES_FIELDS[field])
                values.append(hashable(value, field))
        for name in entries:
            if name != APPLICATION and name not in FIELDS:
                raise _invalid(
                    f"no field {name[:100]!r}; the fields are {', '.join((*FIELDS, APPLICATION))}"
                )
        application = entries.get(APPLICATION)
        if application is not None:
            if not isinstance(application, dict):
                raise _invalid("properties must be a map")
            if len(application) > _MOST:
                raise _invalid(f"more than {_MOST} properties")
            for key in application:
                if not isinstance(key, str):
                    raise _invalid(f"{key!r:.60} is no name of a property")
            for name in sorted(application):
                self.names.append(name)
                values.append(hashable(application[name], name))
        if not values:
            raise _invalid("no condition; use a filter that is always true")
        self.shape: str = repr((self.fields, self.names))
        self.values: tuple[object, ...] = tuple(values)

    def matches(self, message: BrokerMessage) -> bool:
        """Return whether all values are equal."""
        return values_of(self.fields, self.names, view_of(message)) == self.values


@final
class _Shape:
    """The filters that compare the same properties: their owners by name, by the values."""

    __slots__ = ("fields", "names", "owners")

    def __init__(self, fields: list[int], names: list[str]) -> None:
        self.fields = fields
        self.names = names
        self.owners: dict[tuple[object, ...], dict[str, None]] = {}


@final
class CorrelationIndex:
    """Correlation filters, each with the name of its owner. `cost` is that of one search, in
    compared properties."""

    __slots__ = ("cost", "_shapes")

    def __init__(self) -> None:
        self.cost: i64 = 0
        self._shapes: dict[str, _Shape] = {}

    def add(self, filter: Correlation, owner: str) -> None:
        """Add a filter of this owner, who has no other filter here."""
        shape = self._shapes.get(filter.shape)
        if shape is None:
            shape = _Shape(filter.fields, filter.names)
            self._shapes[filter.shape] = shape
            self.cost += len(filter.values)
        shape.owners.setdefault(filter.values, {})[owner] = None

    def remove(self, filter: Correlation, owner: str) -> None:
        """Remove the filter of this owner."""
        shape = self._shapes[filter.shape]
        owners = shape.owners[filter.values]
        del owners[owner]
        if not owners:
            del shape.owners[filter.values]
        if not shape.owners:
            del self._shapes[filter.shape]
            self.cost -= len(filter.values)

    def matches(self, view: MessageView) -> bool:
        """Return whether any filter passes the message."""
        for shape in self._shapes.values():
            if values_of(shape.fields, shape.names, view) in shape.owners:
                return True
        return False

    def find(self, view: MessageView) -> list[str]:
        """Return the owners of all filters that pass the message."""
        found: list[str] = []
        for shape in self._shapes.values():
            owners = shape.owners.get(values_of(shape.fields, shape.names, view))
            if owners is not None:
                found.extend(owners)
        return found


def values_of(fields: list[int], names: list[str], view: MessageView) -> tuple[object, ...]:
    """Return the values of a message that filters of one shape compare."""
    values: list[object] = []
    for field in fields:
        values.append(_key(field_value(field, view)))
    if names:
        application = view.application_properties
        for name in names:
            values.append(_key(plain(application.get(name))))
    return tuple(values)


def hashable(value: object, name: str) -> object:
    """Return the key of a value of a filter. Raises `BrokerError` if no property is equal to it."""
    key = _key(plain(value))
    if key == _NOTHING:
        raise _invalid(f"no property is equal to the value of {name[:100]!r}")
    return key


def _key(value: object) -> object:
    """Return a key that is equal for equal values only: true is not 1, and text in binary form is
    the text."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return (value,)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if value == value else _NOTHING
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return value
    return _NOTHING


def _invalid(reason: str) -> BrokerError:
    return BrokerError("amqp:invalid-field", f"correlation filter: {reason}")
