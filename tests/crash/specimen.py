"""A store whose content is known to the last byte, for damaging copies of it."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from pathlib import Path

import ferrymq
from ferrymq_broker.store.in_use_file import IN_USE_NAME
from ferrymq_types.transport import ReceiverSettleMode
from tests.crash.actors.actor import Actor
from tests.crash.actors.transactions import commit, post
from tests.crash.layout import STREAM
from tests.crash.ledger import Entry
from tests.crash.play import prepare
from tests.crash.processes import Starter
from tests.crash.stage import Stage

# The smallest there may be: several of them are in use, and most were applied.
_SEGMENT_BYTES = 64 * 1024


class Writer(Actor):
    """Leaves something of every kind, and waits for all outcomes."""

    async def work(self, connection: ferrymq.Connection) -> None:
        for node, count in (("orders", 120), ("news", 20), (STREAM, 60), ("work", 20)):
            sender = await connection.sender(node)
            futures = []
            for _ in range(count):
                await sender.ready()
                futures.append(self.send(sender, node, size=self.random.randrange(2500)))
            await asyncio.gather(*futures)
        await self._schedule(connection)
        await self._take(connection, "orders", "accepted")
        await self._take(connection, "work", "rejected")
        txn = await connection.transaction()
        posted = [
            post(self, await connection.sender(node), node, "writer/1", txn)
            for node in ("left", "both", STREAM)
        ]
        await asyncio.gather(*posted)
        await commit(self, txn, "writer/1")

    async def _schedule(self, connection: ferrymq.Connection) -> None:
        sender = await connection.sender("later")
        due = int(time.time() * 1000) + 2000
        fields = {"message_annotations": {"x-opt-delivery-time": due}}
        for _ in range(10):
            await sender.ready()
            await self.send(sender, "later", size=300, due=due, fields=fields)

    async def _take(self, connection: ferrymq.Connection, node: str, outcome: str) -> None:
        mode = ReceiverSettleMode.SECOND
        async with connection.receiver(node, credit=0, rcv_settle_mode=mode) as receiver:
            receiver.add_credit(10)
            for _ in range(10):
                delivery = await receiver.receive()
                id = self.got(delivery, node)
                assert id is not None
                await self.give(delivery, id, node, outcome)


class Specimen:
    """The files of a store in `folder`, and the `entries` that say what is in them."""

    def __init__(self, folder: Path, entries: list[Entry], seed: int) -> None:
        self.folder = folder
        self.entries = entries
        self.seed = seed

    def copy(self, to: Path) -> Path:
        """Copy it; nobody uses it any more, which a broker has to be told."""
        shutil.copytree(self.folder, to)
        (to / IN_USE_NAME).unlink(missing_ok=True)
        return to


async def make_specimen(starter: Starter, folder: Path, seed: int, *, closed: bool) -> Specimen:
    """Have a broker write a store and killed, or closed in good order."""
    stage = Stage(starter, seed, folder, segment_bytes=_SEGMENT_BYTES)
    life = await stage.start()
    await prepare(stage)
    async with stage.connect("writer") as connection:
        await Writer(stage, "writer").work(connection)
    if closed:
        life.signal(signal.SIGTERM)
        await life.ended()
    await stage.end("closed" if closed else "killed")
    return Specimen(stage.data, stage.ledger.entries, seed)
