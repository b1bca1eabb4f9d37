"""A broker whose management API is asked over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from yarl import URL

from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer


class Api:
    """A client of the API of a broker; `auth` is the field Authorization."""

    def __init__(self, server: BrokerServer, auth: str | None = None) -> None:
        assert server.monitoring is not None
        self.server = server
        self.url = server.monitoring.url
        headers = {} if auth is None else {"Authorization": auth}
        self._session = aiohttp.ClientSession(headers=headers)

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        status: int = 200,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """The body of the answer, which must have this status."""
        _, found = await self.whole(method, path, body, status, headers)
        return found

    async def whole(
        self,
        method: str,
        path: str,
        body: object = None,
        status: int = 200,
        headers: dict[str, str] | None = None,
    ) -> tuple[dict[str, str], Any]:
        """The fields of the answer and its body."""
        sent: dict[str, Any] = {"headers": headers}
        if isinstance(body, bytes):
            sent["data"] = body
        elif body is not None:
            sent["json"] = body
        url = URL(f"{self.url}/management/v1/{path}", encoded=True)
        async with self._session.request(method, url, **sent) as response:
            text = await response.text()
            assert response.status == status, text
            is_json = "json" in response.headers.get("Content-Type", "")
            return dict(response.headers), json.loads(text) if is_json else text

    async def close(self) -> None:
        await self._session.close()


def config(**more: object) -> Config:
    return Config.model_validate(
        {
            "listener": [{"url": "any://127.0.0.1:0"}],
            "http": {"url": "http://127.0.0.1:0"},
            "queue": [{"name": "orders", "max-length": 100}],
            "virtual-host": [{"name": "shop", "hostnames": ["shop.example"]}],
            **more,
        }
    )


@asynccontextmanager
async def serving(**more: object) -> AsyncIterator[Api]:
    """A broker with these settings, and its API without a login."""
    async with BrokerServer(config(**more)) as server:
        api = Api(server)
        try:
            yield api
        finally:
            await api.close()
