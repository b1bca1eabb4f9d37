"""The ``ferrymq`` command."""

from __future__ import annotations

import sys

from ferrymq_broker.cli.installed_commands import extra_of, missing, run_installed

# Packages of the `broker` extra that the command line needs.
_NEEDED = ("google_crc32c", "lmdb", "pydantic", "rich", "structlog", "typer")


def main() -> None:
    """Run the command line, and exit with its status."""
    try:
        from ferrymq_broker.cli.app import make_app, run

        app = make_app(sys.argv[1:])
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        if error.name != "typer":
            run_installed(sys.argv[1:])
        sys.stderr.write(missing(error.name, extra_of(sys.argv[1:])) + "\n")
        raise SystemExit(1) from None
    run(app)
