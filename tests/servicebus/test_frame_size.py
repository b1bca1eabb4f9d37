"""The largest frame that the broker offers to clients of the personality."""

from __future__ import annotations

import pytest

import ferrymq
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer


@pytest.mark.parametrize(
    ("limits", "offered"), [({}, 1_048_576), ({"max_frame_size": 32_768}, 32_768)]
)
async def test_the_open_offers_the_frames_of_the_service(
    limits: dict[str, int], offered: int
) -> None:
    config = {
        "listener": [{"url": "amqp://127.0.0.1:0"}],
        "personality": {"name": "azure"},
        "limits": limits,
    }
    async with (
        BrokerServer(Config.model_validate(config)) as server,
        ferrymq.connect(server.url) as connection,
    ):
        remote = connection._remote
        assert remote is not None and remote.max_frame_size == offered
