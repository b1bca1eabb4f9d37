"""A broker with a configuration file that changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import ferrymq
from ferrymq import ManagementClient
from ferrymq_broker.config.load import LoadedConfig, load_with_places
from ferrymq_broker.server import BrokerServer

LISTENER = """
[[listener]]
url = "amqp://127.0.0.1:0"
"""


class ConfiguredBroker:
    """A running broker, and its file."""

    def __init__(self, server: BrokerServer, path: Path) -> None:
        self.server = server
        self.path = path

    def write(self, text: str) -> None:
        """Replace the content of the file, after the listener."""
        self.path.write_text(LISTENER + text, "utf-8")

    def reload(self, text: str | None = None) -> list[tuple[str, object, object, bool]]:
        """Reload, with other content of the file: the differences."""
        if text is not None:
            self.write(text)
        self.server.broker.begin_pass(self.server.clock.now())
        try:
            found = self.server.live.reload()
        finally:
            self.server.broker.finish_pass()
        return [(each.setting, each.before, each.after, each.applied) for each in found]

    def url(self, user: str = "", password: str = "") -> str:
        who = f"{user}:{password}@" if user else ""
        return f"amqp://{who}127.0.0.1:{self.server.port}"

    @asynccontextmanager
    async def managed(
        self, user: str = "", password: str = "", hostname: str | None = None
    ) -> AsyncIterator[ManagementClient]:
        async with (
            ferrymq.connect(self.url(user, password), hostname=hostname) as connection,
            connection.management() as management,
        ):
            yield management


@asynccontextmanager
async def broker(folder: Path, text: str = "") -> AsyncIterator[ConfiguredBroker]:
    path = folder / "broker.toml"
    path.write_text(LISTENER + text, "utf-8")

    def read() -> LoadedConfig:
        config, places = load_with_places(path)
        return LoadedConfig(path, config, places)

    async with BrokerServer(read().config, reread=read) as server:
        yield ConfiguredBroker(server, path)
