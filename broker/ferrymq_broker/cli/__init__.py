"""The ``ferrymq`` command."""

from __future__ import annotations

import importlib.util
import sys

# What the `broker` extra installs. The package's own name is the same as the module's.
_NEEDED = ("pydantic", "rich", "structlog", "typer")


def main() -> None:
    """Run the command line; exits with its status."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"ferrymq: {', '.join(missing)} not installed; pip install 'ferrymq[broker]'\n"
        )
        raise SystemExit(1)
    from ferrymq_broker.cli.app import run

    run()
