"""Sources and targets of the links we attach (AMQP 1.0 §3.5)."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from ferrymq.aio.outcomes import OUTCOMES
from ferrymq.options import ReceiverOptions, SenderOptions, Start
from ferrymq_codec.composite import Composite
from ferrymq_codec.scalars import Described, Symbol, Timestamp, ULong
from ferrymq_types.filters import SelectorFilter
from ferrymq_types.messaging import Source, Target

ANONYMOUS_RELAY: Final = "ANONYMOUS-RELAY"
"""The capability of routing messages by their own `to` (Anonymous Terminus for Message Routing)."""

SELECTOR: Final = "apache.org:selector-filter:string"
POSITION: Final = "ferrymq:position"


def sender_target(address: str | None, options: SenderOptions) -> Target:
    """The target a sender asks for. No address, not even a dynamic one, is the anonymous node."""
    if options.dynamic and address is not None:
        raise ValueError("a dynamic node gets its address from the peer: give None")
    _check_properties(options.dynamic, options.dynamic_node_properties)
    return Target(
        address=address,
        durable=options.durable,
        expiry_policy=options.expiry_policy,
        timeout=options.expiry_timeout,
        dynamic=options.dynamic,
        dynamic_node_properties=options.dynamic_node_properties,
        capabilities=options.capabilities,
    )


def receiver_source(address: str | None, options: ReceiverOptions) -> Source:
    """The source a receiver asks for.

    Raises ValueError for an address together with `dynamic`, and for neither; for filters that are
    not described values; for `dynamic_node_properties` without `dynamic`; for a start that is a
    negative offset or a datetime without a time zone.
    """
    if options.dynamic == (address is not None):
        raise ValueError(
            "a receiver needs an address, or dynamic=True to get one from the peer, and not both"
        )
    _check_properties(options.dynamic, options.dynamic_node_properties)
    filters = dict(options.filters or {})
    for name, filter in filters.items():
        if filter is not None and not isinstance(filter, Described | Composite):
            raise ValueError(f"the filter {name!r} is not a described value (AMQP 1.0 §3.5.8)")
    if options.selector is not None:
        filters[SELECTOR] = SelectorFilter(options.selector)
    if options.start is not None:
        filters[POSITION] = Described(Symbol(POSITION), _position(options.start))
    return Source(
        address=address,
        durable=options.durable,
        expiry_policy=options.expiry_policy,
        timeout=options.expiry_timeout,
        dynamic=options.dynamic,
        dynamic_node_properties=options.dynamic_node_properties,
        distribution_mode=options.mode,
        filter=filters or None,
        default_outcome=options.default_outcome,
        outcomes=OUTCOMES,
        capabilities=options.capabilities,
    )


def _position(start: Start) -> object:
    """What the filter says: a word, an offset or a time."""
    if isinstance(start, datetime):
        return Timestamp.from_datetime(start)
    if isinstance(start, int):
        return ULong(start)
    return start


def _check_properties(dynamic: bool, properties: dict[str, object] | None) -> None:
    if properties is not None and not dynamic:
        raise ValueError("dynamic_node_properties are for dynamic nodes alone (AMQP 1.0 §3.5.3)")


def source_lack(asked: Source, given: Source | None) -> str | None:
    """What a source in the peer's answer lacks of what was asked for; None if it will do.

    Receiving from a source without the filters, or taking messages where copies were asked for,
    would be wrong without anybody noticing (AMQP 1.0 §2.6.3, §3.5.3).
    """
    if given is None:
        return None
    if asked.dynamic and not given.address:
        return "the peer has not told the address of the dynamic source"
    if asked.distribution_mode == "copy" and given.distribution_mode == "move":
        return "the peer moves messages instead of copying them"
    applied = given.filter or {}
    missing = [name for name in asked.filter or {} if name not in applied]
    if missing:
        return f"the peer does not apply the filter {', '.join(missing)}"
    return None


def target_lack(asked: Target, given: object) -> str | None:
    """What a target in the peer's answer lacks of what was asked for; None if it will do."""
    if asked.dynamic and isinstance(given, Target) and not given.address:
        return "the peer has not told the address of the dynamic target"
    return None
