"""Access rules of one virtual host: those of the configuration, and those that are made here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from pydantic import ValidationError

from ferrymq_broker.config.access import AccessRule, KeptRule
from ferrymq_broker.management.entity import EntityType, deleted
from ferrymq_broker.management.errors import BAD_REQUEST, CONFLICT, CREATED, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.link_terms import Party

# What changes the list of the rules of a virtual host that were made while the broker runs. Raises
# `ManagementError`.
RuleEdit = Callable[[list[KeptRule]], list[KeptRule]]

_SETTINGS: Final = ("who", "may", "may-not", "where")
_ALL: Final = (*_SETTINGS, "label")
# The name of a rule of the configuration is this and its position there.
CONFIGURED: Final = "configuration/"


class RuleKeeper(Protocol):
    """An object with the rules of all virtual hosts."""

    def configured(self, host: str) -> Sequence[AccessRule]:
        """Return the rules of the configuration for a virtual host."""

    def kept(self, host: str) -> Sequence[KeptRule]:
        """Return the rules of a virtual host that were made while the broker runs."""

    def edit(self, host: str, party: Party, edit: RuleEdit) -> None:
        """Change these, store them, and let connections follow. Raises `ManagementError`: if there
        is no place for rules, if the party would lose the right to manage the broker, or if no rule
        would be left."""


class RuleEntities(EntityType):
    """The rules of one virtual host, in the order in which they count. Those of the configuration
    come first; they cannot be changed here."""

    short = "rule"
    attributes: tuple[str, ...] = ("name", "position", *_ALL, "origin")

    def __init__(self, space: AddressSpace, keeper: RuleKeeper) -> None:
        self._host = space.name
        self._keeper = keeper

    def operations(self) -> dict[str, Operation]:
        """Return CREATE, READ, UPDATE and DELETE."""
        return {
            "CREATE": Operation(self.create, (*_ALL, "before")),
            "READ": Operation(self.read),
            "UPDATE": Operation(self.update, (*_ALL, "before")),
            "DELETE": Operation(self.delete),
        }

    def identities(self) -> list[str]:
        """Return the names in the order of the rules."""
        return list(self._rules())

    def show(self, identity: str) -> dict[str, object] | None:
        """Return the attributes of a rule."""
        rules = self._rules()
        rule = rules.get(identity)
        if rule is None:
            return None
        return {
            "position": list(rules).index(identity) + 1,
            "who": list(rule.who),
            "may": list(rule.may),
            "may-not": list(rule.may_not),
            "where": list(rule.where),
            "label": rule.label if isinstance(rule, KeptRule) else "",
            "origin": "management" if isinstance(rule, KeptRule) else "configuration",
        }

    def _rules(self) -> dict[str, AccessRule]:
        rules: dict[str, AccessRule] = {}
        for at, rule in enumerate(self._keeper.configured(self._host), 1):
            rules[f"{CONFIGURED}{at}"] = rule
        for kept in self._keeper.kept(self._host):
            rules[kept.name] = kept
        return rules

    def create(self, call: Call) -> Result:
        """Handle CREATE: add a rule, by default as the last one."""
        name = call.required_name()
        if name.startswith(CONFIGURED):
            raise ManagementError(BAD_REQUEST, f"names that begin with {CONFIGURED} are reserved")
        rule = self._rule(name, _given(call, _SETTINGS, []) | _given(call, ("label",), ""))
        before = self._before(call)
        there = self._rules().get(name)
        if there is not None:
            if there != rule:
                raise ManagementError(CONFLICT, f"there is a rule {name[:200]!r} already")
            return Result(self.shown(name), description="exists already")
        self._keeper.edit(self._host, call.party, lambda rules: _placed(rules, rule, before))
        return Result(self.shown(name), CREATED, "created")

    def update(self, call: Call) -> Result:
        """Handle UPDATE: change a rule, or its place."""
        name = call.required_name()
        there = self._own(name)
        settings = {key: getattr(there, key.replace("-", "_")) for key in _ALL}
        settings |= {key: call.arguments[key] for key in _ALL if key in call.arguments}
        rule = self._rule(name, settings)
        before = self._before(call)

        def edit(rules: list[KeptRule]) -> list[KeptRule]:
            if before is None:
                return [rule if each.name == name else each for each in rules]
            return _placed([each for each in rules if each.name != name], rule, before)

        self._keeper.edit(self._host, call.party, edit)
        return Result(self.shown(name), description="updated")

    def delete(self, call: Call) -> Result:
        """Handle DELETE."""
        call.expect_only()
        name = call.required_name()
        self._own(name)
        self._keeper.edit(
            self._host, call.party, lambda rules: [each for each in rules if each.name != name]
        )
        return deleted()

    def _own(self, name: str) -> KeptRule:
        """Return a rule that can be changed here. Raises `ManagementError`."""
        rule = self._rules().get(name)
        if rule is None:
            raise self.missing(name)
        if not isinstance(rule, KeptRule):
            raise ManagementError(
                CONFLICT,
                f"the rule {name[:200]!r} is in the configuration: change it there, and reload",
            )
        return rule

    def _rule(self, name: str, settings: dict[str, object]) -> KeptRule:
        for key in ("may", "may-not"):
            said = settings[key]
            if isinstance(said, str):
                # Shells have only texts.
                settings[key] = [right.strip() for right in said.split(",") if right.strip()]
        try:
            return KeptRule.model_validate({**settings, "name": name, "virtual-host": self._host})
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
            reason = first["msg"].removeprefix("Value error, ")
            text = f"{place}: {reason}" if place else reason
            raise ManagementError(BAD_REQUEST, text) from None

    def _before(self, call: Call) -> str | None:
        """Return the name of the rule that is to follow; empty for the end, None for no place."""
        call.expect_only(*_ALL, "before", "name", "identity", "type")
        return call.text("before") if "before" in call.arguments else None


def _given(call: Call, keys: Sequence[str], default: object) -> dict[str, object]:
    return {key: call.arguments.get(key, default) for key in keys}


def _placed(rules: list[KeptRule], rule: KeptRule, before: str | None) -> list[KeptRule]:
    if not before:
        return [*rules, rule]
    names = [each.name for each in rules]
    if before not in names:
        raise ManagementError(
            BAD_REQUEST, f"before: there is no rule {before[:200]!r} that was made here"
        )
    at = names.index(before)
    return [*rules[:at], rule, *rules[at:]]
