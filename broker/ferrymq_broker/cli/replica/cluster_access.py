"""The cluster of a replica command: its options, and calls of its journal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final, NamedTuple, TypeVar

import typer

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.load import load_config
from ferrymq_broker.replication.shared_journal import SharedJournal

T = TypeVar("T")

# As in the configuration.
_DEFAULT_CLUSTER: Final = "ferrymq"

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The configuration of a member, with [replication]."
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="FERRYMQ_DATABASE_URL",
        metavar="URL",
        help="The database: postgresql://[USER@]HOST[:PORT]/DATABASE. It overrides --config.",
        show_default=False,
    ),
]
ClusterName = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="NAME", help=f"The name of the cluster, else {_DEFAULT_CLUSTER}."
    ),
]


class ClusterAccess(NamedTuple):
    """The URL of a database, which may contain a password, and the name of a cluster in it.
    `snapshot_directory` is where the configuration puts snapshots, None for the database."""

    url: str
    cluster: str
    snapshot_directory: Path | None = None

    def run(self, work: Callable[[SharedJournal], Awaitable[T]]) -> T:
        """Do `work` with the journal of the cluster. Raises `ReplicationError`."""
        from ferrymq_broker.replication.postgresql.journal import PostgresqlJournal

        async def run() -> T:
            loop = asyncio.get_running_loop()
            journal = PostgresqlJournal(self.url, self.cluster, loop, lease_timeout=10.0)
            try:
                return await work(journal)
            finally:
                journal.close()

        return asyncio.run(run())


def find_cluster(config: Path | None, url: str | None, cluster: str | None) -> ClusterAccess:
    """Return the cluster that the options name; they override the configuration. Raises
    `ConfigError`."""
    directory = None
    if config is not None:
        settings = load_config(config).replication
        if settings.url is None:
            raise ConfigError(f"{config}: there is no [replication]")
        url = url or settings.url.get_secret_value()
        cluster = cluster or settings.cluster
        directory = settings.snapshot_directory
    if url is None:
        raise ConfigError("no database is given: use --url URL, or --config FILE")
    return ClusterAccess(url, cluster or _DEFAULT_CLUSTER, directory)
