"""The identity of a broker: what the properties of its open say of its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_CLUSTER: Final = "ferrymq:cluster"
_BROKER_ID: Final = "ferrymq:broker-id"


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The identity of the data that a broker has. `id` is the id of its cluster or, for a broker
    without a cluster, of its data; "" if the broker tells neither."""

    id: str
    is_cluster: bool = False


def identity_of(properties: Mapping[str, object]) -> BrokerIdentity:
    """Return the identity in the properties of a broker's open (AMQP 1.0 §2.7.1)."""
    cluster = properties.get(_CLUSTER)
    if isinstance(cluster, str):
        return BrokerIdentity(cluster, True)
    found = properties.get(_BROKER_ID)
    return BrokerIdentity(found if isinstance(found, str) else "")
