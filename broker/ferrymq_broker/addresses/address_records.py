"""Records of nodes and aliases in the store: addresses and policies.

A node is stored if its policy is durable and if it is not a dynamic node. Nodes store their other
data themselves.
"""

from __future__ import annotations

from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.node import PERMANENT, Node
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.stored_policy import policy_fields
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.map_values import encode_map
from ferrymq_broker.store.tables import ALIAS, NODE
from ferrymq_broker.values.policy import NodePolicy


def policy_of(node: Node) -> NodePolicy | None:
    """Return the policy of a node; None if nodes of its kind have none."""
    if isinstance(node, Queue | Topic | Stream | Exchange):
        return node.policy
    return None


def keep_node(node: Node) -> None:
    """Store a new node, if there is a store and the node is durable."""
    changes = node.agenda.changes
    if not changes.enabled or node.lifetime != PERMANENT or node.address.startswith("$"):
        return
    policy = policy_of(node)
    if policy is None or not policy.durable:
        return
    id = changes.new_id()
    if isinstance(node, Stream):
        node.keep_stored(id)
    else:
        node.store_id = id
    put_node(node)


def put_node(node: Node) -> None:
    """Store the current state of a node, if the node is stored at all."""
    policy = policy_of(node)
    if node.store_id == 0 or policy is None:
        return
    fields: dict[str, object] = {
        "space": node.space.name,
        "address": node.address,
        "kind": node.kind,
        "origin": node.origin,
        "policy": policy_fields(policy),
    }
    if isinstance(node, Queue) and node.owner_queue is not None:
        fields["owner"] = node.owner_queue.address
    if isinstance(node, Queue | Stream):
        fields.update(node.describe_stored())
    node.agenda.changes.put(NODE, node.store_id, 0, encode_map(fields))


def put_alias(changes: Changes, id: int, space: str, name: str, address: str) -> None:
    """Store that a name leads to an address."""
    changes.put(ALIAS, id, 0, encode_map({"space": space, "name": name, "address": address}))


def drop_alias(changes: Changes, id: int) -> None:
    """Delete the record of an alias."""
    changes.drop(ALIAS, id, 0)
