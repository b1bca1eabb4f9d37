"""Monitoring over https."""

from __future__ import annotations

import asyncio
import ssl
import urllib.request

import pytest

from ferrymq_broker.config.model import Config
from ferrymq_broker.server import BrokerServer
from tests.broker.tls.pki import Pki


def get(url: str, context: ssl.SSLContext) -> bytes:
    with urllib.request.urlopen(url, context=context, timeout=20) as answer:
        body: bytes = answer.read()
        return body


async def test_it_has_the_certificate_that_is_current(pki: Pki) -> None:
    config = Config(
        listener=[{"url": "amqp://127.0.0.1:0"}],
        http={"url": "https://127.0.0.1:0"},
        # Those who watch are not asked who they are.
        tls=pki.asking("required"),
    )
    async with BrokerServer(config) as server:
        monitoring = server.monitoring
        assert monitoring is not None and monitoring.url.startswith("https://127.0.0.1:")
        url = f"{monitoring.url}/livez"
        assert b"true" in await asyncio.to_thread(get, url, pki.trusting())
        pki.write("server", pki.stranger.server(["127.0.0.1"], 30))
        server.reload()
        with pytest.raises(OSError, match="certificate verify failed"):
            await asyncio.to_thread(get, url, pki.trusting())
