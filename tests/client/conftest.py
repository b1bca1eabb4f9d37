"""A scripted peer, and a connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import ferrymq
from tests.client.peer import Peer


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with Peer() as server:
        yield server


@pytest.fixture
async def connection(peer: Peer) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(peer.url) as connected:
        yield connected
