"""Explains the rights of a client at an address, and which rule gives them; needs no broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ferrymq_broker.access.access import FENCE
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.access.patterns import node_of
from ferrymq_broker.access.rules import Rule
from ferrymq_broker.config.access import (
    CLAIM,
    EVERY,
    GROUP,
    KEY,
    NOBODY,
    USER,
    AccessRule,
    KeptRule,
    read_subject,
)
from ferrymq_broker.config.apply.explain import Explanation, explain, tables_of
from ferrymq_broker.config.apply.rules import make_key_rule, make_rule
from ferrymq_broker.config.declarations import Tables
from ferrymq_broker.config.errors import ConfigError, Location
from ferrymq_broker.config.model import DEFAULT_HOST, Config
from ferrymq_broker.config.policy_resolution import resolve_policy
from ferrymq_broker.nodes.dead_letter_index import dead_letter_addresses_of
from ferrymq_broker.values.names import DYNAMIC, PART
from ferrymq_broker.values.rights import RIGHTS

_SERVICES: Final = ("$management", "$cbs")


@dataclass(frozen=True, slots=True)
class AccessVerdict:
    """The answer for one right. `location` is the place of the rule that decides; empty if no rule
    does. `kept` is its name if it is in the file of rules."""

    right: str
    given: bool
    location: Location = ()
    kept: str = ""


@dataclass(frozen=True, slots=True)
class AccessExplanation:
    """The rights of an identity at `address`, in which aliases are resolved.

    `open` is True if every client may do everything, because there are no rules. `groups` are the
    identity's groups, `notes` facts that the rules do not show.
    """

    address: str
    open: bool
    groups: list[str]
    verdicts: list[AccessVerdict]
    notes: list[str]


def read_identity(text: str, config: Config) -> UserIdentity:
    """Read an identity such as ``user:alice,group:shipping``, in the words of a rule.

    The user's groups in the file are added. Raises `ConfigError`.
    """
    user: str | None = None
    key = ""
    groups: set[str] = set()
    claims: dict[str, frozenset[str]] = {}
    for part in text.split(","):
        try:
            subject = read_subject(part.strip())
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if subject.kind == USER:
            if user is not None:
                raise ConfigError("an identity has only one user")
            user = subject.name
            groups |= config.security.groups_of().get(user, frozenset())
        elif subject.kind == GROUP:
            groups.add(subject.name)
        elif subject.kind == CLAIM:
            known = claims.get(subject.name, frozenset())
            claims[subject.name] = known | {subject.value}
        elif subject.kind == KEY:
            key = subject.name
        elif subject.kind == EVERY:
            raise ConfigError("'*' stands for every client; name one client, or 'anonymous'")
        elif subject.kind == NOBODY and "," in text:
            raise ConfigError("'anonymous' cannot be combined with other names")
    return UserIdentity(user, frozenset(groups), claims, key)


def _given_by_key(
    config: Config, identity: UserIdentity, address: str, host: str, right: int
) -> Location:
    """Return the place of the shared access key that gives a right which no rule decides."""
    for at, key in enumerate(config.security.shared_access_key):
        if key.id == identity.key and key.virtual_host == host:
            rule = make_key_rule(key, key.entity)
            if rule is not None and rule.may & right and _is_about(rule, identity, address):
                return ("security", "shared-access-key", at)
    return ()


def explain_access(
    config: Config,
    address: str,
    identity: UserIdentity,
    host: str = DEFAULT_HOST,
    kept: Sequence[KeptRule] = (),
) -> AccessExplanation:
    """Explain the rights of an identity at an address. `kept` are the rules of the file of rules.

    Raises `ConfigError` if there is no such virtual host.
    """
    tables, place = tables_of(config, host)
    found = explain(config, address, host)
    meant = f"{found.node}{PART}{found.part}" if found.part else found.node
    if found.owner:
        meant = found.owner
    open = not (
        config.security.takes_tokens
        or kept
        or any(each.rule for each in (config, *config.virtual_host))
    )
    rules: list[tuple[AccessRule, Location]] = [
        (rule, (*place, "rule", at)) for at, rule in enumerate(tables.rule)
    ]
    rules += [(rule, ("security", "rules-file")) for rule in kept if rule.virtual_host == host]
    verdicts: list[AccessVerdict] = []
    for name, bit in RIGHTS.items():
        location: Location = ()
        given = open
        name_kept = ""
        for rule, its_place in () if open else rules:
            asked = make_rule(rule)
            if (asked.may | asked.may_not) & bit == 0 or not _is_about(asked, identity, meant):
                continue
            given = asked.may & bit != 0
            location = its_place
            name_kept = rule.name if isinstance(rule, KeptRule) else ""
            break
        if not open and not location:
            location = _given_by_key(config, identity, meant, host, bit)
            given = bool(location)
        verdicts.append(AccessVerdict(name, given, location, name_kept))
    notes = [] if open else _notes(config, tables, found, meant)
    return AccessExplanation(meant, open, sorted(identity.groups), verdicts, notes)


def _is_about(rule: Rule, identity: UserIdentity, address: str) -> bool:
    bound = rule.bind(identity)
    return bound is not None and bound.matches(address, node_of(address))


def _notes(config: Config, tables: Tables, found: Explanation, address: str) -> list[str]:
    notes: list[str] = []
    if address in _SERVICES:
        notes.append("every client may send requests there; each request needs rights of its own")
    elif address.startswith(FENCE):
        notes.append(
            "transactions with this fence need send, here or at the address that the fence is for"
        )
    elif address.startswith(DYNAMIC):
        notes.append("every client that knows the address may send there, unless a rule refuses it")
        notes.append("the connection that the node was made for may receive from it")
    if found.found == "auto-create" or found.found == "pattern":
        notes.append("a link to this address needs create too while the node does not exist")
    if found.owner:
        notes.append("the rights at a sub-queue are those at its owner")
    if found.owner or node_of(address) in _letter_boxes(config, tables):
        notes.append("the node gets dead letters: receiving and browsing need dead-letter instead")
    if config.security.takes_tokens:
        notes.append("tokens may give more rights, except those that a rule refuses")
    return notes


def _letter_boxes(config: Config, tables: Tables) -> set[str]:
    aliases = {alias.name: alias.to for alias in tables.alias}
    boxes: set[str] = set()
    for kind, _, entry in tables.declared():
        for name in dead_letter_addresses_of(resolve_policy(kind, entry, config.policies)):
            while name in aliases:
                name = aliases[name]
            boxes.add(node_of(name))
    return boxes
