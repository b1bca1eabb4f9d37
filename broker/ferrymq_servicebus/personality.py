"""The personality itself: each method is one call of the module that knows its subject."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.nodes.personality import Personality
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.queues.relay import Relay
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_servicebus.addresses import EntityPaths, entity_of_management
from ferrymq_servicebus.annotations import ENQUEUED_SEQUENCE, admitted, stamped
from ferrymq_servicebus.conditions import error_of
from ferrymq_servicebus.entity_settings import declare_entities
from ferrymq_servicebus.management.entity_management import entity_service
from ferrymq_servicebus.open_cbs import add_open_cbs
from ferrymq_servicebus.outcomes import meant_outcome, with_properties
from ferrymq_servicebus.partition_hash import partition_of_hub
from ferrymq_servicebus.runtime_metrics import DESIRED, runtime_metrics
from ferrymq_servicebus.terms import grant_source, grant_target, meant_source, meant_target

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.link_terms import SourceTerms, TargetTerms
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.nodes.service import ServiceNode
    from ferrymq_types.messaging import Source, Target
    from ferrymq_types.transport import Error
    from ferrymq_types.unions import Outcome


@final
class AzurePersonality(Personality):
    """The personality of one virtual host for clients of Azure Service Bus and Event Hubs."""

    def __init__(
        self, space: AddressSpace, settings: Mapping[str, object], folder: Path | None = None
    ) -> None:
        super().__init__()
        self.text_offsets = True
        self.rejects_large = True
        space.partitioner = partition_of_hub
        self._space = space
        self._settings = settings
        self._folder = folder
        self._paths = EntityPaths(space)

    def declare(self) -> None:
        """Make the declared entities, and `$cbs`. Raises `ConfigError`."""
        declare_entities(self._space, self._settings, self._folder)
        add_open_cbs(self._space)

    def native(self, address: str) -> str:
        """See `EntityPaths.native`."""
        return self._paths.native(address)

    def named(self, address: str) -> str:
        """See `EntityPaths.named`."""
        return self._paths.named(address)

    def service(self, address: str) -> ServiceNode | None:
        """Return a new management node of an entity."""
        entity = entity_of_management(address)
        return entity_service(self._space, address, entity) if entity else None

    def entity_of_service(self, address: str) -> str:
        """Return the entity that a management node is about."""
        return entity_of_management(address)

    def desired(self, capability: str) -> str:
        """Return the property that makes the broker tell the last event of a partition."""
        return DESIRED.get(capability, "")

    def last_record(self, offset: int, time: int, now: int) -> dict[str, object]:
        """See `runtime_metrics`."""
        return runtime_metrics(offset, time, now)

    def source(self, asked: Source, properties: dict[str, object]) -> Source:
        """See `meant_source`."""
        return meant_source(asked, properties, self._space)

    def source_granted(self, terms: SourceTerms) -> None:
        """See `grant_source`."""
        grant_source(terms, self._space)

    def target(self, asked: Target, properties: dict[str, object]) -> Target:
        """See `meant_target`."""
        return meant_target(asked, properties)

    def target_granted(self, terms: TargetTerms) -> None:
        """See `grant_target`."""
        grant_target(terms)

    def admit(self, message: BrokerMessage, node: Node) -> BrokerMessage:
        """See `admitted`. Events of a stream are kept as they come."""
        if isinstance(node, Queue | Topic | Relay):
            return admitted(message, node.agenda.wall, _sends_on(node))
        return message

    def stamp(self, node: Node, entry: Entry, head: bytes, start: i64) -> tuple[bytes, i64]:
        """See `stamped`."""
        if not isinstance(node, Queue):
            return head, start
        return stamped(node, entry, head, start, self.named)

    def outcome(self, node: Node, entry: Entry, state: Outcome, ending: bool) -> Outcome:
        """See `meant_outcome`."""
        return meant_outcome(state, ending)

    def dead_letter(self, entry: Entry, annotations: dict[str | int, object]) -> None:
        """Keep the number that the message had in its first queue."""
        annotations.setdefault(ENQUEUED_SEQUENCE, int(entry.sequence))

    def amended(self, message: BrokerMessage, changes: dict[str, object]) -> BrokerMessage:
        """See `with_properties`."""
        return with_properties(message, changes)

    def error(self, condition: str, description: str, info: dict[str, object] | None) -> Error:
        """See `error_of`."""
        return error_of(condition, description, info, self.named)


def _sends_on(node: Node) -> bool:
    """Return whether the node keeps no messages but sends each of them on."""
    return isinstance(node, Relay) or (isinstance(node, Queue) and node.policy.forward_to != "")
