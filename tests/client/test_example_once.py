"""The example of exactly once: it is killed again and again, and books every payment once."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from pathlib import Path

from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/client_exactly_once.py"
CONFIG = Config.model_validate({"listener": [{"url": "amqp://127.0.0.1:0"}]})


async def start(what: str, url: str, ledger: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLE), what, url, str(ledger)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ,
    )


async def finish(process: asyncio.subprocess.Process) -> str:
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


def rows(ledger: Path, table: str) -> int:
    """How much is in a table, which may be in the making."""
    try:
        with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as opened:
            return int(opened.execute(f"select count(*) from {table}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


async def test_it_is_killed_and_started_again(tmp_path: Path) -> None:
    out, booked = tmp_path / "out.db", tmp_path / "in.db"
    async with BrokerServer(CONFIG) as server:
        # A run that is not disturbed makes both termini.
        assert "sent 5" in await finish(await start("write", server.url, out))
        assert "booked 5 10" in await finish(await start("read", server.url, booked))
        for _ in range(3):
            writer = await start("write", server.url, out)
            try:
                async with asyncio.timeout(30):
                    while rows(out, "outbox") == 0 and writer.returncode is None:  # noqa: ASYNC110
                        await asyncio.sleep(0)
            finally:
                if writer.returncode is None:
                    writer.kill()
                await writer.communicate()
        # Whatever was in the outbox is sent, if it was not yet.
        await finish(await start("write", server.url, out))
        assert rows(out, "outbox") == 0
        queue = server.broker.default.nodes["payments"]
        expected = 5 + queue.available  # type: ignore[attr-defined]
        reader = await start("read", server.url, booked)
        before = rows(booked, "account")
        try:
            async with asyncio.timeout(30):
                while rows(booked, "account") == before:  # noqa: ASYNC110
                    await asyncio.sleep(0)
        finally:
            if reader.returncode is None:
                reader.kill()
            await reader.communicate()
        while rows(booked, "account") + 5 <= expected:
            await finish(await start("read", server.url, booked))
        left = queue.message_count()  # type: ignore[attr-defined]
        assert rows(booked, "account") + left == expected
