"""What a broker with the personality imports when it starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = """
import asyncio
import sys

from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer


async def start() -> None:
    config = {"listener": [{"url": "amqp://127.0.0.1:0"}], "personality": {"name": "azure"}}
    async with BrokerServer(Config.model_validate(config)):
        print(*sys.modules)


asyncio.run(start())
"""


# Importing them takes longer than the rest of a start.
@pytest.mark.parametrize("library", ["joserfc", "aiohttp", "argon2", "lark", "pyarrow"])
def test_libraries_that_a_start_without_them_does_not_need(
    imported: frozenset[str], library: str
) -> None:
    assert library not in imported


@pytest.fixture(scope="module")
def imported() -> frozenset[str]:
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True)
    return frozenset(done.stdout.split())
