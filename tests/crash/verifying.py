"""`ferrymq store verify` on stores of many shapes, after stops in good order and kills.

A store that a broker opens with all that it should have is not to be called damaged; one that has
lost something is not to be called good.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import ferrymq
from ferrymq import AmqpError, Message
from ferrymq_broker.store.in_use_file import IN_USE_NAME
from ferrymq_broker.store.lmdb_records import DATA_NAME
from ferrymq_types.messaging import TerminusExpiryPolicy
from tests.crash.processes import Life, NotReady, Starter

_PAGE: Final = 4096
_CONFIG: Final = """
[store]
segment-bytes = {segment_bytes}
page-out = {page_out}

[shutdown]
drain-timeout = 2

[[queue]]
name = "plain"
auto-delete = "1ms"
dead-letter = "dead"

[[queue]]
name = "blocking"
max-length = 100000
overflow = "block"

[[queue]]
name = "levels"
priorities = 10

[[queue]]
name = "last"
last-value-key = "key"

[[queue]]
name = "dead"

[[topic]]
name = "news"

[topic.subscription]
overflow = "block"
max-length = 100000

[[exchange]]
name = "both"
routing = "fanout"

[[exchange.binding]]
to = "plain"

[[exchange.binding]]
to = "blocking"

[[exchange.binding]]
to = "news"

[[stream]]
name = "log"
segment-bytes = "16KiB"
"""
_SUBSCRIPTION: Final = "news::reader/kept"
# Queues whose messages are compared, in the order in which they are emptied.
_QUEUES: Final = ("plain", "blocking", "levels", "last", _SUBSCRIPTION, "dead")
# Where what is sent to a node comes to.
_TO: Final = {"news": [_SUBSCRIPTION], "both": ["plain", "blocking", _SUBSCRIPTION]}
_SOURCES: Final = ("plain", "blocking", "levels", "last", "news", "both", "log")


@dataclass
class Verifying:
    """The stores that were made, and what was wrong: `condemned` though they open with all they
    should have, `praised` though they lost something, `lost` by the broker itself."""

    seed: int
    stores: int = 0
    damaged: int = 0
    refused: int = 0
    condemned: list[str] = field(default_factory=list)
    praised: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """All that was wrong."""
        return [*self.condemned, *self.praised, *self.lost]


class _Store:
    """One store: what its queues must have, and what they may have beside, by numbers."""

    def __init__(self, starter: Starter, seed: int, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.data = folder / "data"
        self.must: dict[str, set[int]] = {queue: set() for queue in _QUEUES}
        self.may: dict[str, set[int]] = {queue: set() for queue in _QUEUES}
        self.random = Random(seed)
        self._records = 0
        self._newest: dict[int, int] = {}
        # What consumers have said in this life: from which queue, of what, and where that goes.
        self._said: list[tuple[str, int, str]] = []
        self._starter = starter
        self._log = folder / "broker.log"
        self._log.touch()
        self._next = 0
        self._largest = self.random.choice([50, 1000, 5000, 40_000])
        self._config = folder / "broker.toml"
        self._config.write_text(
            _CONFIG.format(
                page_out=self.random.choice([1, 50_000, 0]),
                segment_bytes=self.random.choice([65_536, 262_144, 16_777_216]),
            )
        )

    def start(self, data: Path) -> Life:
        """Start a broker with a store, without waiting until it is ready."""
        listen = "amqp://127.0.0.1:0"
        where = ["--data", str(data), "--listen", listen, "--config", str(self._config)]
        return self._starter.start(["serve", *where], self._log)

    async def verify(self, data: Path) -> bool:
        """Ask `ferrymq store verify` whether a store is good."""
        life = self._starter.start(["store", "verify", str(data)], self._log)
        return await life.ended() == 0

    async def live(self, clean: bool) -> None:
        """Let a broker live, with work in it, until it is stopped in good order or killed."""
        life = self.start(self.data)
        await life.ready()
        url = f"amqp://127.0.0.1:{life.port}"
        async with ferrymq.connect(url, container_id="reader") as connection:
            kept = await connection.receiver(
                "news", name="kept", expiry_policy=TerminusExpiryPolicy.NEVER, durable=2, credit=0
            )
            await kept.detach()
            for _ in range(self.random.randint(1, 4)):
                if self.random.random() < 0.6:
                    await self._fill(connection, self.random.choice(_SOURCES))
                else:
                    await self._empty(connection, self.random.choice(_QUEUES))
        if clean:
            life.signal(signal.SIGTERM)
            await life.ended()
        else:
            await life.kill()
        for queue, number, to in self._said:
            if clean:
                self.must[queue].discard(number)
                if to:
                    self.must[to].add(number)
            else:
                self.may[queue].add(number)
                if to:
                    self.may[to].add(number)
        self._said.clear()

    async def _fill(self, connection: ferrymq.Connection, node: str) -> None:
        sender = await connection.sender(node)
        for _ in range(self.random.choice([1, 5, 30])):
            numbers = list(range(self._next, self._next + 10))
            self._next += 10
            await asyncio.gather(*(sender.send(self._message(number)) for number in numbers))
            for number in numbers:
                if node == "log":
                    self._records += 1
                elif node == "last":
                    self._come_last(number)
                else:
                    for queue in _TO.get(node, [node]):
                        self.must[queue].add(number)
        await sender.close()

    def _message(self, number: int) -> Message:
        return Message(
            body=Random(number).randbytes(self.random.randrange(self._largest)),
            application_properties={"number": number, "key": number % 7},
            priority=self.random.randrange(10),
            durable=True,
        )

    def _come_last(self, number: int) -> None:
        """Let a message take the place of the one before it with its key."""
        before = self._newest.get(number % 7)
        if before is not None and before in self.must["last"]:
            self.must["last"].discard(before)
        self._newest[number % 7] = number
        self.must["last"].add(number)

    async def _empty(self, connection: ferrymq.Connection, queue: str) -> None:
        """Take messages out of a queue: all of them, or some."""
        left = self.random.choice([10, 100, 10_000])
        async with connection.receiver(queue, credit=0) as receiver:
            while left > 0:
                receiver.add_credit(min(left, 100))
                await receiver.drain()
                if not receiver.queued:
                    return
                while receiver.queued:
                    left -= 1
                    delivery = await receiver.receive()
                    number = delivery.message.application_properties["number"]
                    assert isinstance(number, int)
                    self.must[queue].discard(number)
                    self.may[queue].discard(number)
                    if queue == "plain" and self.random.random() < 0.3:
                        await delivery.reject()
                        self._said.append((queue, number, "dead"))
                    else:
                        await delivery.accept()
                        self._said.append((queue, number, ""))

    async def examine(self, data: Path) -> str:
        """Open a store and empty it; what is wrong with it, or nothing."""
        life = self.start(data)
        try:
            try:
                await life.ready()
            except NotReady as error:
                return f"not opened: {error}"
            url = f"amqp://127.0.0.1:{life.port}"
            async with ferrymq.connect(url, container_id="reader") as connection:
                wrong = [await self._compare(connection, queue) for queue in _QUEUES]
                async with connection.management() as management:
                    records = (await management.read("stream", "log"))["records"]
            if records != self._records:
                wrong.append(f"log: {records} records of {self._records}")
            return "; ".join(filter(None, wrong))
        except (AmqpError, OSError, TimeoutError) as error:
            return f"lost while it was read: {error!r}"
        finally:
            await life.kill()

    async def _compare(self, connection: ferrymq.Connection, queue: str) -> str:
        found: list[int] = []
        async with connection.receiver(queue, credit=0) as receiver:
            while True:
                receiver.add_credit(500)
                await receiver.drain()
                if not receiver.queued:
                    break
                while receiver.queued:
                    delivery = await receiver.receive()
                    number = delivery.message.application_properties["number"]
                    assert isinstance(number, int)
                    found.append(number)
                    await delivery.accept()
        lost = self.must[queue] - set(found)
        strange = set(found) - self.must[queue] - self.may[queue]
        twice = len(found) - len(set(found))
        if not lost and not strange and not twice:
            return ""
        return f"{queue}: {len(lost)} lost, {len(strange)} strange, {twice} twice"


async def play_store(starter: Starter, seed: int, folder: Path, campaign: Verifying) -> None:
    """Make one store, verify it and open it; then damage a copy, and do the same with that."""
    store = _Store(starter, seed, folder)
    clean = store.random.random() < 0.5
    async with asyncio.timeout(300):
        for _ in range(store.random.randint(0, 3)):
            await store.live(store.random.random() < 0.6)
        await store.live(clean)
        damaged = folder / "damaged"
        shutil.copytree(store.data, damaged)
        (damaged / IN_USE_NAME).unlink(missing_ok=True)
        good = await store.verify(store.data)
        wrong = await store.examine(store.data)
        campaign.stores += 1
        if wrong:
            campaign.lost.append(f"seed {seed}: {wrong}")
            if good:
                campaign.praised.append(f"seed {seed}: {wrong}")
        elif not good:
            campaign.condemned.append(f"seed {seed}")
        records = damaged / DATA_NAME
        size = records.stat().st_size
        if size > 8 * _PAGE:
            page = store.random.randrange(2, size // _PAGE)
            with records.open("r+b") as file:
                file.seek(page * _PAGE + store.random.randrange(_PAGE - 64))
                file.write(store.random.randbytes(64))
            campaign.damaged += 1
            if not await store.verify(damaged):
                campaign.refused += 1
            elif wrong := await store.examine(damaged):
                campaign.praised.append(f"seed {seed}, page {page} of a copy damaged: {wrong}")
    if not any(f"seed {seed}" in said for said in campaign.wrong):
        shutil.rmtree(folder)


async def verify_stores(
    seed: int, count: int, folder: Path, progress: Callable[[Verifying], object]
) -> Verifying:
    """Make so many stores; `progress` is told after each."""
    campaign = Verifying(seed)
    random = Random(seed)
    starter = Starter()
    try:
        for _ in range(count):
            one = random.randrange(1 << 32)
            await play_store(starter, one, folder / f"store-{one}", campaign)
            progress(campaign)
    finally:
        starter.close()
    return campaign
