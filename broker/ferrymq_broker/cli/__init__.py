"""The ``ferrymq`` command."""

from __future__ import annotations

import sys

from ferrymq_broker.cli.installed_commands import extra_of, missing

# Packages that come with the extras. Of others, a missing one is a broken installation.
_NEEDED = ("google_crc32c", "lmdb", "pydantic", "rich", "structlog", "typer")


def main() -> None:
    """Run the command line, and exit with its status."""
    try:
        from ferrymq_broker.cli.app import make_app, run

        run(make_app())
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.stderr.write(missing(error.name, extra_of(sys.argv[1:])) + "\n")
        raise SystemExit(1) from None
