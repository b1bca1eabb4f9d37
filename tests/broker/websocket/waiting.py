"""Waiting for clients to be gone."""

from __future__ import annotations

import asyncio

from ferrymq_broker.server import BrokerServer


async def empty(server: BrokerServer) -> None:
    """Until nobody is connected any more."""
    async with asyncio.timeout(30):
        while len(server.connection_limits):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
