"""Installing the management node in a virtual host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.access_rules import RuleEntities
from ferrymq_broker.management.aliases import AliasEntities
from ferrymq_broker.management.connections import ConnectionEntities, LinkEntities, SessionEntities
from ferrymq_broker.management.dialect import ManagementDialect
from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.exchanges import BindingEntities, ExchangeEntities
from ferrymq_broker.management.fences import FenceEntities
from ferrymq_broker.management.live import LiveKeepers
from ferrymq_broker.management.manager import Manager, failed
from ferrymq_broker.management.node_links import NodeLinks
from ferrymq_broker.management.nodes import DeclaredNodes
from ferrymq_broker.management.overview import BrokerEntities, VirtualHostEntities
from ferrymq_broker.management.queues import QueueEntities
from ferrymq_broker.management.replication import ReplicationEntities, ReplicationKeeper
from ferrymq_broker.management.store import StoreEntities, StoreKeeper
from ferrymq_broker.management.streams import StreamEntities
from ferrymq_broker.management.termini import TerminusEntities
from ferrymq_broker.management.topics import SubscriptionEntities, TopicEntities
from ferrymq_broker.management.traces import ConnectionTraces
from ferrymq_broker.management.users import UserEntities
from ferrymq_broker.management.workers import OtherWorkers
from ferrymq_broker.nodes.service import ServiceNode

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker


def install(
    space: AddressSpace,
    broker: Broker,
    keeper: StoreKeeper | None = None,
    dialects: Sequence[ManagementDialect] = (),
    traces: ConnectionTraces | None = None,
    keepers: LiveKeepers | None = None,
    cluster: ReplicationKeeper | None = None,
    workers: OtherWorkers | None = None,
) -> Manager:
    """Add the management node to `space`, and return its manager.

    With a `keeper` it manages the store too, and it has the types of the `dialects`. With a
    `cluster` it shows the replication. With `traces` connections can be traced. With `keepers` it
    manages the rules of the virtual host, and in the default one the users and the configuration.
    With `workers` it shows what other processes of the broker have, too.

    Called once for every virtual host.
    """
    connections = ConnectionEntities(broker, space, traces)
    types: list[EntityType] = [
        QueueEntities(space),
        TopicEntities(space),
        SubscriptionEntities(space),
        StreamEntities(space),
        ExchangeEntities(space),
        BindingEntities(space),
        AliasEntities(space),
        FenceEntities(space),
        TerminusEntities(broker, space),
        connections,
        SessionEntities(connections),
        LinkEntities(connections),
        BrokerEntities(broker, space, keepers, workers),
        VirtualHostEntities(broker, space),
    ]
    links = NodeLinks(connections)
    for type in types:
        if isinstance(type, DeclaredNodes | SubscriptionEntities):
            type.links = links
    if keeper is not None:
        types.append(StoreEntities(keeper))
    if cluster is not None:
        types.append(ReplicationEntities(cluster))
    if keepers is not None:
        types.append(RuleEntities(space, keepers.rules))
        if space is broker.default:
            types.append(UserEntities(keepers.users))
    for dialect in dialects:
        types += dialect.make_types(space)
    manager = Manager(types, space.name, dialects)
    service = ServiceNode(ADDRESS, space, manager.answer, failed)
    manager.take_time(broker, service)
    space.insert_service(service)
    return manager
