"""The plan of an import: users, rules and nodes made of definitions, and what has no equal."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ferrymq_broker.values.names import DEFAULT_SPACE, MAX_ADDRESS_LENGTH
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy, StreamPolicy
from ferrymq_rabbitmq.address_v2 import (
    DEFAULT_VHOST,
    RESERVED,
    exchange_address,
    exchange_name,
    is_queue_name,
)
from ferrymq_rabbitmq.arguments import (
    ALTERNATE,
    ArgumentError,
    acts,
    exchange_policy,
    is_known,
    labels_of,
    queue_policy,
    queue_type,
)
from ferrymq_rabbitmq.definitions.access_rules import StatedRule, rules_of, rules_of_tags
from ferrymq_rabbitmq.definitions.document import (
    Definitions,
    Entry,
    HostDefinitions,
    Omission,
    arguments_in_entry,
    flag_of,
    text_of,
)
from ferrymq_rabbitmq.pattern_policies import PatternPolicies, PatternPolicy, merge_policy
from ferrymq_rabbitmq.predeclared import PREDECLARED

# RabbitMQ's names of hash algorithms, and the broker's.
_ALGORITHMS: Final = {
    "rabbit_password_hashing_sha256": "sha256",
    "rabbit_password_hashing_sha512": "sha512",
    "rabbit_password_hashing_md5": "md5",
}
# The user that RabbitMQ has from the start, and its password.
_GUEST: Final = "guest"
# The bytes of the salt at the beginning of a hash.
_SALT: Final = 4
# Settings of policies that matter only in a cluster, or for RabbitMQ's files.
_WITHOUT_EFFECT: Final = (
    "ha-",
    "queue-mode",
    "queue-version",
    "queue-master-locator",
    "queue-leader-locator",
    "max-in-memory-",
    "target-group-size",
    "initial-cluster-size",
)


@dataclass(frozen=True, slots=True)
class PlannedUser:
    """A user with the hash of a password."""

    name: str
    algorithm: str
    salt: bytes
    digest: bytes
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A queue or an exchange. `arguments` are what clients declare it with."""

    name: str
    policy: QueuePolicy | StreamPolicy | ExchangePolicy
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PlannedBinding:
    """A binding of a queue or of another exchange, whose native address is `destination`."""

    source: str
    destination: str
    key: str
    arguments: Mapping[str, object]


@dataclass(slots=True)
class HostPlan:
    """The part of a plan for one virtual host. `space` is its name here."""

    space: str
    vhost: str
    queues: list[PlannedNode] = field(default_factory=list)
    exchanges: list[PlannedNode] = field(default_factory=list)
    bindings: list[PlannedBinding] = field(default_factory=list)
    policies: list[PatternPolicy] = field(default_factory=list)
    rules: list[StatedRule] = field(default_factory=list)


@dataclass(slots=True)
class ImportPlan:
    """A plan. `omitted` is what has no equal here."""

    version: str
    users: list[PlannedUser] = field(default_factory=list)
    hosts: list[HostPlan] = field(default_factory=list)
    omitted: list[Omission] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Return how many things of each kind the plan has."""
        counts = {"virtual hosts": len(self.hosts), "users": len(self.users)}
        for kind in ("queues", "exchanges", "bindings", "policies", "rules"):
            counts[kind] = sum(len(getattr(host, kind)) for host in self.hosts)
        return counts


def make_plan(definitions: Definitions) -> ImportPlan:
    """Return the plan for definitions. Raises ValueError for entries that are malformed."""
    plan = ImportPlan(definitions.version, omitted=list(definitions.omitted))
    for entry in definitions.users:
        user = _user(entry, plan.omitted)
        if user is not None:
            plan.users.append(user)
    names = {text_of(entry, "name", "users") for entry in definitions.users}
    for part in definitions.hosts.values():
        if part.name == DEFAULT_SPACE:
            reason = f"{DEFAULT_SPACE!r} is the name of the virtual host / here"
            plan.omitted.append(Omission("virtual host", part.name, "", reason))
            continue
        host = _host(part, plan.omitted)
        host.rules, omitted = rules_of(part, names)
        if names:
            host.rules += rules_of_tags(part.name == DEFAULT_VHOST)
        plan.omitted += omitted
        plan.hosts.append(host)
    return plan


# -- users ------------------------------------------------------------------------------------


def groups_of_tags(tags: object) -> tuple[str, ...]:
    """Return the groups for the tags of a user: a list, or a text with commas."""
    groups = tags.split(",") if isinstance(tags, str) else tags
    if not isinstance(groups, list):
        return ()
    return tuple(str(tag).strip() for tag in groups if str(tag).strip())


def hash_in(entry: Entry) -> tuple[str, bytes, bytes]:
    """Return the algorithm, the salt and the digest of a user's password. Raises ValueError."""
    named = entry.get("hashing_algorithm", "rabbit_password_hashing_sha256")
    algorithm = _ALGORITHMS.get(str(named))
    if algorithm is None:
        raise ValueError(f"hashing_algorithm: {named!r} is none that is known here")
    try:
        hashed = base64.b64decode(str(entry.get("password_hash", "")), validate=True)
    except binascii.Error:
        hashed = b""
    if len(hashed) <= _SALT:
        raise ValueError("it has no password; ferrymq user add makes one")
    return algorithm, hashed[:_SALT], hashed[_SALT:]


def _user(entry: Entry, omitted: list[Omission]) -> PlannedUser | None:
    name = text_of(entry, "name", "users")
    kept = groups_of_tags(entry.get("tags", []))
    for tag in kept:
        if tag == "policymaker":
            reason = "tag policymaker: policies are part of the configuration; the tag is a group"
            omitted.append(Omission("user", name, "", reason))
    try:
        algorithm, salt, digest = hash_in(entry)
    except ValueError as error:
        omitted.append(Omission("user", name, "", str(error)))
        return None
    usual = hashlib.new(algorithm, salt + _GUEST.encode(), usedforsecurity=False).digest()
    if name == _GUEST and digest == usual:
        reason = (
            "it has RabbitMQ's well-known password, with which RabbitMQ lets it in only from its "
            "own machine, and this broker from everywhere: change the password, or delete the user"
        )
        omitted.append(Omission("user", name, "", reason))
    return PlannedUser(name, algorithm, salt, digest, kept)


# -- nodes ------------------------------------------------------------------------------------


def _host(part: HostDefinitions, omitted: list[Omission]) -> HostPlan:
    vhost = part.name
    host = HostPlan(DEFAULT_SPACE if vhost == DEFAULT_VHOST else vhost, vhost)
    policies = PatternPolicies(part.policies)
    host.policies = part.policies
    for policy in part.policies:
        _tell_of_policy(policy, vhost, omitted)
    for entry in part.exchanges:
        node = _exchange(entry, vhost, policies, omitted)
        if node is not None:
            host.exchanges.append(node)
    for entry in part.queues:
        node = _queue(entry, vhost, policies, omitted)
        if node is not None:
            host.queues.append(node)
    exchanges = {node.name for node in host.exchanges} | set(PREDECLARED)
    host.exchanges = [_led_on(node, vhost, exchanges, omitted) for node in host.exchanges]
    queues = {node.name for node in host.queues}
    for entry in part.bindings:
        binding = _binding(entry, vhost, exchanges, queues, omitted)
        if binding is not None:
            host.bindings.append(binding)
    return host


def _queue(
    entry: Entry, vhost: str, policies: PatternPolicies, omitted: list[Omission]
) -> PlannedNode | None:
    name = text_of(entry, "name", "queues")
    if name.startswith(RESERVED) or not is_queue_name(name) or len(name) > MAX_ADDRESS_LENGTH:
        omitted.append(Omission("queue", name, vhost, "a queue cannot have this name here"))
        return None
    arguments = arguments_in_entry(entry)
    kind = entry.get("type")
    if isinstance(kind, str) and kind != "classic":
        arguments.setdefault("x-queue-type", kind)
    try:
        type = queue_type(arguments)
    except ArgumentError as error:
        omitted.append(Omission("queue", name, vhost, str(error)))
        return None
    for key, value in list(arguments.items()):
        if not is_known(type, key):
            del arguments[key]
            reason = f"{key} = {value!r}: there is no such argument here; the queue is made without"
            omitted.append(Omission("queue", name, vhost, reason))
    try:
        merged = _with_policies(type, name, vhost, arguments, policies, omitted)
        policy = queue_policy(
            merged,
            flag_of(entry, "durable", True),
            flag_of(entry, "exclusive"),
            flag_of(entry, "auto_delete"),
        )
        policy = replace(policy, labels=labels_of(arguments))
    except ArgumentError as error:
        omitted.append(Omission("queue", name, vhost, str(error)))
        return None
    return PlannedNode(name, policy, arguments)


def _with_policies(
    type: str,
    name: str,
    vhost: str,
    arguments: dict[str, object],
    policies: PatternPolicies,
    omitted: list[Omission],
) -> dict[str, object]:
    merged = arguments
    for operator in (False, True):
        policy = policies.find(type, name, operator)
        if policy is not None:
            try:
                merged = merge_policy(type, merged, policy.definition)
            except ArgumentError as error:
                reason = f"it does not count for the queue {name!r}: {error}"
                omitted.append(Omission("policy", policy.name, vhost, reason))
    return merged


def _exchange(
    entry: Entry, vhost: str, policies: PatternPolicies, omitted: list[Omission]
) -> PlannedNode | None:
    name = text_of(entry, "name", "exchanges")
    if not name or name in PREDECLARED:
        return None
    if name.startswith(RESERVED):
        if name not in ("amq.rabbitmq.trace", "amq.rabbitmq.log", "amq.rabbitmq.event"):
            omitted.append(Omission("exchange", name, vhost, "the name is reserved"))
        return None
    type = entry.get("type")
    if type == "x-delayed-message":
        reason = (
            "there is no type x-delayed-message; a message with the annotation "
            "x-opt-delivery-delay is delayed at every address"
        )
        omitted.append(Omission("exchange", name, vhost, reason))
        return None
    arguments = arguments_in_entry(entry)
    for key in list(arguments):
        if key.startswith("x-"):
            value = arguments.pop(key)
            reason = f"{key} = {value!r}: there is no such argument; the exchange is made without"
            omitted.append(Omission("exchange", name, vhost, reason))
    try:
        policy = exchange_policy(
            type,
            policies.exchange_arguments(name, arguments),
            flag_of(entry, "durable", True),
            flag_of(entry, "auto_delete"),
            flag_of(entry, "internal"),
        )
    except ArgumentError as error:
        omitted.append(Omission("exchange", name, vhost, str(error)))
        return None
    return PlannedNode(name, policy, arguments)


def _led_on(
    node: PlannedNode, vhost: str, exchanges: set[str], omitted: list[Omission]
) -> PlannedNode:
    """Return an exchange without an alternate exchange that does not exist."""
    policy = node.policy
    assert isinstance(policy, ExchangePolicy)
    if not policy.alternate or exchange_name(policy.alternate) in exchanges:
        return node
    reason = f"the alternate exchange {exchange_name(policy.alternate)!r} is not imported"
    omitted.append(Omission("exchange", node.name, vhost, reason))
    arguments = {key: value for key, value in node.arguments.items() if key != ALTERNATE}
    labels = tuple(label for label in policy.labels if not label.startswith(f"{ALTERNATE}="))
    return PlannedNode(node.name, replace(policy, alternate="", labels=labels), arguments)


def _binding(
    entry: Entry,
    vhost: str,
    exchanges: set[str],
    queues: set[str],
    omitted: list[Omission],
) -> PlannedBinding | None:
    source = text_of(entry, "source", "bindings")
    destination = text_of(entry, "destination", "bindings")
    key = text_of(entry, "routing_key", "bindings")
    if not source:
        # Every queue is bound to the default exchange.
        return None
    to_exchange = entry.get("destination_type") == "exchange"
    name = f"{source} -> {destination} ({key})"
    arguments = arguments_in_entry(entry)
    reason = ""
    if source not in exchanges:
        reason = f"the exchange {source!r} is not imported"
    elif destination not in (exchanges if to_exchange else queues):
        reason = f"the {'exchange' if to_exchange else 'queue'} {destination!r} is not imported"
    elif any(not isinstance(value, str | int | float | bool) for value in arguments.values()):
        reason = "arguments can only be texts, numbers and booleans here"
    if reason:
        omitted.append(Omission("binding", name, vhost, reason))
        return None
    address = exchange_address(destination) if to_exchange else destination
    return PlannedBinding(source, address, key, arguments)


def _tell_of_policy(policy: PatternPolicy, vhost: str, omitted: list[Omission]) -> None:
    """Report the settings of a policy that no queue and no exchange has here."""
    for key in policy.definition:
        if key == ALTERNATE or key.startswith(_WITHOUT_EFFECT):
            continue
        if not any(acts(type, f"x-{key}") for type in ("classic", "quorum", "stream")):
            what = "operator policy" if policy.operator else "policy"
            reason = f"{key}: there is no such setting here"
            omitted.append(Omission(what, policy.name, vhost, reason))
