"""Sources and targets that outlive their links."""

from __future__ import annotations

from typing import Any

from ferrymq_types.messaging import Source, Target, TerminusDurability, TerminusExpiryPolicy


def lasting_source(address: str | None, *capabilities: str, **more: Any) -> Source:
    """A source that outlives its links, connections and the broker, with its unsettled map."""
    return Source(
        address=address,
        durable=TerminusDurability.UNSETTLED_STATE,
        expiry_policy=TerminusExpiryPolicy.NEVER,
        capabilities=list(capabilities) or None,
        **more,
    )


def lasting_target(address: str | None) -> Target:
    """A target that outlives its links, connections and the broker, with its unsettled map."""
    return Target(
        address=address,
        durable=TerminusDurability.UNSETTLED_STATE,
        expiry_policy=TerminusExpiryPolicy.NEVER,
    )
