"""The filters that are not selectors: on the subject, on properties, on the sending connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.filter import Filter
from ferrymq_broker.filters.headers_pattern import HeadersPattern, sorted_items
from ferrymq_broker.filters.identifiers import PROPERTIES_FIELDS, field_value
from ferrymq_broker.filters.topic_pattern import TopicPattern
from ferrymq_broker.filters.values import plain, same
from ferrymq_broker.nodes.message_view import view_of

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage

# The ways of comparing in a property filter.
_EQUAL: Final = 0
_PREFIX: Final = 1
_SUFFIX: Final = 2
_PRESENT: Final = 3

_MOST: Final = 256


@final
class SubjectFilter(Filter):
    """A filter that passes messages whose subject equals a string (Apache filters §1.1)."""

    __slots__ = ("subject",)

    def __init__(self, subject: str) -> None:
        super().__init__("subject " + subject)
        self.subject: str = subject

    def matches(self, message: BrokerMessage) -> bool:
        """Compare the subject. A message without a subject does not pass."""
        subject = view_of(message).subject
        return subject is not None and subject == self.subject


@final
class TopicFilter(Filter):
    """A filter that passes messages whose subject matches a topic pattern (Apache filters §1.2)."""

    __slots__ = ("pattern",)

    def __init__(self, pattern: str) -> None:
        super().__init__("topic " + pattern)
        self.pattern: TopicPattern = TopicPattern(pattern)

    def matches(self, message: BrokerMessage) -> bool:
        """Match the subject. A message without a subject passes only ``#``."""
        if self.pattern.everything:
            return True
        subject = view_of(message).subject
        return subject is not None and self.pattern.matches(subject)


@final
class HeadersFilter(Filter):
    """A filter on application properties, which have to match a map (Apache filters §1.3)."""

    __slots__ = ("pattern",)

    def __init__(self, entries: dict[str, object]) -> None:
        pattern = HeadersPattern(entries)
        super().__init__("headers " + pattern.key)
        self.pattern: HeadersPattern = pattern

    def matches(self, message: BrokerMessage) -> bool:
        """Match the application properties."""
        return self.pattern.matches(view_of(message).application_properties)


@final
class NoLocalPredicate(Filter):
    """A filter that drops messages that the same connection sent (Apache filters §2.1)."""

    __slots__ = ("connection",)

    def __init__(self, connection: i64) -> None:
        super().__init__(f"no-local {connection}")
        self.connection: i64 = connection

    def matches(self, message: BrokerMessage) -> bool:
        """Return whether another connection sent the message, or the broker made it."""
        return message.origin != self.connection


@final
class _Wanted:
    """A condition on one property (AMQP Filter Expressions 1.0 §4.1.1).

    A reference string that begins with ``&p:`` gives a prefix, with ``&s:`` a suffix. ``&&`` at the
    beginning stands for one &. Null stands for any value.
    """

    __slots__ = ("how", "reference", "text")

    def __init__(self, name: str, reference: object) -> None:
        self.how: i64 = _EQUAL
        self.reference = plain(reference)
        self.text = ""
        if reference is None:
            self.how = _PRESENT
        elif isinstance(reference, str) and reference.startswith("&"):
            if reference.startswith("&p:"):
                self.how = _PREFIX
                self.text = reference[3:]
            elif reference.startswith("&s:"):
                self.how = _SUFFIX
                self.text = reference[3:]
            elif reference.startswith("&&"):
                self.reference = reference[1:]
            else:
                raise BrokerError(
                    "amqp:invalid-field",
                    f"{name[:100]!r} begins with an & that is none of &p: (a prefix), &s: (a "
                    "suffix) and && (a single &)",
                )

    def fits(self, value: object) -> bool:
        """Return whether the value of a property meets the condition."""
        how = self.how
        if how == _EQUAL:
            return same(value, self.reference)
        if how == _PRESENT:
            return True
        if not isinstance(value, str):
            return False
        return value.startswith(self.text) if how == _PREFIX else value.endswith(self.text)


@final
class ApplicationPropertiesFilter(Filter):
    """A filter on application properties, which all have to match (Filter Expressions §4.2.5)."""

    __slots__ = ("_wanted",)

    def __init__(self, entries: dict[str, object]) -> None:
        super().__init__("application-properties " + repr(sorted_items(entries)))
        _check_size(entries)
        self._wanted: dict[str, _Wanted] = {}
        for name, reference in entries.items():
            self._wanted[name] = _Wanted(name, reference)

    def matches(self, message: BrokerMessage) -> bool:
        """Compare one property after the other."""
        properties = view_of(message).application_properties
        for name, wanted in self._wanted.items():
            if name not in properties or not wanted.fits(properties[name]):
                return False
        return True


@final
class PropertiesFilter(Filter):
    """A filter on fields of the properties, which all have to match (Filter Expressions §4.2.4)."""

    __slots__ = ("_fields", "_wanted")

    def __init__(self, entries: dict[str, object]) -> None:
        super().__init__("properties " + repr(sorted_items(entries)))
        _check_size(entries)
        self._fields: list[int] = []
        self._wanted: list[_Wanted] = []
        for name, reference in entries.items():
            field = PROPERTIES_FIELDS.get(name)
            if field is None:
                raise BrokerError(
                    "amqp:invalid-field", f"the properties have no field {name[:100]!r}"
                )
            self._fields.append(field)
            self._wanted.append(_Wanted(name, reference))

    def matches(self, message: BrokerMessage) -> bool:
        """Compare one field after the other. A field with the condition null need not be set."""
        view = view_of(message)
        for at, wanted in enumerate(self._wanted):
            if wanted.how == _PRESENT:
                continue
            if not wanted.fits(field_value(self._fields[at], view)):
                return False
        return True


@final
class AllOf(Filter):
    """A filter that passes messages that pass several filters (AMQP 1.0 §3.5.8)."""

    __slots__ = ("filters",)

    def __init__(self, filters: list[Filter]) -> None:
        super().__init__("all " + repr(sorted([filter.key for filter in filters])))
        self.filters: list[Filter] = filters

    def matches(self, message: BrokerMessage) -> bool:
        """Apply one filter after the other."""
        for filter in self.filters:  # noqa: SIM110 — a generator costs more than most filters
            if not filter.matches(message):
                return False
        return True


def conjunction(filters: list[Filter]) -> Filter | None:
    """Return one filter for all filters; None if there are none. Equal filters are applied once."""
    distinct: dict[str, Filter] = {}
    for filter in filters:
        distinct[filter.key] = filter
    chosen = list(distinct.values())
    if not chosen:
        return None
    if len(chosen) == 1:
        return chosen[0]
    return AllOf(chosen)


def _check_size(entries: dict[str, object]) -> None:
    if len(entries) > _MOST:
        raise BrokerError("amqp:invalid-field", f"a filter of more than {_MOST} properties")
