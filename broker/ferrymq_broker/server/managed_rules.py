"""The rules of a broker that runs: those of its configuration, and those in its file of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ferrymq_broker.config.access import AccessRule, KeptRule, check_named
from ferrymq_broker.config.apply.live_rules import replace_rules
from ferrymq_broker.config.apply.rules import make_rule
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.event_log import log
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.access_rules import RuleEdit
from ferrymq_broker.management.errors import BAD_REQUEST, CONFLICT, FAILED, ManagementError
from ferrymq_broker.security.rules_file import edit_rules, read_rules
from ferrymq_broker.values.names import DEFAULT_SPACE
from ferrymq_broker.values.rights import MANAGE

if TYPE_CHECKING:
    from ferrymq_broker.access.rules import Rule
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.config.model import Config
    from ferrymq_broker.nodes.link_terms import Party


class ManagedRules:
    """The rules of all virtual hosts. `on_change` is called when the file of rules was edited.
    Raises `ConfigError` if it cannot be used."""

    def __init__(
        self, config: Config, broker: Broker, on_change: Callable[[], object] | None = None
    ) -> None:
        self._broker = broker
        self._on_change = on_change
        self._path: Path | None = None
        self._named = False
        self._configured: dict[str, list[AccessRule]] = {}
        self._kept: list[KeptRule] = []
        self._in_force: dict[str, list[AccessRule]] = {}
        self.take(config)

    def take(self, config: Config, kept: list[KeptRule] | None = None) -> None:
        """Use the rules of a configuration, and those of its file, or `kept`. Raises `ConfigError`
        if the file cannot be used."""
        security = config.security
        path, named = security.rules_file, security.names_somebody
        if kept is None:
            kept = [] if path is None else read_rules(path, named)
        self._path, self._named = path, named
        self._configured = {DEFAULT_SPACE: list(config.rule)}
        for host in config.virtual_host:
            self._configured[host.name] = list(host.rule)
        for name in {rule.virtual_host for rule in kept} - self._broker.spaces.keys():
            log.warning("rules are for a virtual host that does not exist", host=name)
        self._put(kept)

    def configured(self, host: str) -> Sequence[AccessRule]:
        """Return the rules of the configuration for a virtual host."""
        return self._configured.get(host, [])

    def kept(self, host: str) -> Sequence[KeptRule]:
        """Return the rules of a virtual host that are in the file."""
        return [rule for rule in self._kept if rule.virtual_host == host]

    def hosts(self) -> Sequence[str]:
        """Return the names of all virtual hosts."""
        return list(self._broker.spaces)

    def edit(self, host: str, party: Party | None, edit: RuleEdit) -> None:
        """See `RuleKeeper.edit`."""
        path = self._path
        if path is None:
            raise ManagementError(
                CONFLICT,
                "the broker has no place for rules that are made while it runs: set [security]"
                " rules-file",
            )

        def edit_host(rules: list[KeptRule]) -> list[KeptRule]:
            changed = edit([rule for rule in rules if rule.virtual_host == host])
            others = [rule for rule in rules if rule.virtual_host != host]
            self._check([*others, *changed], host, party)
            return [*others, *changed]

        try:
            self._put(edit_rules(path, self._named, edit_host))
        except (ConfigError, OSError) as error:
            raise ManagementError(FAILED, f"the rules stay as they were: {error}") from None
        if self._on_change is not None:
            self._on_change()

    def _check(self, kept: list[KeptRule], host: str, party: Party | None) -> None:
        """Raise `ManagementError` if the rules open the broker, or take from the party the right to
        manage it."""
        for mistake in check_named(self._named, kept, ()):
            raise ManagementError(BAD_REQUEST, mistake.reason)
        broker = self._broker
        rules = self._made(kept)
        if not broker.takes_tokens and not any(rules.values()):
            if broker.guarded:
                raise ManagementError(
                    CONFLICT,
                    "it is the last rule: without any, every client may do everything. Make another"
                    " rule first, or remove this one from the file of rules, and reload",
                )
            return
        if not broker.guarded and not rules[DEFAULT_SPACE]:
            raise ManagementError(
                CONFLICT,
                "it is the first rule, and closes the broker for everything that no rule allows:"
                " the first one must be in the default virtual host, to manage it further",
            )
        if party is None:
            return
        space, access = broker.spaces[host], party.access
        if not access.permits(MANAGE, ADDRESS):
            # A party that manages the broker by its rights in the default virtual host.
            return
        present = space.rules
        try:
            space.rules = rules.get(host, [])
            access.follow(space.rules_for)
            keeps = access.permits(MANAGE, ADDRESS)
        finally:
            space.rules = present
            access.follow(space.rules_for if broker.guarded else None)
        if not keeps:
            raise ManagementError(
                CONFLICT,
                "with these rules you may not manage the broker any more: first make a rule that"
                f" gives you manage at {ADDRESS!r}",
            )

    def _put(self, kept: list[KeptRule]) -> None:
        before, self._kept = self._in_force, kept
        self._in_force = {name: self._stated(name, kept) for name in self._broker.spaces}
        changed = {
            name: [make_rule(rule) for rule in _changed(before.get(name, []), stated)]
            for name, stated in self._in_force.items()
        }
        replace_rules(self._broker, self._made(kept), changed)

    def _stated(self, host: str, kept: list[KeptRule]) -> list[AccessRule]:
        """Return all rules of a virtual host, in their order."""
        return [*self.configured(host), *(rule for rule in kept if rule.virtual_host == host)]

    def _made(self, kept: list[KeptRule]) -> dict[str, list[Rule]]:
        """Return all rules by virtual host, as the broker evaluates them."""
        return {
            name: [make_rule(rule) for rule in self._stated(name, kept)]
            for name in self._broker.spaces
        }


def _changed(before: list[AccessRule], after: list[AccessRule]) -> list[AccessRule]:
    """Return the rules that are new, or gone, or that have another place among the others: without
    the equal ones at the beginning and at the end."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    most = min(len(before), len(after)) - start
    while end < most and before[-1 - end] == after[-1 - end]:
        end += 1
    return [*before[start : len(before) - end], *after[start : len(after) - end]]
