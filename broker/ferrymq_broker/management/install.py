"""Puts the management node into a virtual host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.aliases import Aliases
from ferrymq_broker.management.connections import Connections, Links, Sessions
from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.event_hubs import EventHubs, HubPartitions
from ferrymq_broker.management.exchanges import Bindings, Exchanges
from ferrymq_broker.management.fences import Fences
from ferrymq_broker.management.manager import Manager, failed
from ferrymq_broker.management.overview import Brokers, VirtualHosts
from ferrymq_broker.management.queues import Queues
from ferrymq_broker.management.store import StoreKeeper, Stores
from ferrymq_broker.management.streams import Streams
from ferrymq_broker.management.termini import Termini
from ferrymq_broker.management.topics import Subscriptions, Topics
from ferrymq_broker.nodes.service import Service

if TYPE_CHECKING:
    from ferrymq_broker.addresses.space import AddressSpace
    from ferrymq_broker.broker import Broker


def install(space: AddressSpace, broker: Broker, keeper: StoreKeeper | None = None) -> Service:
    """The management node of `space`, which can be found from now on. It manages the store that
    `keeper` has, if it is to.

    To be called once for every virtual host, when it is made.
    """
    connections = Connections(broker, space)
    types: list[EntityType] = [
        Queues(space),
        Topics(space),
        Subscriptions(space),
        Streams(space),
        EventHubs(space),
        HubPartitions(space),
        Exchanges(space),
        Bindings(space),
        Aliases(space),
        Fences(space),
        Termini(broker, space),
        connections,
        Sessions(connections),
        Links(connections),
        Brokers(broker, space),
        VirtualHosts(broker, space),
    ]
    if keeper is not None:
        types.append(Stores(keeper))
    manager = Manager(types, space.name)
    service = Service(ADDRESS, space, manager.answer, failed)
    manager.take_time(broker, service)
    space.insert_service(service)
    return service
