"""Pauses of a reconnect policy that take no time."""

from __future__ import annotations

import asyncio


class Pauses:
    """Stands in for sleeping: remembers the pauses and ends them at once, or when told."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.go = asyncio.Event()
        self.go.set()
        self.begun = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        self.begun.set()
        await asyncio.sleep(0)
        await self.go.wait()
