"""The file `replica`, which says that a store is a member's part of a cluster, and of which one.

Such a store is not complete without the cluster's shared journal: its own journal is not synced.
"""

from __future__ import annotations

from typing import Final

from ferrymq_broker.store.disk import Folder
from ferrymq_broker.store.errors import StoreDamaged, StoreError
from ferrymq_broker.store.marker_files import decode_label, encode_label

REPLICA_NAME: Final = "replica"
_NEW_NAME: Final = "replica.new"

_TITLE: Final = "ferrymq replica"


def read_replica(folder: Folder) -> str:
    """Return the id of the cluster that a store belongs to, "" for the store of a single broker.

    Raises `StoreDamaged`.
    """
    if REPLICA_NAME not in folder.names():
        return ""
    file = folder.open(REPLICA_NAME)
    try:
        fields = decode_label(_TITLE, file.read(0, 4096)) or {}
    finally:
        file.close()
    cluster = fields.get("cluster", "")
    if not cluster:
        raise StoreDamaged(
            f"{folder.describe(REPLICA_NAME)} is damaged: its content is not what ferrymq wrote. "
            "Move the directory away: the member then begins with a snapshot of its cluster"
        )
    return cluster


def write_replica(folder: Folder, cluster: str) -> None:
    """Mark a store as a part of this cluster. Raises `OSError`."""
    file = folder.create(_NEW_NAME)
    try:
        file.write(0, (encode_label(_TITLE, {"cluster": cluster}),))
    finally:
        file.close()
    folder.rename(_NEW_NAME, REPLICA_NAME)
    folder.sync()


def require_replica(folder: Folder, cluster: str, is_new: bool) -> None:
    """Check that a store belongs to this cluster, "" for none, and mark a new one.

    Raises `StoreError`.
    """
    found = read_replica(folder)
    if found == cluster:
        return
    where = folder.describe()
    if not cluster:
        raise StoreError(
            f"the store {where} is a part of the cluster {found}, and not complete without the "
            "cluster's database: start the broker with its section [replication], or make a "
            "single broker's store with ferrymq store restore"
        )
    if found:
        raise StoreError(
            f"the store {where} is a part of the cluster {found}, but the database has the "
            f"cluster {cluster}: correct [replication], or use another directory"
        )
    if not is_new:
        raise StoreError(
            f"the store {where} is a single broker's: give it to the cluster with ferrymq replica "
            "init --from-store, and give this member an empty directory"
        )
    write_replica(folder, cluster)
