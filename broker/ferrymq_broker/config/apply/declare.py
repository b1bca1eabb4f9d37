"""Applies a configuration to a broker: limits, virtual hosts, nodes, aliases, bindings.

Nodes of the store that the configuration does not mention stay as they are. A node that is both
stored and declared gets the settings of the configuration, as far as a node can change.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from ferrymq_broker.addresses.address_records import policy_of
from ferrymq_broker.addresses.address_space import AddressRedirect, AddressSpace
from ferrymq_broker.addresses.declared_nodes import CONFIGURATION
from ferrymq_broker.addresses.templates import PatternTemplate
from ferrymq_broker.broker import Broker
from ferrymq_broker.config.apply.rules import make_rule
from ferrymq_broker.config.apply.store_conflicts import contradictions, difference
from ferrymq_broker.config.apply.subscriptions import declare_subscriptions, rule_mistakes
from ferrymq_broker.config.declarations import Exchange, Nodes, Tables
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.model import Config
from ferrymq_broker.config.policy_resolution import auto_created, resolve_policy
from ferrymq_broker.connections.client_limits import ClientLimits
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.dead_letter_index import dead_letter_addresses_of
from ferrymq_broker.nodes.exchanges.exchange import Exchange as ExchangeNode
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.transactions.transaction import TransactionLimits
from ferrymq_broker.values.names import DYNAMIC
from ferrymq_broker.values.policy import (
    ExchangePolicy,
    NodePolicy,
    QueuePolicy,
    StreamPolicy,
    TopicPolicy,
)


def make_hosts(config: Config, broker: Broker) -> None:
    """Give a new broker its limits and its virtual hosts, without any nodes."""
    set_limits(config, broker)
    broker.default.max_nodes = config.nodes.limit
    for host in config.virtual_host:
        broker.add_space(host.name, host.all_hostnames(), config.nodes_of(host).limit)
        broker.spaces[host.name].rules = [make_rule(rule) for rule in host.rule]
    broker.default.rules = [make_rule(rule) for rule in config.rule]
    for space in broker.spaces.values():
        space.advertised = config.advertise or ""
    if any(space.rules for space in broker.spaces.values()):
        broker.guarded = True


def set_limits(config: Config, broker: Broker) -> None:
    """Give a broker the limits of a configuration, also while it runs. Those that are told in the
    open of a connection count for new connections."""
    broker.strict_hosts = config.unknown_hostname == "refuse"
    broker.limit_credit(config.limits.total_credit)
    limits = config.limits
    broker.transaction_limits = TransactionLimits(
        limits.transactions,
        int(limits.transaction_timeout * 1000),
        limits.transaction_work,
        limits.transaction_bytes,
    )
    broker.client_limits = ClientLimits(
        limits.links,
        limits.attach_size,
        limits.attach_total,
        limits.unsettled_map,
        limits.dynamic_nodes,
        limits.unsettled,
        limits.unsettled_per_connection,
    )
    rates = broker.rate_limits
    rates.messages = limits.messages_per_second
    rates.bytes = limits.bytes_per_second
    rates.user_messages = limits.messages_per_second_per_user
    rates.user_bytes = limits.bytes_per_second_per_user
    broker.unfinished.limit = limits.unfinished_total_bytes()
    broker.users.limit = limits.connections_per_user
    broker.shared.termini.per_user = limits.termini_per_user
    # At least one byte: with zero the broker would choose a value itself.
    low_water = max(1, config.alarms.low_water_bytes())
    broker.limit_memory(config.alarms.memory_bytes(), low_water)


def declare(config: Config, broker: Broker) -> None:
    """Make everything that the configuration declares; stored nodes exist already.

    Raises one `ConfigError` for all stored nodes that cannot get their declared settings, or for
    all rules of subscriptions that are not valid, and
    `BrokerError` for nodes that cannot be created.
    """
    found = contradictions(config, broker) or rule_mistakes(config)
    if found:
        raise ConfigError("\n".join(mistake.reason for mistake in found))
    served = broker.served_spaces()
    if broker.default in served:
        fill_space(config, config, config.nodes, broker.default)
    for host in config.virtual_host:
        if broker.spaces[host.name] in served:
            fill_space(config, host, config.nodes_of(host), broker.spaces[host.name])


def fill_space(config: Config, tables: Tables, nodes: Nodes, space: AddressSpace) -> None:
    """Create the nodes, patterns, redirects, aliases and bindings of one virtual host."""
    space.max_nodes = nodes.limit
    space.auto_create, space.auto_create_topic = auto_created(nodes)
    fill_tables(config, tables, space)
    if space.personality is not None:
        space.personality.declare()
    _tell_of_others(space)


def fill_tables(config: Config, tables: Tables, space: AddressSpace) -> None:
    """Create what the tables of one virtual host declare, or change it to be so."""
    template = PatternTemplate()
    exchanges: list[Exchange] = []
    for kind, _, entry in tables.declared():
        policy = resolve_policy(kind, entry, config.policies)
        # The index needs the addresses even before nodes of this pattern exist.
        space.dead_letter_index.add(dead_letter_addresses_of(policy))
        if entry.name is None:
            template.add(entry.address, policy)
            continue
        declare_node(space, entry.name, policy)
        if isinstance(entry, Exchange):
            exchanges.append(entry)
    if any(entry.pattern is not None for _, _, entry in tables.declared()):
        # Templates of a personality come later.
        space.templates.insert(0, template)
        _follow_patterns(space, template)
    for redirect in tables.redirect:
        _hide_alias(space, redirect.name)
        space.redirects[redirect.name] = AddressRedirect(
            redirect.hostname or redirect.host,
            redirect.host,
            redirect.port,
            redirect.address or redirect.name,
        )
    targets = {alias.name: alias.to for alias in tables.alias}
    for name, target in targets.items():
        # An alias of an alias is stored with its final target, so that a look-up takes one step.
        while target in targets:
            target = targets[target]
        if space.aliases.get(name) != target:
            _hide_alias(space, name)
        space.declare_alias(name, target)
    for entry in exchanges:
        _bind(space, entry)
    declare_subscriptions(tables, space)


# -- nodes ------------------------------------------------------------------------------------


def declare_node(space: AddressSpace, name: str, policy: NodePolicy) -> None:
    """Make the node, or give the stored node its declared policy. The caller has made sure that
    the stored node can have it."""
    space.declared.policies[name] = policy
    _hide_alias(space, name)
    node = space.nodes.get(name)
    if node is None:
        space.create(name, policy)
        return
    node.declared = True
    attainable = _attainable(node, policy)
    if attainable != policy:
        log.warning(
            "a stored stream has more partitions than declared, and keeps them",
            space=space.name,
            address=name,
        )
    if attainable != policy_of(node):
        _follow(node, attainable)
        log.info("a stored node follows the configuration", space=space.name, address=name)
    elif node.origin == CONFIGURATION:
        return
    node.origin = CONFIGURATION
    space.changed(node)


def _attainable(node: Node, policy: NodePolicy) -> NodePolicy:
    """Return the policy that a stored node can have: a stream keeps at least its partitions."""
    if isinstance(node, Stream) and isinstance(policy, StreamPolicy):
        present = len(node.partitions)
        if policy.partitions < present:
            return replace(policy, partitions=present)
    return policy


def _follow(node: Node, policy: NodePolicy) -> None:
    """Change the policy of a stored node to one that the node can have."""
    if isinstance(node, Queue):
        assert isinstance(policy, QueuePolicy)
        node.change_policy(policy)
    elif isinstance(node, Topic):
        assert isinstance(policy, TopicPolicy)
        node.change_policy(policy)
    elif isinstance(node, Stream):
        assert isinstance(policy, StreamPolicy)
        node.change_policy(policy)
    elif isinstance(node, ExchangeNode):
        assert isinstance(policy, ExchangePolicy)
        node.change_policy(policy)


def _follow_patterns(space: AddressSpace, template: PatternTemplate) -> None:
    """Give the present policy of a pattern to the stored nodes that were made by this pattern.

    Nodes that were declared, or changed by management, stay as they are.
    """
    following: Counter[str] = Counter()
    staying: dict[str, list[str]] = defaultdict(list)
    for address, node in space.nodes.items():
        if node.origin or address in space.declared.policies or address.startswith(("$", DYNAMIC)):
            continue
        found = template.match(address)
        if found is None:
            continue
        pattern, policy = found
        if difference(node, policy) is not None:
            staying[pattern.text].append(address)
            continue
        attainable = _attainable(node, policy)
        if attainable != policy_of(node):
            _follow(node, attainable)
            space.changed(node)
            following[pattern.text] += 1
    for text, count in following.items():
        log.info("stored nodes follow their pattern", space=space.name, pattern=text, nodes=count)
    for text, addresses in staying.items():
        log.warning(
            "stored nodes cannot follow their pattern, and stay as they are",
            space=space.name,
            pattern=text,
            nodes=len(addresses),
            address=addresses[0],
        )


def _tell_of_others(space: AddressSpace) -> None:
    """Log each stored node that the configuration declared before and does not declare now."""
    for address, node in space.nodes.items():
        if node.origin == CONFIGURATION and address not in space.declared.policies:
            log.warning(
                "a stored node is not in the configuration any more; it stays",
                space=space.name,
                address=address,
                kind=node.kind,
            )


# -- names ------------------------------------------------------------------------------------


def _hide_alias(space: AddressSpace, name: str) -> None:
    """Hide a stored alias while the configuration uses its name for something else."""
    before = space.hide_alias(name)
    if before is not None:
        log.warning(
            "a stored alias makes way for what is declared",
            space=space.name,
            alias=name,
            address=before,
        )


def _bind(space: AddressSpace, entry: Exchange) -> None:
    """Bind an exchange, and make the destinations that are declared only by a pattern."""
    exchange = space.nodes[entry.address]
    assert isinstance(exchange, ExchangeNode)
    if exchange.policy.alternate:
        node, _ = space.resolve(exchange.policy.alternate)
        space.declared.lead_to(node)
    for binding in entry.binding:
        node, _ = space.resolve(binding.to)
        space.declared.bind(exchange, node, binding.key, dict(binding.arguments))
