"""Access rules of one virtual host: those of the configuration, and those that are made here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from pydantic import ValidationError

from ferrymq_broker.config.access import AccessRule, KeptRule
from ferrymq_broker.management.entity import EntityType, Show, deleted
from ferrymq_broker.management.errors import (
    BAD_REQUEST,
    CONFLICT,
    CREATED,
    FORBIDDEN,
    NOT_FOUND,
    OK,
    ManagementError,
)
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.values.names import DEFAULT_SPACE

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.link_terms import Party

# What changes the list of the rules of a virtual host that were made while the broker runs. Raises
# `ManagementError`.
RuleEdit = Callable[[list[KeptRule]], list[KeptRule]]

_SETTINGS: Final = ("who", "may", "may-not", "where")
_ALL: Final = (*_SETTINGS, "label")
_HOST: Final = "virtual-host"
_FIELDS: Final = ("who", "may", "may_not", "where", "label")
# The name of a rule of the configuration that has none is this and its position there.
CONFIGURED: Final = "configuration/"


class RuleKeeper(Protocol):
    """An object with the rules of all virtual hosts."""

    def configured(self, host: str) -> Sequence[AccessRule]:
        """Return the rules of the configuration for a virtual host."""

    def kept(self, host: str) -> Sequence[KeptRule]:
        """Return the rules of a virtual host that were made while the broker runs."""

    def edit(self, host: str, party: Party | None, edit: RuleEdit) -> None:
        """Change these, store them, and let connections follow. `party` is who does it, if it is in
        this virtual host. Raises `ManagementError`: if there is no place for rules, if the party
        would lose the right to manage the broker, or if no rule would be left."""

    def hosts(self) -> Sequence[str]:
        """Return the names of all virtual hosts."""


class RuleEntities(EntityType):
    """The rules of one virtual host, in the order in which they count. Those of the configuration
    come first; they cannot be changed here.

    In the default virtual host, the argument ``virtual-host`` is for rules of another one: who
    manages the broker may make rules for a tenant.
    """

    short = "rule"
    attributes: tuple[str, ...] = ("name", "position", *_ALL, "origin")

    def __init__(self, space: AddressSpace, keeper: RuleKeeper) -> None:
        self._host = space.name
        self._manages_all = space.name == DEFAULT_SPACE
        self._keeper = keeper

    def operations(self) -> dict[str, Operation]:
        """Return CREATE, READ, UPDATE and DELETE."""
        return {
            "CREATE": Operation(self.create, (*_ALL, "before", _HOST)),
            "READ": Operation(self.read, (_HOST,)),
            "UPDATE": Operation(self.update, (*_ALL, "before", _HOST)),
            "DELETE": Operation(self.delete, (_HOST,)),
        }

    def identities(self) -> list[str]:
        """Return the names in the order of the rules."""
        return list(self._rules(self._host))

    def show(self, identity: str) -> dict[str, object] | None:
        """Return the attributes of a rule."""
        return self._show(self._host, identity)

    def shower(self, identities: list[str]) -> Show:
        """Return a function that shows each of these rules, after finding all once."""
        return self._shower(self._host)

    def _shower(self, host: str) -> Show:
        rules = self._rules(host)
        positions = {name: at for at, name in enumerate(rules, 1)}

        def show(identity: str) -> dict[str, object] | None:
            rule = rules.get(identity)
            return None if rule is None else _described(rule, positions[identity])

        return show

    def _show(self, host: str, identity: str) -> dict[str, object] | None:
        return self._shower(host)(identity)

    def _rules(self, host: str) -> dict[str, AccessRule]:
        rules: dict[str, AccessRule] = {}
        for at, rule in enumerate(self._keeper.configured(host), 1):
            free = rule.name and rule.name not in rules
            rules[rule.name if free else f"{CONFIGURED}{at}"] = rule
        for kept in self._keeper.kept(host):
            rules[kept.name] = kept
        return rules

    def _host_of(self, call: Call) -> str:
        """Return the virtual host that a request is about. Raises `ManagementError`."""
        host = call.text(_HOST, self._host)
        if host != self._host and not self._manages_all:
            raise ManagementError(
                FORBIDDEN, "rules of other virtual hosts are made in the default one"
            )
        if host not in self._keeper.hosts():
            raise ManagementError(NOT_FOUND, f"there is no virtual host {host[:200]!r}")
        return host

    def read(self, call: Call) -> Result:
        """Handle READ."""
        call.expect_only(_HOST)
        return self._told(self._host_of(call), call.required_name())

    def create(self, call: Call) -> Result:
        """Handle CREATE: add a rule, by default as the last one."""
        name = call.required_name()
        if name.startswith(CONFIGURED):
            raise ManagementError(BAD_REQUEST, f"names that begin with {CONFIGURED} are reserved")
        host = self._host_of(call)
        given = _given(call, _SETTINGS, []) | _given(call, ("label",), "")
        rule = _rule(name, host, given)
        before = _before(call)
        there = self._rules(host).get(name)
        if there is not None:
            if any(getattr(there, key) != getattr(rule, key) for key in _FIELDS):
                raise ManagementError(CONFLICT, f"there is a rule {name[:200]!r} already")
            return self._told(host, name, description="exists already")
        self._edit(host, call, lambda rules: _placed(rules, rule, before))
        return self._told(host, name, CREATED, "created")

    def update(self, call: Call) -> Result:
        """Handle UPDATE: change a rule, or its place."""
        name = call.required_name()
        host = self._host_of(call)
        there = self._own(host, name)
        settings = {key: getattr(there, key.replace("-", "_")) for key in _ALL}
        settings |= {key: call.arguments[key] for key in _ALL if key in call.arguments}
        rule = _rule(name, host, settings)
        before = _before(call)

        def edit(rules: list[KeptRule]) -> list[KeptRule]:
            if before is None:
                return [rule if each.name == name else each for each in rules]
            return _placed([each for each in rules if each.name != name], rule, before)

        self._edit(host, call, edit)
        return self._told(host, name, description="updated")

    def delete(self, call: Call) -> Result:
        """Handle DELETE."""
        call.expect_only(_HOST)
        name = call.required_name()
        host = self._host_of(call)
        self._own(host, name)
        self._edit(host, call, lambda rules: [each for each in rules if each.name != name])
        return deleted()

    def _edit(self, host: str, call: Call, edit: RuleEdit) -> None:
        self._keeper.edit(host, call.party if host == self._host else None, edit)

    def _told(self, host: str, name: str, status: int = OK, description: str = "OK") -> Result:
        attributes = self._show(host, name)
        if attributes is None:
            raise self.missing(name)
        return Result(self.complete(name, attributes), status, description)

    def _own(self, host: str, name: str) -> KeptRule:
        """Return a rule that can be changed here. Raises `ManagementError`."""
        rule = self._rules(host).get(name)
        if rule is None:
            raise self.missing(name)
        if not isinstance(rule, KeptRule):
            raise ManagementError(
                CONFLICT,
                f"the rule {name[:200]!r} is in the configuration: change it there, and reload",
            )
        return rule


def _described(rule: AccessRule, position: int) -> dict[str, object]:
    return {
        "position": position,
        "who": list(rule.who),
        "may": list(rule.may),
        "may-not": list(rule.may_not),
        "where": list(rule.where),
        "label": rule.label,
        "origin": "management" if isinstance(rule, KeptRule) else "configuration",
    }


def _rule(name: str, host: str, settings: dict[str, object]) -> KeptRule:
    """Return the rule with these settings. Raises `ManagementError`."""
    for key in ("may", "may-not"):
        said = settings[key]
        if isinstance(said, str):
            # Shells have only texts.
            settings[key] = [right.strip() for right in said.split(",") if right.strip()]
    try:
        return KeptRule.model_validate({**settings, "name": name, "virtual-host": host})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
        reason = first["msg"].removeprefix("Value error, ")
        text = f"{place}: {reason}" if place else reason
        raise ManagementError(BAD_REQUEST, text) from None


def _before(call: Call) -> str | None:
    """Return the name of the rule that is to follow; empty for the end, None for no place."""
    call.expect_only(*_ALL, "before", _HOST, "name", "identity", "type")
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
