"""Finds stored nodes that cannot become what the configuration declares.

A broker with such nodes does not start, and reports all of them at once. `ferrymq check-config
--data` finds them before a start.
"""

from __future__ import annotations

from collections.abc import Iterator

from ferrymq.partitioning import parse_placement
from ferrymq_broker.addresses.address_records import policy_of
from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.broker import Broker
from ferrymq_broker.config.declarations import Nodes, Tables
from ferrymq_broker.config.errors import ConfigMistake, Location
from ferrymq_broker.config.model import Config
from ferrymq_broker.config.nodes import kind_of
from ferrymq_broker.config.policy_resolution import resolve_policy
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.policy import ExchangePolicy, NodePolicy, QueuePolicy, StreamPolicy

_RID = (
    "to delete the stored node, remove it from this file, start the broker where no client"
    " connects (serve --listen) and delete it by management"
)


def contradictions(config: Config, broker: Broker, rid: str = _RID) -> list[ConfigMistake]:
    """Return the places where the configuration and the broker's stored nodes disagree. `rid` says
    how to get rid of a stored node. Virtual hosts that this process does not serve are left out."""
    served = broker.served_spaces()
    found: list[ConfigMistake] = []
    if broker.default in served:
        found += _of_space(config, config, config.nodes, broker.default, (), rid)
    for at, host in enumerate(config.virtual_host):
        nodes = config.nodes_of(host)
        place: Location = ("virtual-host", at)
        space = broker.spaces.get(host.name)
        if space in served:
            found += _of_space(config, host, nodes, space, place, rid)
    return found


def _of_space(
    config: Config,
    tables: Tables,
    nodes: Nodes,
    space: AddressSpace,
    place: Location,
    rid: str,
) -> Iterator[ConfigMistake]:
    new = 0
    for kind, at, entry in tables.declared():
        if entry.name is None:
            continue
        node = space.nodes.get(entry.name)
        if node is None:
            new += 1
            continue
        differs = difference(node, resolve_policy(kind, entry, config.policies))
        if differs is not None:
            yield _contradiction(space, node, *differs, (*place, kind, at, "name"), rid)
    for at, redirect in enumerate(tables.redirect):
        node = space.nodes.get(redirect.name)
        if node is not None:
            here = (*place, "redirect", at, "name")
            yield _contradiction(space, node, "as redirect", f"as a {node.kind}", here, rid)
    for at, alias in enumerate(tables.alias):
        node = space.nodes.get(alias.name)
        if node is not None:
            here = (*place, "alias", at, "name")
            yield _contradiction(space, node, "as alias", f"as a {node.kind}", here, rid)
    present = len(space.nodes) - int(space.owned)
    if new > 0 and present + new > nodes.limit:
        yield ConfigMistake(
            (*place, "nodes", "limit"),
            f"{present} nodes are stored{_of(space)} and {new} more are declared, but [nodes] limit"
            f" is {nodes.limit}: set it to {present + new}, or delete nodes by management",
        )


def difference(node: Node, policy: NodePolicy) -> tuple[str, str] | None:
    """Return the declared and the stored kind of a node if they exclude each other, else None."""
    kind = kind_of(policy)
    if node.kind != kind:
        return f"a {kind}", f"a {node.kind}"
    before = policy_of(node)
    if before is None or before.durable != policy.durable:
        return "not durable", "durable"
    if isinstance(before, QueuePolicy) and isinstance(policy, QueuePolicy):
        if before.sessions != policy.sessions:
            how = {True: "with sessions", False: "without sessions"}
            return how[policy.sessions], how[before.sessions]
    if isinstance(node, Stream) and isinstance(policy, StreamPolicy):
        moving = int(node.moving(policy))
        if moving >= 0:
            there = parse_placement(policy.partitions_on)[moving][0]
            return f"with partition {moving} at {there}", "with records of it here"
        if policy.partitions_on and policy.partitions < len(node.partitions):
            return f"with {policy.partitions} partitions", f"with {len(node.partitions)}"
    if isinstance(node, Exchange) and isinstance(policy, ExchangePolicy):
        if policy.type != node.policy.type:
            return f'with routing = "{policy.type}"', f'with "{node.policy.type}"'
    return None


def _contradiction(
    space: AddressSpace, node: Node, declared: str, stored: str, place: Location, rid: str
) -> ConfigMistake:
    return ConfigMistake(
        place,
        f"{node.address!r}{_of(space)} is declared {declared}, but stored {stored}: declare it"
        f" as stored, or use another name; {rid}",
    )


def _of(space: AddressSpace) -> str:
    return "" if space.name == "default" else f" in the virtual host {space.name!r}"
