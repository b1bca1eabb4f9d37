"""The replication: the broker's part in its cluster, and the other members."""

from __future__ import annotations

from typing import Protocol

from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.operation import Operation


class ReplicationKeeper(Protocol):
    """An object that knows the cluster."""

    def describe(self) -> dict[str, object]:
        """Return the figures of the cluster and of this member."""


class ReplicationEntities(EntityType):
    """The broker's part in its cluster, with the name ``replication``, in the default virtual
    host."""

    short = "replication"
    attributes: tuple[str, ...] = (
        "name",
        "cluster",
        "cluster-name",
        "member",
        "role",
        "term",
        "leader",
        "leader-address",
        "lease-seconds",
        "last-batch",
        "applied-batch",
        "lag-batches",
        "journal-bytes",
        "snapshot-bytes",
        "journal-alarm",
        "synchronous",
        "elections",
        "suspended-seconds",
        "members",
    )

    def __init__(self, keeper: ReplicationKeeper) -> None:
        self._keeper = keeper

    def operations(self) -> dict[str, Operation]:
        """Return READ."""
        return {"READ": Operation(self.read)}

    def identities(self) -> list[str]:
        """Return the only identity."""
        return ["replication"]

    def show(self, identity: str) -> dict[str, object] | None:
        """Return the figures of the cluster and of this member."""
        if identity not in ("replication", "self"):
            return None
        return {"name": "replication", **self._keeper.describe()}
