"""The output of ``ferrymq replica status``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import NamedTuple

from ferrymq_broker.cli.admin.tables import print_list
from ferrymq_broker.replication.shared_journal import (
    JournalFigures,
    Lease,
    Member,
    SharedJournal,
    SnapshotInfo,
)
from ferrymq_broker.replication.waiting import ask


class ClusterStatus(NamedTuple):
    """A cluster as its journal shows it."""

    lease: Lease
    figures: JournalFigures
    members: list[Member]
    snapshots: list[SnapshotInfo]

    def behind(self, member: Member) -> int:
        """Return how many batches are not in the records of a member."""
        return max(0, self.figures.last.number - member.applied)


async def read_status(journal: SharedJournal) -> ClusterStatus:
    """Read the status of a cluster. Raises `ReplicationError`."""
    return ClusterStatus(
        await ask(journal.observe),
        await ask(journal.figures),
        await ask(journal.members),
        await ask(journal.snapshots),
    )


def status_as_json(cluster: str, status: ClusterStatus) -> dict[str, object]:
    """Return the status as a value of JSON: sizes in bytes, times in seconds."""
    lease, figures, members, snapshots = status
    return {
        "cluster": cluster,
        "id": figures.cluster,
        "synchronous": figures.synchronous,
        "lease": {
            "term": lease.term,
            "leader": lease.holder or None,
            "address": lease.address or None,
            "remaining": round(lease.remaining, 3),
            "successor": lease.successor or None,
        },
        "journal": {
            "first": figures.first.number,
            "last": figures.last.number,
            "term": figures.last.term,
            "bytes": figures.batch_bytes,
            "snapshot-bytes": figures.snapshot_bytes,
        },
        "members": [
            {
                "name": member.name,
                "role": member.role,
                "address": member.address,
                "applied": member.applied,
                "behind": status.behind(member),
                "version": member.version,
                "seen": round(member.seen, 3),
            }
            for member in members
        ],
        "snapshots": [
            {
                "id": snapshot.id,
                "batch": snapshot.position.number,
                "term": snapshot.position.term,
                "bytes": snapshot.size,
                "created": snapshot.created,
            }
            for snapshot in snapshots
        ],
    }


def print_status(cluster: str, status: ClusterStatus) -> None:
    """Print the status for people."""
    lease, figures, members, snapshots = status
    lines = [f"cluster {cluster} ({figures.cluster})", _about_leader(lease)]
    if lease.successor:
        lines.append(f"asked to hand over to {lease.successor}")
    if figures.last.number:
        lines.append(
            f"journal: batches {figures.first.number} to {figures.last.number},"
            f" {figures.batch_bytes} bytes"
        )
    else:
        lines.append("journal: empty")
    lines.append(_SYNCHRONOUS[figures.synchronous])
    sys.stdout.write("\n".join(lines) + "\n\n")
    rows: list[dict[str, object]] = [
        {
            "member": member.name,
            "role": member.role if member.runs else f"was {member.role}",
            "behind": status.behind(member),
            "seen": f"{member.seen:.1f} s ago",
            "version": member.version,
            "address": member.address,
        }
        for member in members
    ]
    if rows:
        print_list(["member", "role", "behind", "seen", "version", "address"], rows)
    else:
        sys.stdout.write("no member has announced itself\n")
    for snapshot in snapshots:
        created = datetime.fromtimestamp(snapshot.created, UTC)
        sys.stdout.write(
            f"\nsnapshot {snapshot.id}: up to batch {snapshot.position.number},"
            f" {snapshot.size} bytes, {created:%Y-%m-%d %H:%M:%S} UTC"
        )
    sys.stdout.write("\n" if snapshots else "")


def _about_leader(lease: Lease) -> str:
    if not lease.holder:
        return f"no leader; the last term is {lease.term}"
    if lease.remaining <= 0:
        ended = -lease.remaining
        return f"no leader: the lease of {lease.holder}, term {lease.term}, ended {ended:.1f} s ago"
    return f"leader {lease.holder}, term {lease.term}, for {lease.remaining:.1f} s more"


_SYNCHRONOUS = {
    True: "PostgreSQL confirms a commit when its standby has it",
    False: "PostgreSQL confirms commits without a standby: a machine that is lost may lose data",
    None: "whether PostgreSQL waits for a standby is unknown",
}
