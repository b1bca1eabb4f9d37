"""Definitions: what a running broker has, as one document with the keys of the configuration.

It has what `serve --config` can make again: nodes that were declared by the configuration or by
management, their bindings, subscriptions and aliases, patterns, redirects, policies, rules, and the
groups of users. It has no messages, no passwords, and no nodes that links have made by use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ferrymq_broker.addresses.address_records import policy_of
from ferrymq_broker.config.apply.differences import plain
from ferrymq_broker.config.apply.stated_settings import stated_settings
from ferrymq_broker.config.declarations import Tables
from ferrymq_broker.config.model import DEFAULT_HOST, Config
from ferrymq_broker.config.policy_resolution import resolve_policy
from ferrymq_broker.management.workers import DEFINITIONS
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.node import PERMANENT, Node
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.names import DYNAMIC

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.management.access_rules import RuleKeeper
    from ferrymq_broker.management.live import LiveKeepers
    from ferrymq_broker.management.sliced_query import Steps
    from ferrymq_broker.management.workers import OtherWorkers
    from ferrymq_broker.nodes.exchanges.binding import Binding

Table = dict[str, object]

# The name of the file of users in a document, if the broker has none.
_USERS: Final = "users.json"


@dataclass(slots=True)
class BrokerDefinitions:
    """A document, and what has no place in one: maps of `kind`, `name`, `virtual-host`,
    `reason`."""

    document: Table = field(default_factory=dict)
    omitted: list[Table] = field(default_factory=list)

    def omit(self, kind: str, name: str, host: str, reason: str) -> None:
        """Note something that is left out."""
        self.omitted.append({"kind": kind, "name": name, "virtual-host": host, "reason": reason})


def definitions_of(
    broker: Broker, keepers: LiveKeepers, workers: OtherWorkers | None = None
) -> Steps[BrokerDefinitions]:
    """Return the definitions of all virtual hosts, also of those that other workers serve."""
    config = keepers.config.in_force
    found = BrokerDefinitions()
    document = found.document
    security = _security(config, keepers, found)
    if security:
        document["security"] = security
    if config.policies:
        document["policies"] = {name: plain(each) for name, each in config.policies.items()}
    part = definitions_of_worker(broker, keepers, config.personality.settings, found)
    hosts = part.hosts
    if workers is not None:
        document["workers"] = config.workers
        yield from _add_others(broker, workers, part, found)
    if config.personality.name:
        document["personality"] = {"name": config.personality.name, **part.personal}
    document |= hosts.get(DEFAULT_HOST, {})
    tables: list[Table] = []
    for host in config.virtual_host:
        names: Table = {"name": host.name}
        if host.hostnames:
            names["hostnames"] = list(host.hostnames)
        if host.worker is not None:
            names["worker"] = host.worker
        tables.append({**names, **hosts.get(host.name, {})})
    if tables:
        document["virtual-host"] = tables
    return found


@dataclass(slots=True)
class WorkerDefinitions:
    """The tables of the virtual hosts of one worker, and the settings of the personality with what
    they add."""

    hosts: dict[str, Table]
    personal: Table


def _add_others(
    broker: Broker, workers: OtherWorkers, part: WorkerDefinitions, found: BrokerDefinitions
) -> Steps[None]:
    """Add what other workers serve to the part of this one."""
    for number in workers.numbers:
        answers = workers.ask(DEFINITIONS, part.personal, number)
        while not answers.over:
            yield True
        if number in answers.found:
            told = answers.found[number]
            part.hosts |= told["hosts"]
            part.personal = told["personal"]
            found.omitted += told["omitted"]
            continue
        for space in broker.spaces.values():
            if space.elsewhere == number:
                reason = f"worker {number}, which serves it, does not answer: export again later"
                found.omit("virtual-host", space.name, space.name, reason)


def definitions_of_worker(
    broker: Broker, keepers: LiveKeepers, personal: Mapping[str, object], found: BrokerDefinitions
) -> WorkerDefinitions:
    """Return the definitions of the virtual hosts that this process serves. `personal` are the
    settings of the personality so far."""
    config = keepers.config.in_force
    part = WorkerDefinitions({}, dict(personal))
    stated: dict[str, Tables] = {DEFAULT_HOST: config}
    stated |= {host.name: host for host in config.virtual_host}
    for space in broker.served_spaces():
        if space.personality is not None:
            part.personal |= space.personality.definitions(part.personal)
        tables = stated.get(space.name)
        if tables is not None:
            part.hosts[space.name] = _tables(config, tables, space, keepers.rules, found)
    return part


def _security(config: Config, keepers: LiveKeepers, found: BrokerDefinitions) -> Table:
    """Return who may connect, without passwords and keys."""
    security = config.security
    file = security.users_file
    table: Table = {}
    groups: dict[str, list[str]] = {}
    for name, its_groups in sorted(keepers.users.users().items()):
        for group in sorted(its_groups):
            groups.setdefault(group, []).append(name)
        reason = "passwords are not exported; "
        if file is None or name in security.users:
            reason += "make the user again"
        else:
            reason += f"copy {file} beside the definitions, or make the user again"
        found.omit("user", name, DEFAULT_HOST, reason)
    if file is not None or security.users:
        # Rules about users need a place where users are.
        table["users-file"] = _USERS if file is None else file.name
    if groups:
        table["groups"] = groups
    for key in ("anonymous", "certificate-rule", "jwt"):
        value = plain(getattr(security, key.replace("-", "_")))
        if value:
            table[key] = value
    for each in security.shared_access_key:
        found.omit("shared-access-key", each.id, each.virtual_host, "keys are not exported")
    return table


def _tables(
    config: Config, tables: Tables, space: AddressSpace, rules: RuleKeeper, found: BrokerDefinitions
) -> Table:
    """Return the tables of one virtual host."""
    made: dict[str, list[Table]] = {}
    bound = {
        address
        for node in space.nodes.values()
        if isinstance(node, Exchange)
        for binding in node.bindings()
        for address in (node.address, binding.destination)
    }
    for address in sorted(space.nodes):
        node = space.nodes[address]
        if not _is_defined(node, bound):
            continue
        policy = policy_of(node)
        assert policy is not None
        table: Table = {"name": address, **stated_settings(policy)}
        if isinstance(node, Exchange):
            bindings = [_binding(node, each, found, space) for each in node.bindings()]
            if any(bindings):
                table["binding"] = [each for each in bindings if each]
        if isinstance(node, Topic):
            made.setdefault("subscription", []).extend(_subscriptions(node, found, space))
        made.setdefault(node.kind, []).append(table)
    for kind, _, entry in tables.declared():
        if entry.pattern is not None:
            settings = stated_settings(resolve_policy(kind, entry, config.policies))
            made.setdefault(kind, []).append({"pattern": entry.pattern, **settings})
    stated = [*rules.configured(space.name), *rules.kept(space.name)]
    others = {
        "alias": [{"name": name, "to": to} for name, to in sorted(space.aliases.items())],
        "redirect": [_map(plain(each)) for each in tables.redirect],
        "rule": [_rule(_map(plain(each))) for each in stated],
    }
    result: Table = {key: entries for key, entries in (made | others).items() if entries}
    nodes = plain(tables.nodes)
    if nodes:
        result["nodes"] = nodes
    return result


def _is_defined(node: Node, bound: set[str]) -> bool:
    """Return whether a node belongs into definitions: it was declared, or bindings need it."""
    policy = policy_of(node)
    if policy is None or not policy.durable or node.lifetime != PERMANENT:
        return False
    if node.address.startswith(("$", DYNAMIC)):
        return False
    if isinstance(node, Queue) and (node.owner_queue is not None or node.locked_to):
        return False
    return node.origin != "" or node.address in bound


def _binding(
    exchange: Exchange, binding: Binding, found: BrokerDefinitions, space: AddressSpace
) -> Table | None:
    """Return a binding as a table; None if it cannot be in a file."""
    node = space.nodes.get(binding.destination)
    name = f"{exchange.address} -> {binding.destination} ({binding.key})"
    if node is None or not _is_defined(node, {binding.destination}):
        found.omit("binding", name, space.name, "its destination is not in the definitions")
        return None
    table: Table = {"to": binding.destination}
    if binding.key:
        table["key"] = binding.key
    if binding.arguments:
        if not all(isinstance(each, str | int | float) for each in binding.arguments.values()):
            reason = "a file has only texts, numbers and booleans as arguments"
            found.omit("binding", name, space.name, reason)
            return None
        table["arguments"] = dict(binding.arguments)
    return table


def _subscriptions(topic: Topic, found: BrokerDefinitions, space: AddressSpace) -> Iterator[Table]:
    """Yield the declared subscriptions of a topic; those of clients come with their clients."""
    for subscription in topic.subscriptions():
        if not subscription.declared:
            continue
        if subscription.filter is not None or (
            subscription.queue.policy != topic.policy.subscription
        ):
            reason = "it has a selector or settings of its own, which a file cannot state"
            found.omit("subscription", subscription.address, space.name, reason)
            continue
        table: Table = {"topic": topic.address, "name": subscription.name}
        rules = [] if subscription.rules is None else subscription.rules.all()
        if rules:
            table["rule"] = [rule.describe() for rule in rules]
        yield table


def _rule(table: Table) -> Table:
    table.pop("virtual-host", None)
    return table


def _map(value: object) -> Table:
    assert isinstance(value, Mapping)
    return dict(value)
