"""What attaches ask for and are answered in the vendor's words: filters and link properties."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.values.names import PART
from ferrymq_codec.scalars import Described, Symbol, Timestamp
from ferrymq_servicebus.addresses import consumer_group_of, topic_of
from ferrymq_servicebus.conditions import VENDOR
from ferrymq_servicebus.entities import DEFAULT_GROUP, entity_of

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.link_terms import SourceTerms, TargetTerms
    from ferrymq_types.messaging import Source, Target

SESSION_FILTER: Final = VENDOR + "session-filter"
LOCKED_UNTIL: Final = VENDOR + "locked-until-utc"
_TIMEOUT: Final = VENDOR + "timeout"
_EPOCH: Final = VENDOR + "epoch"
_DESTINATION: Final = VENDOR + "transfer-destination-address"

# The broker's own words for the same.
_SESSION: Final = "ferrymq:session"
_SESSION_TIMEOUT: Final = "ferrymq:timeout"
_SESSION_LOCKED_UNTIL: Final = "ferrymq:locked-until"
_FORWARD_TO: Final = "ferrymq:forward-to"
_READER_EPOCH: Final = "ferrymq:epoch"
_READER_GROUP: Final = "ferrymq:consumer-group"

# .NET counts in steps of 100 ns from the year 1 on.
_TICKS: Final = 10_000
_TICKS_AT_EPOCH: Final = 621_355_968_000_000_000


def meant_source(asked: Source, properties: dict[str, object], space: AddressSpace) -> Source:
    """Return the source in the broker's words; `properties` of the link are changed likewise."""
    address = asked.address or ""
    filters: dict[str, object] = dict(asked.filter or {})
    if SESSION_FILTER in filters:
        filters["session"] = Described(Symbol(_SESSION), filters.pop(SESSION_FILTER))
        if _TIMEOUT in properties:
            properties[_SESSION_TIMEOUT] = properties[_TIMEOUT]
        asked = replace(asked, filter=filters)
    if _EPOCH in properties:
        properties[_READER_EPOCH] = properties[_EPOCH]
    group = consumer_group_of(address)
    if group:
        properties[_READER_GROUP] = _spelled(space, address, group)
    topic = topic_of(address)
    if topic and space.find(space.meant_by(topic)) is None:
        # The topic is made, if it is made at all, as one.
        asked = replace(asked, capabilities=[*(asked.capabilities or []), Symbol("topic")])
    return asked


def grant_source(terms: SourceTerms, space: AddressSpace) -> None:
    """Write the session that was granted, and until when it is locked, into the answer. Raises
    `BrokerError` if a session was asked for where there are none, and for a topic."""
    granted = terms.filters.granted
    properties = terms.granted_properties
    asked = terms.asked
    address = "" if asked is None else asked.address or ""
    if not terms.part and address and isinstance(space.find(space.meant_by(address)), Topic):
        raise BrokerError(
            "amqp:not-allowed",
            f"{entity_of(address)[:200]!r} is a topic: receive from one of its subscriptions",
        )
    if asked is not None and SESSION_FILTER in (asked.filter or {}) and not terms.session:
        raise BrokerError("amqp:not-allowed", "the entity has no sessions")
    if terms.session:
        granted.pop("session", None)
        granted[SESSION_FILTER] = terms.session
        until = properties.pop(_SESSION_LOCKED_UNTIL, None)
        if isinstance(until, Timestamp):
            properties[LOCKED_UNTIL] = int(until) * _TICKS + _TICKS_AT_EPOCH
    for name in (_TIMEOUT, _EPOCH):
        if name in terms.asked_properties:
            properties[name] = terms.asked_properties[name]
    if "topic" in terms.granted_capabilities and not _asked_for_topic(terms):
        terms.granted_capabilities.remove("topic")


def _spelled(space: AddressSpace, address: str, group: str) -> str:
    """Return the name of a consumer group as the hub has it: capitals do not matter."""
    folded = group.casefold()
    hub, _, _ = space.meant_by(address).partition(PART)
    stream = space.find(hub)
    declared = stream.policy.consumer_groups if isinstance(stream, Stream) else ()
    for name in (DEFAULT_GROUP, *declared):
        if name.casefold() == folded:
            return name
    return folded


def meant_target(asked: Target, properties: dict[str, object]) -> Target:
    """Return the target in the broker's words; `properties` of the link are changed likewise."""
    if _DESTINATION in properties:
        properties[_FORWARD_TO] = properties[_DESTINATION]
    return asked


def grant_target(terms: TargetTerms) -> None:
    """Write the destination that messages are sent on to into the answer."""
    if terms.granted_properties.pop(_FORWARD_TO, None) is not None:
        terms.granted_properties[_DESTINATION] = terms.asked_properties[_DESTINATION]


def _asked_for_topic(terms: SourceTerms) -> bool:
    asked = terms.asked
    return asked is not None and "topic" in (asked.capabilities or [])
