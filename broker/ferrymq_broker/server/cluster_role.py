"""The part of one server in its cluster: for one term as the leader, or for a time as a standby."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ferrymq_broker.config.url import parse_client_url
from ferrymq_broker.connections.redirects import REDIRECT
from ferrymq_codec.scalars import UInt
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.management.replication import ReplicationKeeper
    from ferrymq_broker.store.appender import AppenderOptions

CLUSTER: Final = "ferrymq:cluster"
"""The property of the broker's open with the UUID of the cluster, as a string."""
BROKER_ID: Final = "ferrymq:broker-id"
"""The property of the open of a broker without a cluster: the UUID of its data, as a string. It
stays the same as long as the broker has the same store; without a store, each start has another."""
TERM: Final = "ferrymq:term"
"""The property of the leader's open with the term of its lease."""


@dataclass(frozen=True, slots=True)
class ClusterRole:
    """The part of one server in its cluster.

    `cluster` is the UUID of the cluster, "" if it is not known yet; `term` is that of the leader's
    lease. `keeper` tells management of the cluster. `reason` returns why the server is not ready,
    empty if nothing in the cluster stops it. A standby has a `refusal`, which returns the error
    that its clients get. A leader has `may_write`, which returns whether this moment is before the
    end of its lease, and an `appender` for its store.
    """

    cluster: str
    keeper: ReplicationKeeper
    reason: Callable[[], str]
    term: int = 0
    refusal: Callable[[], Error] | None = None
    may_write: Callable[[], bool] | None = None
    appender: AppenderOptions | None = None

    def open_properties(self) -> dict[str, object]:
        """Return what is added to the properties of the broker's open."""
        properties: dict[str, object] = {CLUSTER: self.cluster} if self.cluster else {}
        if self.term:
            properties[TERM] = self.term
        return properties


def elsewhere(address: str, member: str, reason: str) -> Error:
    """Return the error that sends clients to the leader's `address`, a URL, or only away if that is
    empty. `member` is the name of the leader. (AMQP 1.0 §2.8.16)"""
    if not address:
        return Error(condition="amqp:connection:forced", description=reason)
    there = parse_client_url(address)
    return Error(
        condition=REDIRECT,
        description=f"{reason}; the leader is {member} at {address}",
        info={"hostname": there.host, "network-host": there.host, "port": UInt(there.port)},
    )
