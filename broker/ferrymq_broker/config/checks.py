"""Checks that the declarations of a virtual host fit together.

Each setting has been checked by itself before. These checks compare names. An address in a setting
must name a node or an alias, or match a pattern. If `auto_create` is on, it may be any name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from itertools import combinations

from ferrymq_broker.config.capture import Capture
from ferrymq_broker.config.declarations import (
    DeclaredNode,
    Exchange,
    Nodes,
    Policy,
    Subscription,
    Tables,
    Topic,
)
from ferrymq_broker.config.errors import ConfigMistake, Location
from ferrymq_broker.config.nodes import contradictions
from ferrymq_broker.config.policy_resolution import foreign_settings, resolve_policy
from ferrymq_broker.config.section import kebab
from ferrymq_broker.config.storage import Store
from ferrymq_broker.values.bindings import read_match
from ferrymq_broker.values.names import DYNAMIC, PART
from ferrymq_broker.values.patterns import Pattern, overlap, specificity
from ferrymq_broker.values.policy import (
    ExchangePolicy,
    NodePolicy,
    QueuePolicy,
    StreamPolicy,
    TopicPolicy,
    is_own_sub_queue,
)

# The highest number of hints: finding a similar name among many names takes long.
_MOST_HINTS = 20


def check_tables(
    tables: Tables, nodes: Nodes, policies: Mapping[str, Policy], place: Location
) -> list[ConfigMistake]:
    """Return the mistakes in the tables of a virtual host; `place` is their place in the file."""
    return list(_Check(tables, nodes, policies, place).run())


def check_capture(
    capture: Capture,
    store: Store,
    places: list[tuple[Tables, Location]],
    policies: Mapping[str, Policy],
) -> list[ConfigMistake]:
    """Return the mistakes about streams that are to be captured.

    `places` are the tables of each virtual host with their place in the file; they have no mistakes
    of their own.
    """
    if capture.directory is not None:
        if store.path is None:
            reason = (
                "capture needs a store, to continue after a restart: set [store] path, or serve"
                " with --data"
            )
            return [ConfigMistake(("capture", "directory"), reason)]
        return []
    return [
        ConfigMistake(
            _origin(entry, "capture", (*place, kind, at)),
            f"{entry.address!r} is to be captured, but no directory is given:"
            " set [capture] directory",
        )
        for tables, place in places
        for kind, at, entry in tables.declared()
        if _is_captured(resolve_policy(kind, entry, policies))
    ]


def _is_captured(policy: NodePolicy) -> bool:
    """Return whether nodes of this policy are captured."""
    return isinstance(policy, StreamPolicy) and policy.capture


class _Check:
    """The names of one virtual host, and the checks that compare them."""

    def __init__(
        self, tables: Tables, nodes: Nodes, policies: Mapping[str, Policy], place: Location
    ) -> None:
        self.tables = tables
        self.nodes = nodes
        self.policies = policies
        self.place = place
        self.names: dict[str, Location] = {}
        self.kinds: dict[str, str] = {}
        self.aliases = {alias.name: alias.to for alias in tables.alias}
        self.redirects = {redirect.name for redirect in tables.redirect}
        # Patterns by the text before their first wildcard.
        self.patterns: dict[str, list[Pattern]] = {}
        self.clashes: list[ConfigMistake] = []
        self.hints: dict[str, str] = {}
        for kind, at, entry in tables.declared():
            if entry.name is not None:
                self._take(entry.name, (*place, kind, at, "name"))
                self.kinds.setdefault(entry.name, kind)
            else:
                pattern = Pattern(entry.address)
                self.patterns.setdefault(pattern.prefix, []).append(pattern)
        for at, alias in enumerate(tables.alias):
            self._take(alias.name, (*place, "alias", at, "name"))
        for at, redirect in enumerate(tables.redirect):
            self._take(redirect.name, (*place, "redirect", at, "name"))

    def _take(self, name: str, location: Location) -> None:
        if name in self.names:
            reason = f"{name!r} is declared twice"
            self.clashes.append(ConfigMistake(location, reason, self.names[name]))
        self.names.setdefault(name, location)

    def run(self) -> Iterator[ConfigMistake]:
        """Yield every mistake."""
        yield from self.clashes
        yield from self._check_patterns()
        yield from self._check_aliases()
        for at, redirect in enumerate(self.tables.redirect):
            if redirect.name.startswith(("$", DYNAMIC)):
                location = (*self.place, "redirect", at, "name")
                yield ConfigMistake(
                    location, f"names that begin with $ or {DYNAMIC} are reserved for the broker"
                )
        yield from self._check_rules()
        yield from self._check_subscriptions()
        for kind, at, entry in self.tables.declared():
            yield from self._check_node(kind, entry, (*self.place, kind, at))
        if len(self.kinds) > self.nodes.limit:
            yield ConfigMistake(
                (*self.place, "nodes", "limit"),
                f"{len(self.kinds)} nodes are declared; [nodes] limit allows {self.nodes.limit}",
            )

    # -- patterns --------------------------------------------------------------------------

    def _check_patterns(self) -> Iterator[ConfigMistake]:
        """Yield patterns that match the same name and are equally specific."""
        alike: dict[tuple[str, int], list[tuple[str, Location]]] = {}
        for kind, at, entry in self.tables.declared():
            if entry.pattern is not None:
                length, weight = specificity(entry.pattern)
                location = (*self.place, kind, at, "pattern")
                key = entry.pattern[:length], weight
                alike.setdefault(key, []).append((entry.pattern, location))
        for group in alike.values():
            for (first, there), (second, here) in combinations(group, 2):
                if first == second:
                    yield ConfigMistake(here, f"the pattern {second!r} is declared twice", there)
                elif overlap(first, second):
                    reason = (
                        f"{second!r} and {first!r} are equally specific and match the same names"
                    )
                    yield ConfigMistake(here, reason, there)

    # -- aliases ---------------------------------------------------------------------------

    def _check_aliases(self) -> Iterator[ConfigMistake]:
        for at, alias in enumerate(self.tables.alias):
            place = (*self.place, "alias", at)
            if alias.name.startswith(("$", DYNAMIC)):
                yield ConfigMistake(
                    (*place, "name"),
                    f"names that begin with $ or {DYNAMIC} are reserved for the broker",
                )
            seen = {alias.name}
            target = alias.to
            while target in self.aliases and target not in seen:
                seen.add(target)
                target = self.aliases[target]
            if target in self.aliases:
                yield ConfigMistake((*place, "to"), f"the alias {alias.name!r} leads in a circle")
            else:
                yield from self._expect(alias.to, (*place, "to"), elsewhere=True)

    # -- rules -----------------------------------------------------------------------------

    def _check_rules(self) -> Iterator[ConfigMistake]:
        """Yield rules for aliases: aliases are resolved before rules are evaluated."""
        for at, rule in enumerate(self.tables.rule):
            for number, pattern in enumerate(rule.where):
                name, part, key = pattern.partition(PART)
                if name in self.aliases:
                    yield ConfigMistake(
                        (*self.place, "rule", at, "where", number),
                        f"{name!r} is an alias, and rules are about nodes; "
                        f"write {self._follow(name) + part + key!r}",
                    )

    # -- subscriptions ---------------------------------------------------------------------

    def _check_subscriptions(self) -> Iterator[ConfigMistake]:
        """Yield subscriptions that are declared twice or of no declared topic, and rules with equal
        names."""
        seen: dict[tuple[str, str], Location] = {}
        for at, entry in enumerate(self.tables.subscription):
            place = (*self.place, "subscription", at)
            if self.kinds.get(entry.topic) != "topic":
                yield ConfigMistake(
                    (*place, "topic"), f"no topic with the name {entry.topic!r} is declared"
                )
            key = entry.topic, entry.name
            if key in seen:
                reason = f"the subscription {entry.name!r} of {entry.topic!r} is declared twice"
                yield ConfigMistake((*place, "name"), reason, seen[key])
            seen.setdefault(key, (*place, "name"))
            rules: dict[str, Location] = {}
            for number, rule in enumerate(entry.rule):
                here = (*place, "rule", number, "name")
                if rule.name in rules:
                    reason = f"the rule {rule.name!r} is declared twice"
                    yield ConfigMistake(here, reason, rules[rule.name])
                rules.setdefault(rule.name, here)

    # -- nodes -----------------------------------------------------------------------------

    def _check_node(
        self, kind: str, entry: DeclaredNode, place: Location
    ) -> Iterator[ConfigMistake]:
        known = list(self._check_policy(kind, entry, place))
        if isinstance(entry, Topic):
            known += self._check_policy("queue", entry.subscription, (*place, "subscription"))
        yield from known
        if known:
            return
        policy = resolve_policy(kind, entry, self.policies)
        for key, reason in contradictions(policy):
            yield ConfigMistake((*place, *key.split(".")), reason)
        yield from self._check_addresses(policy, entry, place)
        if isinstance(entry, Exchange) and isinstance(policy, ExchangePolicy):
            yield from self._check_bindings(entry, policy, place)

    def _check_policy(
        self, kind: str, entry: DeclaredNode | Subscription, place: Location
    ) -> Iterator[ConfigMistake]:
        if not entry.policy:
            return
        shared = self.policies.get(entry.policy)
        if shared is None:
            hint = _suggestion(entry.policy, self.policies)
            yield ConfigMistake((*place, "policy"), f"there is no policy {entry.policy!r}{hint}")
            return
        for name in foreign_settings(kind, shared):
            yield ConfigMistake(
                (*place, "policy"),
                f"the policy {entry.policy!r} has {kebab(name)!r}, which no {kind} has",
                ("policies", entry.policy, kebab(name)),
            )

    def _check_addresses(
        self, policy: NodePolicy, entry: DeclaredNode, place: Location
    ) -> Iterator[ConfigMistake]:
        if isinstance(policy, QueuePolicy):
            yield from self._check_letters(policy, entry, entry, place)
        elif isinstance(policy, TopicPolicy) and isinstance(entry, Topic):
            inner = (*place, "subscription")
            yield from self._check_letters(policy.subscription, entry, entry.subscription, inner)
        elif isinstance(policy, ExchangePolicy) and policy.alternate:
            location = _origin(entry, "alternate", place)
            if policy.alternate == entry.name:
                yield ConfigMistake(location, "an exchange cannot be its own alternate")
            else:
                yield from self._expect(policy.alternate, location, whole=True)

    def _check_letters(
        self,
        policy: QueuePolicy,
        node: DeclaredNode,
        said: DeclaredNode | Subscription,
        place: Location,
    ) -> Iterator[ConfigMistake]:
        for key, address in (
            ("dead-letter", policy.dead_letter),
            ("expired", policy.expired),
            ("forward-to", policy.forward_to),
            ("forward-failed", policy.forward_failed),
        ):
            location = _origin(said, key, place)
            if address and address == node.name:
                yield ConfigMistake(
                    location, f"messages that leave {address!r} cannot be sent back to it"
                )
            elif address and not is_own_sub_queue(policy, address):
                yield from self._expect(address, location)

    def _check_bindings(
        self, exchange: Exchange, policy: ExchangePolicy, place: Location
    ) -> Iterator[ConfigMistake]:
        if exchange.pattern is not None and exchange.binding:
            yield ConfigMistake(
                (*place, "binding", 0), "only an exchange with a name can have bindings"
            )
        seen: dict[str, Location] = {}
        for at, binding in enumerate(exchange.binding):
            here = (*place, "binding", at)
            yield from self._expect(binding.to, (*here, "to"), whole=True)
            if binding.to == exchange.name:
                yield ConfigMistake((*here, "to"), "an exchange cannot be bound to itself")
            if binding.arguments and policy.type != "headers":
                reason = 'arguments are for an exchange with routing = "headers"'
                yield ConfigMistake((*here, "arguments"), reason)
            if policy.type == "headers":
                try:
                    read_match(binding.arguments)
                except ValueError as error:
                    yield ConfigMistake(here, str(error))
            same = repr((binding.key, binding.to, sorted(binding.arguments.items())))
            if same in seen:
                yield ConfigMistake(here, "the same binding is declared twice", seen[same])
            seen.setdefault(same, here)

    # -- targets of addresses ------------------------------------------------------------

    def _has_pattern(self, name: str) -> bool:
        """Return whether a declared pattern matches the name."""
        return any(
            pattern.matches(name)
            for end in range(len(name) + 1)
            for pattern in self.patterns.get(name[:end], ())
        )

    def _expect(
        self, address: str, location: Location, elsewhere: bool = False, whole: bool = False
    ) -> Iterator[ConfigMistake]:
        """Yield a mistake if the address names no node.

        A part of a node is allowed unless `whole` is true, a redirect only if `elsewhere` is.
        """
        target = self._follow(address)
        name, _, _ = target.rpartition(PART)
        parted = bool(name) and target not in self.names
        if parted:
            target = self._follow(name)
        if parted and (whole or self.kinds.get(target) == "queue"):
            reason = "a node is needed here" if whole else "a queue has no parts"
            yield ConfigMistake(location, f"{address!r} is a part of {target!r}; {reason}")
            return
        if target in self.kinds:
            return
        if target in self.redirects:
            if not elsewhere:
                reason = "is in another container; messages cannot be sent there from here"
                yield ConfigMistake(location, f"{address!r} {reason}")
            return
        reserved = target.startswith(("$", DYNAMIC))
        if not reserved and self._has_pattern(target):
            return
        if self.nodes.auto_create is not False and not reserved and not parted:
            return
        yield ConfigMistake(location, f"{address!r} names nothing{self._hint(target)}")

    def _hint(self, name: str) -> str:
        """Return a hint with a similar name; empty after many hints."""
        hint = self.hints.get(name)
        if hint is None:
            hint = "" if len(self.hints) >= _MOST_HINTS else _suggestion(name, self.names)
            self.hints[name] = hint
        return hint

    def _follow(self, address: str) -> str:
        seen: set[str] = set()
        while address in self.aliases and address not in seen:
            seen.add(address)
            address = self.aliases[address]
        return address


def _origin(said: DeclaredNode | Subscription, key: str, place: Location) -> Location:
    """Return the place of a setting: in the node's own table, or in its shared policy."""
    if said.policy and key.replace("-", "_") not in said.model_fields_set:
        return ("policies", said.policy, key)
    return (*place, key)


def _suggestion(name: str, names: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
