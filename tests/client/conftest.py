"""A scripted peer, and a connection to it; a model of a broker, and one that comes back."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator

import pytest

import ferrymq
from ferrymq import ReconnectPolicy
from tests.client.keeper import POLICY, Keeper
from tests.client.pauses import Pauses
from tests.client.peer import Peer
from tests.client.rabbit import RabbitPeer


@pytest.fixture(scope="module")
def few_objects() -> None:
    """Exclude the objects that tests of other files have left: each `gc.collect()` would look at
    them."""
    gc.collect()
    gc.freeze()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with Peer() as server:
        yield server


@pytest.fixture
async def connection(peer: Peer) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(peer.url) as connected:
        yield connected


@pytest.fixture
async def broker() -> AsyncIterator[Keeper]:
    async with Keeper(max_frame_size=512) as keeper:
        yield keeper


@pytest.fixture
async def lasting(broker: Keeper) -> AsyncIterator[ferrymq.Connection]:
    async with ferrymq.connect(
        broker.url, container_id="me", reconnect=POLICY, max_frame_size=512
    ) as connected:
        yield connected


@pytest.fixture
async def rabbit() -> AsyncIterator[RabbitPeer]:
    async with RabbitPeer() as server:
        yield server


@pytest.fixture
async def old() -> AsyncIterator[RabbitPeer]:
    async with RabbitPeer(old=True) as server:
        yield server


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def policy(pauses: Pauses) -> ReconnectPolicy:
    return ReconnectPolicy(
        initial=1, factor=2, maximum=5, attempts=6, random=lambda: 1.0, sleep=pauses
    )
