"""Capture in the broker: reads captured streams, and moves their holds.

The service looks for new records every quarter of a second, so publishing costs nothing extra. It
reads one chunk at a time and lets other tasks run between two chunks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ferrymq.capture.names import stream_folder
from ferrymq_broker.broker import Broker
from ferrymq_broker.capture.frames import DROP, FLUSH, HEAD_BYTES, OPEN, chunk_frame, frame
from ferrymq_broker.capture.options import HOLDER, CaptureOptions
from ferrymq_broker.capture.partition_feed import PartitionFeed
from ferrymq_broker.capture.process import WriterProcess
from ferrymq_broker.capture.release import release
from ferrymq_broker.capture.state import (
    CapturedPart,
    CapturedStream,
    CaptureFigures,
    Delay,
    StreamFigures,
)
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.names import DEFAULT_SPACE

# Seconds between two looks for new records.
LOOK: Final = 0.25


class CaptureService:
    """The capture of the streams of `broker` whose policy says so. `now` is the clock of passes.

    `start` is called within a pass, when all nodes exist; `close` when no client is connected.
    """

    def __init__(self, broker: Broker, options: CaptureOptions, now: Callable[[], float]) -> None:
        self._broker = broker
        self._options = options
        self._now = now
        # All streams, and the captured ones.
        self._nodes: dict[Stream, str] = {}
        self._streams: dict[Stream, CapturedStream] = {}
        self._by_id: dict[int, CapturedStream] = {}
        # The sums of streams that are not captured any more, by virtual host.
        self._past: dict[str, StreamFigures] = {}
        self._next_id = 1
        self._writer: WriterProcess | None = None
        self._starts = 0
        self._turn = 0
        self._wake = asyncio.Event()
        self._ending = False
        self._flushing = False
        self._flushed = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Hold the streams to be captured, and begin."""
        for name, space in self._broker.spaces.items():
            space.on_change.append(self._on_change)
            for node in space.nodes.values():
                if isinstance(node, Stream):
                    self._nodes[node] = name
        self._review()
        self._task = asyncio.create_task(self._run())

    def figures(self) -> CaptureFigures:
        """Return the figures of capture."""
        return CaptureFigures(
            self._writer is not None,
            self._starts,
            [each.figures() for each in self._streams.values()],
            list(self._past.values()),
        )

    @property
    def pid(self) -> int | None:
        """The id of the process that writes files; None if it is not running."""
        return None if self._writer is None else self._writer.pid

    # -- the end -----------------------------------------------------------------------------

    async def close(self, timeout: float) -> None:
        """Capture the remaining records and close all files, in at most `timeout` seconds. The next
        start captures the rest."""
        task = self._task
        if task is None:
            return
        self._task = None
        self._ending = True
        self._wake.set()
        if timeout > 0:
            await asyncio.wait((task,), timeout=timeout)
        if not task.done():
            log.warning("capture is not complete; the next start goes on with it")
            self.kill()
            task.cancel()
            await asyncio.wait((task,))
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("internal error", exc_info=error)

    def hurry(self) -> None:
        """End the wait of `close`."""
        if self._ending:
            self.kill()

    def _is_ending(self) -> bool:
        return self._ending

    def kill(self) -> None:
        """End capture at once, without writing more."""
        self._ending = True
        self._wake.set()
        if self._writer is not None:
            self._writer.kill()

    # -- which streams -----------------------------------------------------------------------

    def _on_change(self, node: Node, added: bool) -> None:
        if not isinstance(node, Stream):
            return
        if added:
            self._nodes[node] = node.space.name
            self._consider(node, node.space.name)
            return
        self._nodes.pop(node, None)
        self._forget(node)

    def _review(self) -> None:
        """Handle changes of policies and new partitions. Called in a pass."""
        for stream, space in list(self._nodes.items()):
            self._consider(stream, space)
        for each in self._streams.values():
            if each.open:
                self._grow(each)
                if each.stream.holds.find(HOLDER) is None:
                    self._hold_again(each)

    def _consider(self, stream: Stream, space: str) -> None:
        wanted = stream.policy.capture and stream.store_id != 0
        if not wanted:
            if stream in self._streams:
                self._forget(stream)
            release(stream)
        elif stream not in self._streams:
            if not self._hold(stream):
                return
            folder = stream_folder(stream.address)
            if space != DEFAULT_SPACE:
                # No folder of a stream begins with "@".
                folder = f"@{stream_folder(space)}/{folder}"
            captured = CapturedStream(
                self._next_id, space, stream, f"{self._options.directory}/{folder}"
            )
            self._next_id += 1
            self._streams[stream] = captured
            self._by_id[captured.id] = captured
            self._wake.set()

    def _hold(self, stream: Stream) -> bool:
        """Hold a stream from its first record on, or keep its earlier hold."""
        if stream.holds.find(HOLDER) is not None:
            return True
        offsets = {int(partition.number): int(partition.log.first) for partition in stream.here()}
        try:
            stream.holds.move(HOLDER, offsets)
        except BrokerError as error:
            log.error("a stream cannot be captured", stream=stream.address, reason=str(error))
            return False
        return True

    def _hold_again(self, each: CapturedStream) -> None:
        """Hold a stream again after its hold was released by management."""
        log.warning(
            "the hold of capture was released; the stream is held again",
            stream=each.stream.address,
        )
        offsets = {
            number: max(part.closed, int(part.feed.partition.log.first))
            for number, part in enumerate(each.parts)
            if not each.stream.partitions[number].elsewhere
        }
        try:
            each.stream.holds.move(HOLDER, offsets)
        except BrokerError as error:
            log.error("a stream is not held", stream=each.stream.address, reason=str(error))

    def _forget(self, stream: Stream) -> None:
        captured = self._streams.pop(stream, None)
        if captured is None:
            return
        del self._by_id[captured.id]
        figures = captured.figures()
        self._past[captured.space] = figures.after(self._past.get(captured.space))
        if self._writer is not None and captured.asked:
            self._writer.send(frame(DROP, {"id": captured.id}))

    # -- the process -------------------------------------------------------------------------

    async def _run(self) -> None:
        delay = Delay()
        while not self._ending:
            if not self._streams:
                await self._wait(LOOK)
                self._look()
                continue
            files = sum(each.files for each in self._streams.values())
            try:
                writer = await WriterProcess.start(self._options)
            except OSError as error:
                seconds = delay.put_off(self._now())
                log.error("capture cannot start its process", reason=str(error), seconds=seconds)
                await self._pause(seconds)
                continue
            self._writer = writer
            self._starts += 1
            log.info(
                "capture begins",
                directory=self._options.directory,
                streams=len(self._streams),
                process=writer.pid,
            )
            try:
                await self._serve(writer)
            finally:
                self._writer = None
                for each in self._streams.values():
                    each.open = False
                    each.asked = False
                if not self._flushed:
                    # The process has ended, or has to be killed.
                    writer.kill()
                status = await writer.end()
            if self._is_ending():
                return
            if sum(each.files for each in self._streams.values()) > files:
                delay.reset()
            seconds = delay.put_off(self._now())
            log.error("the process of capture has ended", status=status, seconds=seconds)
            await self._pause(seconds)

    async def _serve(self, writer: WriterProcess) -> None:
        listener = asyncio.create_task(self._listen(writer))
        try:
            looked = 0.0
            while not listener.done():
                now = self._now()
                if now >= looked + LOOK or now < looked:
                    looked = now
                    self._look()
                self._open_streams(writer)
                if writer.room and self._feed(writer):
                    # Let other tasks run.
                    await asyncio.sleep(0)
                    continue
                if self._ending:
                    if self._flushed:
                        return
                    if not self._flushing and self._is_read():
                        self._flushing = True
                        writer.send(frame(FLUSH))
                await self._wait(LOOK)
        finally:
            listener.cancel()
            await asyncio.wait((listener,))
            if not listener.cancelled() and (error := listener.exception()) is not None:
                log.error("internal error", exc_info=error)

    async def _listen(self, writer: WriterProcess) -> None:
        try:
            async for said in writer.lines():
                self._broker.begin_pass(self._now())
                try:
                    self._hear(writer, said)
                finally:
                    self._broker.finish_pass()
                    self._wake.set()
        finally:
            self._wake.set()

    def _look(self) -> None:
        self._broker.begin_pass(self._now())
        try:
            self._review()
        finally:
            self._broker.finish_pass()

    async def _wait(self, seconds: float) -> None:
        self._wake.clear()
        if self._ending and self._writer is None:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _pause(self, seconds: float) -> None:
        until = self._now() + seconds
        while not self._ending and (left := until - self._now()) > 0:
            await self._wait(min(left, LOOK))
            self._look()

    # -- to the process ----------------------------------------------------------------------

    def _open_streams(self, writer: WriterProcess) -> None:
        for each in self._streams.values():
            if each.asked or each.delay.until > self._now():
                continue
            each.asked = True
            fields: dict[str, object] = {
                "id": each.id,
                "stream": each.stream.address,
                "incarnation": str(each.stream.incarnation),
                "directory": each.directory,
            }
            writer.send(frame(OPEN, fields))

    def _feed(self, writer: WriterProcess) -> bool:
        """Send the next chunk, taking partitions in turn. Return whether there was one to read."""
        now = self._now()
        parts = [
            (each, number, part)
            for each in self._streams.values()
            if each.open
            for number, part in enumerate(each.parts)
        ]
        for step in range(len(parts)):
            turn = (self._turn + step) % len(parts)
            each, number, part = parts[turn]
            if part.feed.behind() <= 0 or part.delay.until > now:
                continue
            self._turn = turn + 1
            chunk = part.feed.read()
            if chunk:
                data = chunk_frame(each.id, number, part.epoch, chunk)
                writer.unanswered += len(data) - HEAD_BYTES
                writer.send(data)
            return True
        return False

    def _is_read(self) -> bool:
        """Return whether everything that can be captured now has been sent to the process."""
        now = self._now()
        for each in self._streams.values():
            if not each.open:
                if each.asked:
                    return False
                continue
            if any(part.feed.behind() > 0 and part.delay.until <= now for part in each.parts):
                return False
        return True

    # -- from the process --------------------------------------------------------------------

    def _hear(self, writer: WriterProcess, said: dict[str, Any]) -> None:
        kind = said["kind"]
        if kind == "taken":
            writer.unanswered -= said["bytes"]
            return
        if kind == "flushed":
            self._flushed = True
            return
        if kind == "waiting":
            log.warning(
                "another process captures to the directory; capture waits for its end",
                directory=self._options.directory,
            )
            return
        if kind == "ended":
            log.error("capture cannot be written", reason=said["reason"])
            return
        each = self._by_id.get(said["id"])
        if each is None:
            return
        if kind == "found":
            found = {int(number): offset for number, offset in said["next"].items()}
            reason = self._begin(each, found)
            if reason:
                writer.send(frame(DROP, {"id": each.id}))
                self._refuse(each, reason)
        elif kind == "refused":
            self._refuse(each, said["reason"])
        elif kind == "closed":
            self._closed(each, each.parts[said["partition"]], said)
        elif kind == "failed":
            self._failed(each, each.parts[said["partition"]], said)

    def _refuse(self, each: CapturedStream, reason: str) -> None:
        each.asked = False
        each.open = False
        each.failures += 1
        seconds = each.delay.put_off(self._now())
        tell = log.debug if reason == each.trouble else log.error
        each.trouble = reason
        tell("a stream cannot be captured", stream=each.stream.address, reason=reason)
        if seconds >= 60:
            # Log a lasting failure again at intervals.
            each.trouble = ""

    def _begin(self, each: CapturedStream, found: dict[int, int]) -> str:
        """Begin to read a stream after its last file. Return the reason if that is impossible."""
        stream = each.stream
        hold = stream.holds.find(HOLDER)
        if hold is None:
            # The hold was released by management.
            self._hold(stream)
            hold = stream.holds.find(HOLDER)
        starts: dict[int, int] = {}
        for number, partition in enumerate(stream.partitions):
            first, next = int(partition.log.first), int(partition.log.next)
            if partition.elsewhere:
                # Its broker captures it.
                starts[number] = 0
                continue
            filed = found.get(number, 0)
            if filed > next:
                return (
                    f"{each.directory} has records of partition {number} up to {filed - 1}, "
                    f"but the stream ends at {next - 1}. An older store may have been "
                    "restored. Move the folder away, and capture begins again"
                )
            start = max(filed, 0 if hold is None else hold.offsets.get(number, 0))
            if start < first:
                if number in found:
                    log.error(
                        "records were dropped before they were captured",
                        stream=stream.address,
                        partition=number,
                        first=start,
                        next=first,
                    )
                start = first
            else:
                # Records before `begun` were purged, or came before capture began.
                begun = 0 if hold is None else hold.begun.get(number, 0)
                missing = max(filed, begun)
                if number in found and missing < start:
                    log.warning(
                        "capture files are missing that existed before",
                        stream=stream.address,
                        partition=number,
                        first=missing,
                        next=start,
                    )
            starts[number] = min(start, next)
        stream.holds.move(
            HOLDER, {int(each.number): starts[int(each.number)] for each in stream.here()}
        )
        before = each.parts
        each.parts = []
        for number, start in starts.items():
            part = CapturedPart(PartitionFeed(stream.partitions[number], start))
            if number < len(before):
                part.feed.lost = before[number].feed.lost
                part.epoch = before[number].epoch + 1
            each.parts.append(part)
        each.open = True
        each.trouble = ""
        each.delay.reset()
        log.info(
            "a stream is captured",
            stream=stream.address,
            directory=each.directory,
            records=each.lag(),
        )
        return ""

    def _grow(self, each: CapturedStream) -> None:
        partitions = each.stream.partitions
        while len(each.parts) < len(partitions):
            partition = partitions[len(each.parts)]
            each.parts.append(CapturedPart(PartitionFeed(partition, partition.log.first)))

    def _closed(self, each: CapturedStream, part: CapturedPart, said: dict[str, Any]) -> None:
        each.files += 1
        each.records += said["records"]
        each.bytes += said["bytes"]
        part.delay.reset()
        part.closed = said["next"]
        log.debug(
            "a file is captured",
            stream=each.stream.address,
            file=said["file"],
            records=said["records"],
            bytes=said["bytes"],
        )
        number = said["partition"]
        if each.stream.holds.find(HOLDER) is None:
            # Hold all partitions: a hold of only this one would hide that the hold was released.
            self._hold_again(each)
        # After a purge the hold is already after these records.
        elif part.closed > each.stream.partitions[number].log.first:
            each.stream.holds.move(HOLDER, {number: part.closed})

    def _failed(self, each: CapturedStream, part: CapturedPart, said: dict[str, Any]) -> None:
        if said["epoch"] != part.epoch:
            return
        each.failures += 1
        part.epoch += 1
        part.feed.position = said["next"]
        seconds = part.delay.put_off(self._now())
        log.error(
            "a file cannot be captured; it is tried again",
            stream=each.stream.address,
            partition=said["partition"],
            reason=said["reason"],
            seconds=seconds,
        )
