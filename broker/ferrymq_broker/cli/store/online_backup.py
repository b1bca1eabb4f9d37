"""Backups that a running broker makes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from ferrymq import ManagementClient
from ferrymq_broker.cli.admin.session import ask
from ferrymq_broker.cli.progress import RunProgress
from ferrymq_broker.store.errors import StoreError

KIND: Final = "store"
NAME: Final = "store"
# Seconds between two requests for the progress.
_PERIOD: Final = 0.1


def backup_online(url: str, target: Path) -> int:
    """Make the broker back up its store. Return the bytes. Raises `StoreError`."""
    # The broker has another current directory, so it needs an absolute path.
    if not target.is_absolute():
        target = target.absolute()

    async def work(management: ManagementClient) -> int:
        with RunProgress("copying", None) as progress:
            await management.request("BACKUP", KIND, NAME, {"target": str(target)})
            while True:
                backup = (await management.read(KIND, NAME)).get("backup")
                known = backup if isinstance(backup, dict) else {}
                copied = known.get("bytes")
                size = copied if isinstance(copied, int) else 0
                state = known.get("state")
                if state == "done":
                    return size
                if state != "running":
                    raise StoreError(f"the backup failed: {known.get('reason', state)}")
                total = known.get("total")
                progress.reach("copying", size, total if isinstance(total, int) else 0)
                await asyncio.sleep(_PERIOD)

    return ask(url, None, work)
