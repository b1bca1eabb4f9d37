"""Rules: a name, a filter, and an action or none."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.actions import Action
from ferrymq_broker.filters.correlation import APPLICATION, Correlation
from ferrymq_broker.filters.filter import Filter
from ferrymq_broker.filters.selector import Selector

# The kinds of filters, which are also the keys of a description.
TRUE: Final = "true"
FALSE: Final = "false"
SQL: Final = "sql"
CORRELATION: Final = "correlation"

# The most characters of a name.
MAX_NAME: Final = 256
# The size of a rule beside its texts.
_BASE: Final = 64
_KEYS: Final = (TRUE, FALSE, SQL, CORRELATION, "action")


@final
class _Nothing(Filter):
    """A filter that no message passes."""

    __slots__ = ()

    def matches(self, message: object) -> bool:
        """Return False."""
        return False


@final
class SubscriptionRule:
    """A rule. `kind` is one of the four kinds of filters, `fields` the description without the
    name, as it was given. `number` is that of its record in the store.

    `size` is the size of the description, in characters.
    """

    __slots__ = ("name", "kind", "filter", "action", "fields", "number", "size")

    def __init__(
        self, name: str, kind: str, filter: Filter, action: Action | None, fields: dict[str, object]
    ) -> None:
        self.name: str = name
        self.kind: str = kind
        self.filter: Filter = filter
        self.action: Action | None = action
        self.fields: dict[str, object] = fields
        self.number: i64 = 0
        size = _BASE + len(name) + len(filter.key)
        if action is not None:
            size += len(action.text)
        self.size: i64 = size

    def describe(self) -> dict[str, object]:
        """Return the name and the description."""
        return {"name": self.name, **self.fields}


def make_rule(name: str, fields: dict[str, object]) -> SubscriptionRule:
    """Return the rule of a description.

    The description has exactly one of ``sql`` (a text), ``correlation`` (a map), ``true`` and
    ``false`` (both with the value True), and may have an ``action`` (a text). Raises `BrokerError`
    (amqp:invalid-field).
    """
    if not name or len(name) > MAX_NAME:
        raise _invalid(f"the name of a rule has 1 to {MAX_NAME} characters, not {len(name)}")
    for key in fields:
        if key not in _KEYS:
            raise _invalid(f"a rule has no {key[:100]!r}; it has {', '.join(_KEYS)}")
    kinds = [
        kind
        for kind in (TRUE, FALSE, SQL, CORRELATION)
        if fields.get(kind) is not None and fields.get(kind) is not False
    ]
    if len(kinds) != 1:
        raise _invalid(f"a rule has one filter, not {len(kinds)}: true, false, sql or correlation")
    kind = kinds[0]
    given = fields[kind]
    text = fields.get("action")
    if text is not None and not isinstance(text, str):
        raise _invalid("action must be a string")
    filter: Filter
    if kind == SQL:
        if not isinstance(given, str):
            raise _invalid("sql must be a string")
        # Imported here, because the import takes time and few brokers need the parser.
        from ferrymq_broker.filters.selector_parser import parse_rule

        filter = Selector(parse_rule(given))
    elif kind == CORRELATION:
        if not isinstance(given, dict):
            raise _invalid("correlation must be a map")
        given = _entries(given)
        filter = Correlation(given)
    elif given is not True:
        raise _invalid(f"{kind} must be true, as it has no other value")
    else:
        filter = Filter(TRUE) if kind == TRUE else _Nothing(FALSE)
    kept: dict[str, object] = {kind: given}
    action: Action | None = None
    if text:
        from ferrymq_broker.filters.action_parser import parse_action

        action = parse_action(text)
        kept["action"] = text
    return SubscriptionRule(name, kind, filter, action, kept)


def _entries(given: dict[object, object]) -> dict[str, object]:
    """Return a copy of the map of a correlation filter, without nulls."""
    entries: dict[str, object] = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise _invalid(f"{key!r:.60} is no name of a field")
        if value is not None:
            entries[key] = dict(value) if key == APPLICATION and isinstance(value, dict) else value
    return entries


def _invalid(reason: str) -> BrokerError:
    return BrokerError("amqp:invalid-field", reason)
