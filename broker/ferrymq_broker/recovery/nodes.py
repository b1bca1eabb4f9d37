"""Recovery of nodes with their policies, of bindings and of aliases from the store."""

from __future__ import annotations

from ferrymq_broker.addresses.node_factory import build
from ferrymq_broker.broker import Broker
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.stored_policy import read_policy
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.recovery.recovered_state import Fields, RecoveredState
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.map_values import decode_map
from ferrymq_broker.store.store import Store
from ferrymq_broker.store.tables import ALIAS, BINDING, NODE


def recover_nodes(broker: Broker, store: Store, found: RecoveredState) -> None:
    """Restore all declared nodes. Raises `StoreDamaged`."""
    changes = broker.agenda.changes
    for record in store.scan(NODE):
        changes.has_id(record.id)
        fields = Fields(f"node {record.id}", decode_map(record.value))
        address = fields.text("address")
        space = broker.spaces.get(fields.text("space"))
        if space is None:
            found.aside.add(record.id)
            log.warning(
                "a node of a virtual host that is not configured is kept aside",
                space=fields.text("space"),
                address=address,
            )
            continue
        if not address or address in space.nodes:
            raise fields.wrong("address")
        if "owner" in fields.map:
            found.sub_queues.append((record.id, fields))
            continue
        try:
            policy = read_policy(fields.text("kind"), fields.map.get("policy"))
            node = build(space, address, policy)
            if isinstance(node, Queue):
                node.restore(record.id, fields.map)
                found.queues[record.id] = node
            elif isinstance(node, Stream):
                node.restore(record.id, fields.map)
            else:
                node.store_id = record.id
        except StoreDamaged as error:
            raise StoreDamaged(f"node {record.id}, {address[:200]!r}: {error}") from error
        node.origin = fields.text("origin")
        space.insert(node)
        found.nodes[record.id] = node


def recover_sub_queues(broker: Broker, found: RecoveredState) -> None:
    """Restore the sub-queues of queues and of subscriptions, which exist already. Raises
    `StoreDamaged`."""
    owners = {
        (queue.space.name, queue.address): queue
        for queue in found.queues.values()
        if queue.policy.sub_queues
    }
    for id, fields in found.sub_queues:
        address = fields.text("address")
        space = broker.spaces[fields.text("space")]
        owner = owners.get((space.name, fields.text("owner")))
        name = address[len(fields.text("owner")) + 1 :]
        if owner is None or name not in owner.policy.sub_queues or address in space.nodes:
            log.warning(
                "a sub-queue is dropped: its owner is gone",
                space=space.name,
                address=address,
            )
            broker.agenda.changes.drop(NODE, id, 0)
            continue
        sub_queue = owner.build_sub_queue(name)
        try:
            sub_queue.restore(id, fields.map)
        except StoreDamaged as error:
            raise StoreDamaged(f"node {id}, {address[:200]!r}: {error}") from error
        found.queues[id] = sub_queue
        found.nodes[id] = sub_queue
        space.insert_owned(sub_queue)


def recover_bindings(broker: Broker, store: Store, found: RecoveredState) -> None:
    """Restore the bindings of exchanges. Raises `StoreDamaged`."""
    changes = broker.agenda.changes
    for record in store.scan(BINDING):
        if record.id in found.aside:
            continue
        what = f"binding {record.number} of exchange {record.id}"
        fields = Fields(what, decode_map(record.value))
        exchange = found.nodes.get(record.id)
        node = found.nodes.get(fields.number("node"))
        if not isinstance(exchange, Exchange) or node is None:
            log.warning("a binding is dropped: its exchange or its node is gone", binding=what)
            changes.drop(BINDING, record.id, record.number)
            continue
        exchange.restore_binding(record.number, node, fields.text("key"), fields.named("arguments"))


def recover_aliases(broker: Broker, store: Store) -> None:
    """Restore the aliases of addresses. Raises `StoreDamaged`."""
    changes = broker.agenda.changes
    for record in store.scan(ALIAS):
        changes.has_id(record.id)
        fields = Fields(f"alias {record.id}", decode_map(record.value))
        space = broker.spaces.get(fields.text("space"))
        if space is None:
            log.warning(
                "an alias of a virtual host that is not configured is kept aside",
                space=fields.text("space"),
                alias=fields.text("name"),
            )
            continue
        space.restore_alias(record.id, fields.text("name"), fields.text("address"))
