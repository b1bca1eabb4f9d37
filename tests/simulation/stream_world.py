"""A seed's world with a stream that keeps next to nothing, and somebody who copies all of it.

Producers append; one client reads chunks, over a connection that is made again whenever it is lost,
and holds what it has still to copy. What has to be true in the end, whatever happened:

- every record that was told to be accepted has been copied, and none was left out before it: limits
  would have let it go, the hold did not;
- a record that was copied is what it was, and the hold is where the broker said it is, in every
  life of the broker.
"""

from __future__ import annotations

import asyncio

import ferrymq
from ferrymq import ChunkReader, Message
from ferrymq.errors import AmqpError
from ferrymq_broker.management.errors import ManagementError
from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.policy import StreamPolicy
from tests.simulation.world import PATIENCE, World, Wrong

LOG = "log"
HOLDER = "copy"
# Without a hold no more than so many records stay, some more than that.
KEPT = 4


class StreamWorld(World):
    """Everything that one seed decides. `unsafe` is a disk that only says that it syncs."""

    def __init__(self, seed: int, *, unsafe: bool = False, messages: int = 25) -> None:
        super().__init__(seed, unsafe=unsafe, once=False, messages=messages)
        self.nodes = {LOG: StreamPolicy(max_records=KEPT)}
        # Bodies in the order of their offsets, and where the copy is held from, so far as is known.
        self.copied: list[str] = []
        self.held = -1
        # The largest number of records that were there for the hold alone.
        self.saved = 0

    # -- the broker ------------------------------------------------------------------------

    def start(self) -> None:
        """Start it; what it has said before is still so."""
        super().start()
        server = self.server
        assert server is not None
        server.broker.begin_pass(server.clock.now())
        install(server.broker.default, server.broker)
        server.broker.finish_pass()
        stream = server.broker.default.nodes[LOG]
        assert isinstance(stream, Stream)
        first, next = stream.range(0)
        if next < len(self.copied):
            raise Wrong(f"seed {self.seed}: {len(self.copied)} were copied, {next} are there")
        if self.held >= 0:
            hold = stream.holds.find(HOLDER)
            if hold is None or hold.offsets[0] < self.held or first > hold.offsets[0]:
                raise Wrong(f"seed {self.seed}: held from {self.held} on, there is {first}")
            self.saved = max(self.saved, next - first - KEPT)

    # -- clients ---------------------------------------------------------------------------

    async def _live(self) -> None:
        self.start()
        await self._hold(0)
        copier = self.loop.create_task(self._copy())
        try:
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                for number in range(2):
                    group.create_task(self._append(number))
                group.create_task(self._break())
            self.network.calm = True
            async with asyncio.timeout(PATIENCE):
                while not (copier.done() or self.accepted <= set(self.copied)):
                    # Simulated time costs nothing.
                    await asyncio.wait([copier], timeout=0.5)
        except TimeoutError:
            # What is missing is told in the end.
            pass
        finally:
            if copier.done():
                copier.result()
            copier.cancel()
            await asyncio.gather(copier, return_exceptions=True)
        assert self.server is not None
        if self.server.failure:
            raise Wrong(self.server.failure)

    async def _append(self, number: int) -> None:
        connection = await self._connected(f"writer-{number}")
        sender = await self._link(lambda: connection.sender(f"{LOG}::0", name="out"))
        for n in range(self.messages):
            body = f"{number}-{n}"
            self.sent.add(body)
            try:
                await sender.send(Message(body))
            except AmqpError:
                continue
            self.accepted.add(body)
        await connection.close()

    async def _copy(self) -> None:
        connection = await self._connected("copier")
        incarnation: object = None
        while True:
            reader: ChunkReader = await self._link(
                lambda: connection.chunk_reader(
                    f"{LOG}::0", start=len(self.copied), chunk_records=3, credit=2
                )
            )
            if reader.first_offset != len(self.copied):
                self.faults.append(f"the copy was to go on at {len(self.copied)}: {reader!r}")
                return
            if incarnation not in (None, reader.incarnation):
                self.faults.append("it is another stream")
            incarnation = reader.incarnation
            try:
                await self._read(reader)
            except AmqpError:
                await asyncio.sleep(0.05)

    async def _read(self, reader: ChunkReader) -> None:
        while True:
            try:
                chunk = await reader.receive(timeout=1.0)
            except TimeoutError:
                continue
            assert chunk is not None
            for i in range(chunk.count):
                if chunk.offset(i) != len(self.copied):
                    self.faults.append(f"{chunk!r} came, and {len(self.copied)} was to come")
                self.copied.append(str(Message.decode(chunk.payload(i)).body))
            # Slower than those who write.
            await asyncio.sleep(self.rng.random() * 0.1)
            if self.rng.random() < 0.3:
                await self._hold(len(self.copied))

    async def _hold(self, offset: int) -> None:
        """Hold what is from this offset on, however long it takes to be told so."""
        body = {"holder": HOLDER, "offsets": [{"partition": 0, "offset": offset}]}
        while True:
            try:
                async with (
                    asyncio.timeout(30),
                    ferrymq.connect("amqp://broker", idle_time_out=None) as connection,
                    connection.management() as management,
                ):
                    await management.request("HOLD", "stream", LOG, body)
                    self.held = offset
                    return
            except ManagementError as error:
                raise Wrong(f"seed {self.seed}: not held from {offset} on: {error}") from error
            except (AmqpError, OSError, TimeoutError):
                if self.held == offset:
                    return
                await asyncio.sleep(0.05)

    # -- what has to be true -----------------------------------------------------------------

    def check(self) -> None:
        """Raises `Wrong` with everything that is not as it has to be."""
        faults = list(self.faults)
        lost = self.accepted - set(self.copied)
        if lost:
            faults.append(f"accepted and not copied: {sorted(lost)}")
        strange = set(self.copied) - self.sent
        if strange:
            faults.append(f"copied, never sent: {sorted(strange)}")
        if faults:
            raise Wrong(f"seed {self.seed}: " + "; ".join(faults))
