"""The group of replica commands."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ferrymq_broker.cli.admin.session import Yes, confirm
from ferrymq_broker.cli.admin.tables import print_json
from ferrymq_broker.cli.options import Json
from ferrymq_broker.cli.replica.cluster_access import (
    ClusterName,
    ConfigFile,
    DatabaseOption,
    find_cluster,
)
from ferrymq_broker.cli.replica.first_snapshot import make_first_snapshot
from ferrymq_broker.cli.replica.hand_over import ask_to_hand_over, choose_successor, find_member
from ferrymq_broker.cli.replica.status import print_status, read_status, status_as_json
from ferrymq_broker.cli.store.offline_store import require_store
from ferrymq_broker.replication.waiting import ask

replica: typer.Typer = typer.Typer(
    name="replica",
    help="Set up, inspect and switch the cluster of brokers that share a journal.",
    no_args_is_help=True,
    add_completion=False,
)

HandOverTimeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.0,
        help="How long to wait until the member is the leader.",
    ),
]


@replica.command()
def init(
    config: ConfigFile = None,
    url: DatabaseOption = None,
    cluster: ClusterName = None,
    grant_to: Annotated[
        str | None,
        typer.Option(
            "--grant-to",
            metavar="ROLE",
            help="The role of the brokers in the database, which gets the rights that they need.",
        ),
    ] = None,
    from_store: Annotated[
        Path | None,
        typer.Option(
            "--from-store",
            metavar="DIR",
            help="The store of a single broker, which no broker uses: the cluster begins with it.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make or upgrade the tables in the database, and make the cluster.

    Run it as the owner of the tables. Running it again changes nothing.
    """
    from ferrymq_broker.replication.postgresql.database_schema import VERSION, initialise

    access = find_cluster(config, url, cluster)
    if from_store is not None:
        require_store(from_store)
    before, new = initialise(access.url, access.cluster, grant_to)
    made = {"cluster": access.cluster, "new": new, "version": VERSION, "before": before}
    number = 0
    if from_store is not None:
        number = access.run(
            partial(make_first_snapshot, store=from_store, directory=access.snapshot_directory)
        ).number
        made["last-batch"] = number
    if as_json:
        print_json(made)
        return
    if before == 0:
        sys.stdout.write(f"made the tables, version {VERSION}\n")
    elif before != VERSION:
        sys.stdout.write(f"upgraded the tables from version {before} to version {VERSION}\n")
    said = "made the cluster" if new else "there already is the cluster"
    sys.stdout.write(f"{said} {access.cluster}\n")
    if from_store is not None:
        sys.stdout.write(f"it begins with {from_store}, up to batch {number}\n")


@replica.command()
def status(
    config: ConfigFile = None,
    url: DatabaseOption = None,
    cluster: ClusterName = None,
    as_json: Json = False,
) -> None:
    """Show the leader, the members and how far they are behind, the journal and its snapshots."""
    access = find_cluster(config, url, cluster)
    found = access.run(read_status)
    if as_json:
        print_json(status_as_json(access.cluster, found))
    else:
        print_status(access.cluster, found)


@replica.command()
def promote(
    name: Annotated[
        str, typer.Argument(metavar="NAME", show_default=False, help="The member to be the leader.")
    ],
    config: ConfigFile = None,
    url: DatabaseOption = None,
    cluster: ClusterName = None,
    timeout: HandOverTimeout = 30.0,
    as_json: Json = False,
) -> None:
    """Make a standby the leader. The leader hands over when all that it has acknowledged is in the
    journal: nothing is lost."""
    access = find_cluster(config, url, cluster)
    lease = access.run(lambda journal: ask_to_hand_over(journal, find_member(name), timeout))
    _say_leader(lease.holder, lease.term, as_json)


@replica.command()
def demote(
    config: ConfigFile = None,
    url: DatabaseOption = None,
    cluster: ClusterName = None,
    timeout: HandOverTimeout = 30.0,
    as_json: Json = False,
) -> None:
    """Make the standby that is the least behind the leader, in place of the present one."""
    access = find_cluster(config, url, cluster)
    lease = access.run(lambda journal: ask_to_hand_over(journal, choose_successor, timeout))
    _say_leader(lease.holder, lease.term, as_json)


@replica.command()
def fence(
    config: ConfigFile = None,
    url: DatabaseOption = None,
    cluster: ClusterName = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """End the term of the leader at once: it can acknowledge nothing more, wherever it is.

    For a leader that answers nobody. Another member becomes the leader, or the same one again.
    """
    access = find_cluster(config, url, cluster)
    confirm(f"End the term of the leader of {access.cluster!r}? Its clients are cut off.", yes)
    lease = access.run(lambda journal: ask(journal.fence))
    if as_json:
        print_json({"term": lease.term})
    else:
        sys.stdout.write(f"the term is {lease.term} now: the leader of before is fenced off\n")


def _say_leader(name: str, term: int, as_json: bool) -> None:
    if as_json:
        print_json({"leader": name, "term": term})
    else:
        sys.stdout.write(f"{name} is the leader now, with term {term}\n")
