"""Sources and targets of the links we attach (AMQP 1.0 §3.5)."""

from __future__ import annotations

from typing import Final

from ferrymq.aio.outcomes import OUTCOMES
from ferrymq.options import ReceiverOptions, SenderOptions
from ferrymq_types.filters import SelectorFilter
from ferrymq_types.messaging import Source, Target

SELECTOR: Final = "apache.org:selector-filter:string"


def sender_target(address: str | None, options: SenderOptions) -> Target:
    """The target a sender asks for. No address, not even a dynamic one, is the anonymous node."""
    if options.dynamic and address is not None:
        raise ValueError("a dynamic node gets its address from the peer: give None")
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

    Raises ValueError for an address together with `dynamic`, and for neither.
    """
    if options.dynamic == (address is not None):
        raise ValueError(
            "a receiver needs an address, or dynamic=True to get one from the peer, and not both"
        )
    filters = dict(options.filters or {})
    if options.selector is not None:
        filters[SELECTOR] = SelectorFilter(options.selector)
    return Source(
        address=address,
        durable=options.durable,
        expiry_policy=options.expiry_policy,
        timeout=options.expiry_timeout,
        dynamic=options.dynamic,
        dynamic_node_properties=options.dynamic_node_properties,
        distribution_mode=options.mode,
        filter=filters or None,
        outcomes=OUTCOMES,
        capabilities=options.capabilities,
    )
