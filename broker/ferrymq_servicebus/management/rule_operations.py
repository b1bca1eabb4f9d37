"""Operations on the rules of a subscription."""

from __future__ import annotations

from typing import Final

from ferrymq_codec.scalars import Described, ULong
from ferrymq_servicebus.management.asked import Asked, Handler
from ferrymq_servicebus.management.entity import Entity
from ferrymq_servicebus.management.failures import (
    ALREADY_EXISTS,
    CONFLICT,
    ENTITY_NOT_FOUND,
    NOT_FOUND,
    RequestFailed,
    done,
    expect,
    invalid,
)

# The descriptors of a rule, of its filters and of its actions.
RULE: Final = ULong(0x13700000004)
SQL_FILTER: Final = ULong(0x1370000006)
TRUE_FILTER: Final = ULong(0x1370000007)
FALSE_FILTER: Final = ULong(0x1370000008)
CORRELATION_FILTER: Final = ULong(0x1370000009)
EMPTY_ACTION: Final = ULong(0x13700000005)
SQL_ACTION: Final = ULong(0x13700000006)

# The fields of a correlation filter in the order of its list, and their names in the broker.
_FIELDS: Final = {
    "correlation-id": "correlation-id",
    "message-id": "message-id",
    "to": "to",
    "reply-to": "reply-to",
    "label": "subject",
    "session-id": "group-id",
    "reply-to-session-id": "reply-to-group-id",
    "content-type": "content-type",
}
_PROPERTIES: Final = "properties"
_MOST: Final = 1000


class EntityRules:
    """The operations on the rules of a subscription."""

    def __init__(self, entity: Entity) -> None:
        self._entity = entity

    def operations(self) -> dict[str, Handler]:
        """Return the operations by name."""
        return {
            "add-rule": self.add,
            "remove-rule": self.remove,
            "enumerate-rules": self.enumerate,
        }

    def add(self, asked: Asked) -> dict[str, object] | None:
        """Add a rule."""
        entity = self._entity
        entity.expect_manage(asked)
        entity.queue()
        name = asked.text("rule-name")
        description = asked.map("rule-description")
        if description is None:
            raise invalid("rule-description: a map is needed")
        arguments = _described(description)
        arguments["rule"] = name
        if name in self._names(asked):
            raise RequestFailed(
                CONFLICT, ALREADY_EXISTS, f"the subscription has a rule {name[:200]!r} already"
            )
        expect(done(entity.subscriptions.add_rule(asked.call(arguments))))
        return {}

    def remove(self, asked: Asked) -> dict[str, object] | None:
        """Remove a rule."""
        entity = self._entity
        entity.expect_manage(asked)
        entity.queue()
        name = asked.text("rule-name")
        if name not in self._names(asked):
            # The words are those of other entities that do not exist.
            raise RequestFailed(
                NOT_FOUND,
                ENTITY_NOT_FOUND,
                f"The messaging entity '{entity.native[:200]}/Rules/{name[:200]}' could not be "
                "found.",
            )
        expect(done(entity.subscriptions.remove_rule(asked.call({"rule": name}))))
        return {}

    def enumerate(self, asked: Asked) -> dict[str, object] | None:
        """Return rules, in the order in which they were added."""
        self._entity.expect_any(asked)
        self._entity.queue()
        skip, top = asked.number("skip", 0), asked.number("top", _MOST)
        if skip < 0 or top < 0:
            raise invalid("skip and top: numbers of at least 0 are needed")
        found = [] if top == 0 else self._rules(asked, skip, min(top, _MOST))
        described = [{"rule-description": _encoded(rule)} for rule in found]
        return {"rules": described} if described else None

    def _names(self, asked: Asked) -> set[object]:
        count = 0
        found: set[object] = set()
        while True:
            page = self._rules(asked, count, _MOST)
            found |= {rule["name"] for rule in page}
            count += len(page)
            if len(page) < _MOST:
                return found

    def _rules(self, asked: Asked, skip: int, top: int) -> list[dict[str, object]]:
        call = asked.call({"skip": skip, "top": top})
        rules = expect(done(self._entity.subscriptions.list_rules(call)))["rules"]
        assert isinstance(rules, list)
        return rules


def _described(description: dict[str, object]) -> dict[str, object]:
    """Return the arguments of ADD-RULE for a description. Raises `RequestFailed`."""
    found: dict[str, object] = {}
    sql = description.get("sql-filter")
    correlation = description.get("correlation-filter")
    if sql is not None:
        found["sql"] = _expression(sql, "sql-filter")
    if correlation is not None:
        found["correlation"] = _correlation(correlation)
    if description.get("false-filter") is not None:
        found["false"] = True
    if description.get("true-filter") is not None or not found:
        found["true"] = True
    action = description.get("sql-rule-action")
    if action is not None:
        text = _expression(action, "sql-rule-action")
        if text:
            found["action"] = text
    return found


def _expression(value: object, key: str) -> str:
    text = value.get("expression") if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise invalid(f"{key}: a map with expression, a string, is needed")
    return str(text)


def _correlation(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise invalid("correlation-filter: a map is needed")
    found: dict[str, object] = {}
    for key, item in value.items():
        name = _PROPERTIES if key == _PROPERTIES else _FIELDS.get(str(key))
        if name is None:
            raise invalid(f"correlation-filter: there is no field {str(key)[:100]!r}")
        if item is not None and not (name == _PROPERTIES and not item):
            found[name] = item
    return found


def _encoded(rule: dict[str, object]) -> Described:
    """Return the described list of a rule: its filter, action and name."""
    action: list[object] = []
    if rule.get("action"):
        action.append(rule["action"])
    return Described(
        RULE,
        [_filter(rule), Described(SQL_ACTION if action else EMPTY_ACTION, action), rule["name"]],
    )


def _filter(rule: dict[str, object]) -> Described:
    if "sql" in rule:
        return Described(SQL_FILTER, [rule["sql"]])
    correlation = rule.get("correlation")
    if isinstance(correlation, dict):
        items = [correlation.get(name) for name in _FIELDS.values()]
        properties = correlation.get(_PROPERTIES)
        # Some clients cannot read a null there.
        return Described(CORRELATION_FILTER, [*items, properties] if properties else items)
    return Described(FALSE_FILTER if "false" in rule else TRUE_FILTER, [])
