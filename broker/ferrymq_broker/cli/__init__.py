"""The ``ferrymq`` command."""

from __future__ import annotations

import sys

# Packages of the `broker` extra that the command line needs.
_NEEDED = ("pydantic", "rich", "structlog", "typer")


def main() -> None:
    """Run the command line, and exit with its status."""
    try:
        from ferrymq_broker.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.stderr.write(f"ferrymq: {error.name} is missing; pip install 'ferrymq[broker]'\n")
        raise SystemExit(1) from None
    run()
