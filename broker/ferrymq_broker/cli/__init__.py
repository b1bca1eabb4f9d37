"""The ``ferrymq`` command."""

from __future__ import annotations

import gc
import os
import sys

from ferrymq_broker.cli.installed_commands import extra_of, missing

# Packages that come with the extras. Of others, a missing one is a broken installation.
_NEEDED = ("google_crc32c", "lmdb", "pydantic", "rich", "structlog", "typer")
# The package for the database of a cluster.
_REPLICATION = "psycopg"


def main() -> None:
    """Run the command line, and exit with its status."""
    # Imports make many objects and leave no garbage, but collections of these objects take a
    # seventh of the time of a start. `CommandGroup` enables them again.
    gc.disable()
    # Looking for pydantic's plugins reads a file of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        from ferrymq_broker.cli.app import make_app, run

        run(make_app())
    except ModuleNotFoundError as error:
        if error.name not in (*_NEEDED, _REPLICATION):
            raise
        extra = "replicated" if error.name == _REPLICATION else extra_of(sys.argv[1:])
        sys.stderr.write(missing(error.name, extra) + "\n")
        raise SystemExit(1) from None
