"""``ferrymq store restore``: a single broker's store from the database of a cluster."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ferrymq_broker.cli.options import Json
from ferrymq_broker.cli.progress import RunProgress
from ferrymq_broker.cli.replica.cluster_access import (
    ClusterName,
    ConfigFile,
    DatabaseOption,
    find_cluster,
)
from ferrymq_broker.replication.restoring import RestoredStore, RestorePoint, restore_store
from ferrymq_broker.replication.shared_journal import SharedJournal
from ferrymq_broker.replication.snapshots import Snapshots
from ferrymq_broker.store.executor import LoopExecutor


def restore(
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="DIR",
            help="A new or empty directory for the store.",
            show_default=False,
        ),
    ],
    until: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|TIME",
            help="The last batch, by its number or by the time of its commit, such as "
            "2026-05-04T10:00:00Z (without a zone it is UTC); the newest one without this option.",
            show_default=False,
        ),
    ] = None,
    config: ConfigFile = None,
    url: DatabaseOption = None,
    cluster: ClusterName = None,
    snapshot_directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The directory of the snapshots; it overrides --config.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a single broker's store from a snapshot and the journal of a cluster.

    The cluster may run meanwhile, and is not changed.
    """
    point = _point(until)
    access = find_cluster(config, url, cluster)
    directory = snapshot_directory or access.snapshot_directory

    async def work(journal: SharedJournal) -> RestoredStore:
        executor = LoopExecutor(asyncio.get_running_loop())
        try:
            with RunProgress("restoring", None) as progress:
                snapshots = Snapshots(journal, executor, directory)
                return await restore_store(to, point, snapshots, executor, progress.reach)
        finally:
            executor.close()

    _report(to, access.run(work), as_json)


def _point(until: str | None) -> RestorePoint:
    if until is None:
        return RestorePoint()
    if until.isdecimal():
        return RestorePoint(number=int(until))
    try:
        time = datetime.fromisoformat(until)
    except ValueError:
        raise typer.BadParameter(
            f"{until!r} is neither the number of a batch nor a time such as 2026-05-04T10:00:00Z",
            param_hint="--until",
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return RestorePoint(time=time.timestamp())


def _report(to: Path, restored: RestoredStore, as_json: bool) -> None:
    number, term = restored.position
    committed = (
        None
        if restored.committed is None
        else datetime.fromtimestamp(restored.committed, UTC).isoformat()
    )
    if as_json:
        report = {
            "store": str(to),
            "last-batch": number,
            "term": term,
            "committed": committed,
        }
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        when = "" if committed is None else f", committed at {committed}"
        sys.stdout.write(f"{to}: everything up to batch {number}{when}\n")
