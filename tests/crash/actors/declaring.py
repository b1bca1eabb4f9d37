"""Management: nodes that come, change and go, and the messages in those that stay."""

from __future__ import annotations

import asyncio
from typing import Any

import ferrymq
from ferrymq import ManagementClient
from ferrymq_broker.management.errors import ManagementError
from tests.crash.actors.actor import Actor, look
from tests.crash.client_side import ClientSide
from tests.crash.ledger import Entry


class Declarer(Actor):
    """Declares queues; sends a message to some of them, changes and deletes others."""

    async def work(self, connection: ferrymq.Connection) -> None:
        async with connection.management() as management:
            while True:
                name = f"{self.name}-{len(self.ledger.entries)}"
                settings: dict[str, Any] = {"max-length": self.random.randint(10, 99)}
                await declare(self.stage, management, "queue", name, settings)
                choice = self.random.random()
                if choice < 0.2:
                    await self._send(connection, name)
                elif choice < 0.4:
                    settings = {"max-length": settings["max-length"] + 100}
                    self.ledger.write("declares", type="queue", name=name, settings=settings)
                    await management.update("queue", name, settings)
                    self.ledger.write("declared", type="queue", name=name, settings=settings)
                elif choice < 0.9:
                    self.ledger.write("deletes", type="queue", name=name)
                    await management.delete("queue", name)
                    self.ledger.write("deleted", type="queue", name=name)
                await asyncio.sleep(self.random.random() / 10)

    async def _send(self, connection: ferrymq.Connection, name: str) -> None:
        async with connection.sender(name) as sender:
            await sender.ready()
            future = self.send(sender, name)
            future.add_done_callback(look)
            await future


async def declare(
    stage: ClientSide, management: ManagementClient, type: str, name: str, settings: dict[str, Any]
) -> None:
    """Make an entity."""
    stage.ledger.write("declares", type=type, name=name, settings=settings)
    await management.create(type, name, settings)
    stage.ledger.write("declared", type=type, name=name, settings=settings)


async def look_at_all(stage: ClientSide, management: ManagementClient) -> None:
    """Tell the ledger what there is of all that was ever declared."""
    for type, name in declared(stage.ledger.entries):
        try:
            settings = await management.read(type, name)
        except ManagementError as error:
            if error.status != 404:
                raise
            stage.ledger.write("missing", type=type, name=name)
        else:
            kept = {key: settings.get(key) for key in ("name", "max-length")}
            stage.ledger.write("found", type=type, name=name, settings=kept)


def declared(entries: list[Entry]) -> list[tuple[str, str]]:
    """Everything that somebody has declared, or wanted to."""
    found: dict[tuple[str, str], None] = {}
    for entry in entries:
        if entry.what == "declares":
            found[entry.about["type"], entry.about["name"]] = None
    return list(found)
