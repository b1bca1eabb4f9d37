"""The personality itself: each method is one call of the module that knows its subject."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from ferrymq.engine.pairing import PAIRED
from ferrymq_broker.nodes.personality import Personality
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.values.policy import ExchangePolicy
from ferrymq_rabbitmq.address_v2 import (
    DEFAULT_VHOST,
    MANAGEMENT,
    exchange_address,
    named,
    native,
    vhost_of,
)
from ferrymq_rabbitmq.amqp_0_9_1.conversion.annotations import CARBON_COPY
from ferrymq_rabbitmq.client_outcomes import meant_outcome
from ferrymq_rabbitmq.deaths import record_death
from ferrymq_rabbitmq.host_policies import HostPolicies
from ferrymq_rabbitmq.management.host_requests import HostRequests
from ferrymq_rabbitmq.management.management_node import add_management
from ferrymq_rabbitmq.pattern_policies import PatternPolicies, read_policies
from ferrymq_rabbitmq.policy_file import PolicyFile, policy_table
from ferrymq_rabbitmq.predeclared import PREDECLARED
from ferrymq_rabbitmq.routing import ROUTING_KEY, routed
from ferrymq_rabbitmq.source_filters import grant_filters, meant_filters
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.link_terms import SourceTerms, TargetTerms
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.node import Node
    from ferrymq_types.messaging import Source, Target
    from ferrymq_types.unions import Outcome

# What clients may rely on: SQL filters of streams came with this version.
_VERSION: Final = "4.2.0"
_KEYS: Final = ("version", "policy", "policies-file")
_FULL: Final = "amqp:resource-limit-exceeded"


@final
class RabbitmqPersonality(Personality):
    """The personality of one virtual host for clients of RabbitMQ 4.

    The settings are ``version``, the version of RabbitMQ that clients are told, ``policy``, the
    policies for names that match a pattern, and ``policies-file``, the file for those that are made
    while the broker runs. `policies` are those that count. `requests` serve declarations, bindings
    and deletions, over whatever protocol they come; None until `declare`.
    """

    def __init__(
        self, space: AddressSpace, broker: Broker, settings: Mapping[str, object], folder: Path
    ) -> None:
        super().__init__()
        for name in settings:
            if name not in _KEYS:
                raise ValueError(f"unknown key {name!r}; the keys are {', '.join(_KEYS)}")
        told = settings.get("version", _VERSION)
        if not isinstance(told, str):
            raise ValueError(f"version: {told!r} is no text such as {_VERSION!r}")
        file = settings.get("policies-file", "")
        if not isinstance(file, str):
            raise ValueError(f"policies-file: {file!r} is no path")
        self.offset_annotation = "x-stream-offset"
        self.host_policies: HostPolicies = HostPolicies(
            space,
            read_policies(settings.get("policy", []), vhost_of(space)),
            PolicyFile(folder / file) if file else None,
        )
        self._file = file
        self.requests: HostRequests | None = None
        self.told_version = told
        self._broker = broker
        self._space = space
        space.routing_annotation = ROUTING_KEY
        space.copies_annotation = CARBON_COPY

    @property
    def policies(self) -> PatternPolicies:
        """The policies that count."""
        return self.host_policies.all

    def can_take(self, settings: Mapping[str, object]) -> bool:
        """Return whether only policies differ. Raises ValueError for wrong ones."""
        configured = read_policies(settings.get("policy", []), vhost_of(self._space))
        self.host_policies.joined(configured)
        same = (settings.get("version", _VERSION), settings.get("policies-file", ""))
        return same == (self.told_version, self._file) and set(settings) <= set(_KEYS)

    def take(self, settings: Mapping[str, object]) -> None:
        """Use other policies, also for the queues and exchanges that exist."""
        self.host_policies.take(read_policies(settings.get("policy", []), vhost_of(self._space)))

    def definitions(self, settings: dict[str, object]) -> dict[str, object]:
        """Return the policies that count, with those of other virtual hosts."""
        vhost = vhost_of(self._space)
        tables = settings.get("policy", [])
        assert isinstance(tables, list)
        others = [each for each in tables if each.get("virtual-host", DEFAULT_VHOST) != vhost]
        own = [policy_table(policy, vhost) for policy in self.policies.everything()]
        return {"policy": [*others, *own]}

    def open_properties(self) -> dict[str, object]:
        """Return the product that clients look for, and what it really is."""
        return {
            "product": "RabbitMQ",
            "version": self.told_version,
            "platform": f"ferrymq/{version('ferrymq')}",
        }

    def declare(self) -> None:
        """Make the exchanges that clients expect, and the management. Nodes are not made by use."""
        space = self._space
        space.auto_create = space.auto_create_topic = None
        for name, type in PREDECLARED.items():
            address = exchange_address(name)
            if space.find(address) is None:
                space.create(address, ExchangePolicy(type=type))
        self.requests = HostRequests(space)
        add_management(space, self._broker, self.requests)

    def native(self, address: str) -> str:
        """See `address_v2.native`."""
        return native(address)

    def named(self, address: str) -> str:
        """See `address_v2.named`."""
        return named(address)

    def source(self, asked: Source, properties: dict[str, object]) -> Source:
        """Return the source with the filters of streams in the broker's words."""
        _unpair(asked.address, properties)
        return meant_filters(asked)

    def source_granted(self, terms: SourceTerms) -> None:
        """See `grant_filters`."""
        grant_filters(terms)
        _seem_paired(terms.asked_properties, terms.granted_properties)

    def target(self, asked: Target, properties: dict[str, object]) -> Target:
        """Return the target as it is."""
        _unpair(asked.address, properties)
        return asked

    def target_granted(self, terms: TargetTerms) -> None:
        """Repeat the wish for a pair."""
        _seem_paired(terms.asked_properties, terms.granted_properties)

    def admit(self, message: BrokerMessage, node: Node) -> BrokerMessage:
        """See `routed`."""
        return routed(message, node)

    def outcome(self, node: Node, entry: Entry, state: Outcome, ending: bool) -> Outcome:
        """See `meant_outcome`."""
        return meant_outcome(node, entry, state) if isinstance(node, Queue) else state

    def dead_letter(self, entry: Entry, annotations: dict[str | int, object]) -> None:
        """See `record_death`."""
        record_death(self._space, annotations)

    def error(self, condition: str, description: str, info: dict[str, object] | None) -> Error:
        """Return the error; that of a full queue says so in RabbitMQ's word."""
        if condition == _FULL:
            info = {**(info or {}), "reason": "maxlen"}
        return Error(condition=condition, description=description, info=info)


def _unpair(address: str | None, properties: dict[str, object]) -> None:
    """Drop the wish for a pair of links, which the client for Python has for every link."""
    if address != MANAGEMENT:
        properties.pop(PAIRED, None)


def _seem_paired(asked: Mapping[str, object], granted: dict[str, object]) -> None:
    """Answer that wish as it came: both ends have to say the same (Link Pairing 1.0 §2.2.1)."""
    if asked.get(PAIRED) is True:
        granted[PAIRED] = True
