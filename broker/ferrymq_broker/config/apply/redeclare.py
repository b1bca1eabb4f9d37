"""Applies other declarations to a broker that runs: nodes, patterns, aliases, redirects, bindings.

Only what is declared in another way than before is touched: what management has changed or deleted
stays so until its declaration changes, or until the next start. Nodes and bindings that are not
declared any more stay, because messages would be lost. They are kept only as long as they are used,
as any others.
"""

from __future__ import annotations

from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.addresses.templates import PatternTemplate
from ferrymq_broker.broker import Broker
from ferrymq_broker.config.apply.declare import fill_tables
from ferrymq_broker.config.declarations import Exchange, Nodes, Tables
from ferrymq_broker.config.model import Config
from ferrymq_broker.config.policy_resolution import auto_created, resolve_policy
from ferrymq_broker.nodes.dead_letter_index import dead_letter_addresses_of


def redeclare(before: Config, after: Config, broker: Broker) -> None:
    """Replace the declarations of `before` by those of `after`, in the virtual hosts that are in
    both. The caller has looked for contradictions. Raises `BrokerError` for nodes that cannot be
    created."""
    if broker.default.elsewhere < 0:
        _refill(before, before, after, after, after.nodes, broker.default)
    old_hosts = {host.name: host for host in before.virtual_host}
    for host in after.virtual_host:
        old = old_hosts.get(host.name)
        space = broker.spaces.get(host.name)
        if old is not None and space is not None and space.elsewhere < 0:
            _refill(before, old, after, host, after.nodes_of(host), space)


def _refill(
    before: Config, old: Tables, after: Config, new: Tables, nodes: Nodes, space: AddressSpace
) -> None:
    space.max_nodes = nodes.limit
    if space.personality is None:
        # A personality decides itself which nodes are made.
        space.auto_create, space.auto_create_topic = auto_created(nodes)
    old_declarations = _declarations(before, old)
    new_declarations = _declarations(after, new)
    _clear(before, _without(old, old_declarations, new, new_declarations), space)
    fill_tables(after, _without(new, new_declarations, old, old_declarations), space)
    declared = space.declared
    for node in space.nodes.values():
        if node.declared and not declared.keeps(node.address):
            node.declared = False


def _declarations(config: Config, tables: Tables) -> dict[str, object]:
    """Return what is declared for each name: the policy of the node, and its bindings."""
    return {
        entry.name: (
            resolve_policy(kind, entry, config.policies),
            entry.binding if isinstance(entry, Exchange) else [],
        )
        for kind, _, entry in tables.declared()
        if entry.name is not None
    }


def _without(
    tables: Tables, own: dict[str, object], other: Tables, others: dict[str, object]
) -> Tables:
    """Return the tables without the nodes and subscriptions that `other` declares in the same way.
    Patterns and redirects are replaced as a whole; so are aliases, which may lead to one another,
    if any of them differs."""
    same = {name for name, declared in own.items() if others.get(name) == declared}
    kept: dict[str, object] = {
        kind: [entry for entry in entries if entry.name is None or entry.name not in same]
        for kind, entries in (
            ("queue", tables.queue),
            ("topic", tables.topic),
            ("stream", tables.stream),
            ("exchange", tables.exchange),
        )
    }
    kept["subscription"] = [each for each in tables.subscription if each not in other.subscription]
    if tables.alias == other.alias:
        kept["alias"] = []
    return tables.model_copy(update=kept)


def _clear(config: Config, old: Tables, space: AddressSpace) -> None:
    """Forget the declarations of a configuration."""
    space.templates = [each for each in space.templates if not isinstance(each, PatternTemplate)]
    for kind, _, entry in old.declared():
        policy = resolve_policy(kind, entry, config.policies)
        space.dead_letter_index.drop(dead_letter_addresses_of(policy))
    names = [entry.name for _, _, entry in old.declared() if entry.name is not None]
    space.declared.forget(names)
    for redirect in old.redirect:
        space.redirects.pop(redirect.name, None)
    for alias in old.alias:
        if space.declared_aliases.pop(alias.name, None) is not None:
            space.hide_alias(alias.name)
