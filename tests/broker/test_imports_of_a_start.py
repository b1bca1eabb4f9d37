"""Modules that a start does not import, because most starts do not need them and all would wait.

These tests keep `ferrymq serve`, `ferrymq --version` and `import ferrymq` quick without a clock;
`python -m bench start` measures them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# The modules are the same on both builds.
pytestmark = pytest.mark.once

# What a client needs for no login by SCRAM, no trace, no chunk in columns and no WebSocket.
CLIENT = {"scramp", "ferrymq.tracing", "pyarrow", "aiohttp", "json", "hashlib", "random", "difflib"}
# The packages of the broker's extra that are slow to import.
BROKER = {
    "aiohttp", "argon2", "cryptography", "joserfc", "lark", "lmdb", "prometheus_client", "rich",
    "scramp", "ferrymq.aio", "ferrymq_broker.capture.service", "ferrymq_broker.monitoring.http",
}  # fmt: skip

RUN = """
import sys
from ferrymq_broker.cli import main
sys.argv = ["ferrymq", {arguments}]
try:
    main()
except SystemExit:
    pass
finally:
    print(*sys.modules, file=sys.stderr)
"""
SERVE = """
import sys
import ferrymq_broker.cli.serve
import ferrymq_broker.server.process as process

def stop():
    print(*sys.modules, file=sys.stderr)
    sys.exit()

# The server calls this when it is ready.
process.tune_garbage_collector = stop
from ferrymq_broker.cli import main
sys.argv = ["ferrymq", "serve", "--listen", "amqp://127.0.0.1:0", {arguments}]
main()
"""


def modules(code: str) -> set[str]:
    """Return the modules that a program has imported; it prints them."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.splitlines()[-1].split())


def test_a_client() -> None:
    code = "import sys; from ferrymq import connect, Message; print(*sys.modules, file=sys.stderr)"
    assert not modules(code) & CLIENT


def test_the_package_alone() -> None:
    found = modules("import sys, ferrymq; print(*sys.modules, file=sys.stderr)")
    assert not found & (CLIENT | {"asyncio", "ferrymq.aio"})


def test_the_version() -> None:
    found = modules(RUN.format(arguments="'--version'"))
    assert not found & (BROKER | {"asyncio", "pydantic", "structlog", "importlib.metadata"})


def test_a_broker() -> None:
    assert not modules(SERVE.format(arguments="")) & BROKER


def test_a_broker_with_a_store(tmp_path: Path) -> None:
    assert modules(SERVE.format(arguments=f"'--data', {str(tmp_path)!r}")) & BROKER == {"lmdb"}
