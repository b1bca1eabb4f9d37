"""From a configuration to a broker that has what it says."""

from __future__ import annotations

from ferrymq_broker.addresses.space import AddressSpace, Redirect
from ferrymq_broker.addresses.templates import PatternTemplate
from ferrymq_broker.broker import Broker
from ferrymq_broker.config.declarations import Exchange, Nodes, Tables
from ferrymq_broker.config.model import Config
from ferrymq_broker.config.resolution import resolve_policy
from ferrymq_broker.nodes.exchanges.exchange import Exchange as ExchangeNode
from ferrymq_broker.nodes.policy import NodePolicy, QueuePolicy, TopicPolicy
from ferrymq_broker.transactions.transaction import TransactionLimits


def apply_config(config: Config, broker: Broker) -> None:
    """Give a new broker its limits and virtual hosts, with all that is declared in them.

    Raises `BrokerError` for nodes that there cannot be; a configuration that was checked has none.
    """
    broker.strict_hosts = config.unknown_hostname == "refuse"
    broker.limit_credit(config.limits.total_credit)
    limits = config.limits
    broker.transaction_limits = TransactionLimits(
        limits.transactions,
        int(limits.transaction_timeout * 1000),
        limits.transaction_work,
        limits.transaction_bytes,
    )
    # At least one byte: zero would leave it to the broker.
    low_water = max(1, config.alarms.low_water_bytes())
    broker.limit_memory(config.alarms.memory_bytes(), low_water)
    fill_space(config, config, config.nodes, broker.default)
    for host in config.virtual_host:
        nodes = config.nodes_of(host)
        space = broker.add_space(host.name, host.all_hostnames(), nodes.limit)
        fill_space(config, host, nodes, space)


def fill_space(config: Config, tables: Tables, nodes: Nodes, space: AddressSpace) -> None:
    """Give one virtual host its nodes, patterns, redirects, aliases and bindings."""
    space.max_nodes = nodes.limit
    space.auto_create, space.auto_create_topic = auto_created(nodes)
    template = PatternTemplate()
    exchanges: list[Exchange] = []
    for kind, _, entry in tables.declared():
        policy = resolve_policy(kind, entry, config.policies)
        if entry.name is None:
            template.add(entry.address, policy)
            continue
        space.create(entry.name, policy)
        if isinstance(entry, Exchange):
            exchanges.append(entry)
    if any(entry.pattern is not None for _, _, entry in tables.declared()):
        space.templates.append(template)
    for redirect in tables.redirect:
        space.redirects[redirect.name] = Redirect(
            redirect.hostname or redirect.host,
            redirect.host,
            redirect.port,
            redirect.address or redirect.name,
        )
    targets = {alias.name: alias.to for alias in tables.alias}
    for name, target in targets.items():
        # Looked up in one step: an alias of an alias leads to where that one does.
        while target in targets:
            target = targets[target]
        space.aliases[name] = target
    for entry in exchanges:
        _bind(space, entry)


def _bind(space: AddressSpace, entry: Exchange) -> None:
    """Bind an exchange. Nodes it hands messages to that only a pattern knows come up now."""
    exchange = space.nodes[entry.address]
    assert isinstance(exchange, ExchangeNode)
    if exchange.policy.alternate:
        space.resolve(exchange.policy.alternate)
    for binding in entry.binding:
        node, _ = space.resolve(binding.to)
        exchange.bind(node.address, binding.key, dict(binding.arguments))


def auto_created(nodes: Nodes) -> tuple[NodePolicy | None, NodePolicy | None]:
    """What is made for names nobody declared: in general, and for links that ask for a topic."""
    made = nodes.auto_create
    if made is False:
        return None, None
    if made == "topic":
        return TopicPolicy(), TopicPolicy()
    return QueuePolicy(), TopicPolicy() if made is True else None
