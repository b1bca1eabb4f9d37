"""The work of the process that writes files: turns chunks into files, and reports them.

Everything here is synchronous, with the time as an argument; `writer_main` has the pipes.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ferrymq.arrow import RecordDecoder
from ferrymq.capture import CaptureError, CaptureName, LocalPlace, claim, coverage
from ferrymq.capture.files import CaptureFile, capture_columns
from ferrymq.capture.names import hour_of, parse_name
from ferrymq.chunks import Chunk
from ferrymq_broker.capture.frames import CHUNK, DROP, FLUSH, OPEN, line, split_chunk
from ferrymq_broker.capture.options import CaptureOptions

# The most bytes of columns in memory, of all files. Above it, the largest is written out.
_PENDING: Final = 64 * 1024 * 1024


class _Part:
    """A partition: its open file, and the offset after the last file.

    Chunks of the epoch `dead`, which has failed, or of an earlier one are ignored.
    """

    def __init__(self, number: int, decoder: RecordDecoder) -> None:
        self.number = number
        self.decoder = decoder
        self.file: CaptureFile | None = None
        self.next = 0
        self.epoch = -1
        self.dead = -1
        # Bytes of messages in the file, and the time at which it has to be closed.
        self.bytes = 0
        self.due = 0.0


class _Stream:
    def __init__(self, id: int, name: str, incarnation: str, place: LocalPlace) -> None:
        self.id = id
        self.name = name
        self.incarnation = incarnation
        self.place = place
        self.parts: dict[int, _Part] = {}


class FileWriter:
    """The writer of files: writes the records of frames, and calls `say` with lines for the
    broker."""

    def __init__(self, options: CaptureOptions, say: Callable[[bytes], object]) -> None:
        self._options = options
        self._say = say
        self._streams: dict[int, _Stream] = {}
        self._columns = capture_columns(options.raw)

    def handle(self, kind: int, body: bytes, now: float) -> None:
        """Handle a frame at the time `now`, in seconds."""
        if kind == CHUNK:
            self._take(body, now)
        elif kind == OPEN:
            self._open(**json.loads(body))
        elif kind == DROP:
            stream = self._streams.pop(json.loads(body)["id"], None)
            for part in [] if stream is None else list(stream.parts.values()):
                assert stream is not None
                self._close(stream, part)
        elif kind == FLUSH:
            for stream, part in self._open_parts():
                self._close(stream, part)
            self._say(line("flushed"))

    def tick(self, now: float) -> float | None:
        """Close files that are old enough. Return the seconds until the next one is; None if there
        is no file."""
        soonest: float | None = None
        for stream, part in self._open_parts():
            if part.due <= now:
                self._close(stream, part)
            elif soonest is None or part.due < soonest:
                soonest = part.due
        return None if soonest is None else soonest - now

    def _open_parts(self) -> Iterator[tuple[_Stream, _Part]]:
        for stream in self._streams.values():
            for part in list(stream.parts.values()):
                if part.file is not None:
                    yield stream, part

    # -- streams ---------------------------------------------------------------------------

    def _open(self, id: int, stream: str, incarnation: str, directory: str) -> None:
        place = LocalPlace(Path(directory))
        try:
            claim(place, stream, incarnation)
            found: list[CaptureName] = []
            for path in list(place.paths()):
                name = parse_name(path)
                if name is not None:
                    found.append(name)
                elif path.rpartition("/")[2].startswith("_tmp-"):
                    place.remove(path)
            covered = coverage(found)
            # The process that renamed the last files may have ended before it synced the folders.
            place.sync_folders({max(each.files, key=_last).folder for each in covered.values()})
        except CaptureError as error:
            self._say(line("refused", id=id, reason=str(error)))
            return
        except OSError as error:
            self._say(line("refused", id=id, reason=reason_of(error)))
            return
        self._streams[id] = _Stream(id, stream, incarnation, place)
        self._say(line("found", id=id, next={str(p): each.next for p, each in covered.items()}))

    # -- chunks ----------------------------------------------------------------------------

    def _take(self, body: bytes, now: float) -> None:
        id, number, epoch, data = split_chunk(body)
        stream = self._streams.get(id)
        if stream is not None:
            part = stream.parts.get(number)
            if part is None:
                decoder = RecordDecoder(self._columns, address=stream.name, partition=number)
                part = _Part(number, decoder)
                stream.parts[number] = part
            if epoch > part.dead:
                part.epoch = epoch
                chunk = Chunk(data)
                try:
                    self._add(stream, part, chunk, now)
                except OSError as error:
                    self._fail(stream, part, error)
                self._relieve()
        self._say(line("taken", bytes=len(body)))

    def _add(self, stream: _Stream, part: _Part, chunk: Chunk, now: float) -> None:
        if part.file is None:
            part.next = int(chunk.first)
        elif part.file.next != chunk.first:
            # Records in between were dropped. A file must have consecutive offsets.
            self._finish(stream, part)
            part.next = int(chunk.first)
        batch = part.decoder.decode(chunk)
        count = len(chunk)

        def hour_at(i: int) -> int:
            return hour_of(chunk.time(i))

        at = 0
        while at < count:
            hour = hour_at(at)
            if part.file is not None and part.file.hour != hour:
                self._finish(stream, part)
            if part.file is None:
                part.file = CaptureFile(
                    stream.place,
                    batch.schema,
                    hour,
                    part.number,
                    chunk.offset(at),
                    stream=stream.name,
                    incarnation=stream.incarnation,
                )
                part.bytes = 0
                part.due = now + self._options.max_age / 1000
            end = min(count, at + self._options.max_records - part.file.rows)
            if hour_at(end - 1) != hour:
                end = bisect_right(range(count), hour, at, end, key=hour_at)
            part.file.add(batch.slice(at, end - at))
            # A part of a chunk counts with the chunk's average size.
            part.bytes += (len(chunk.data) - int(chunk.payloads_at)) * (end - at) // count
            at = end
            if part.file.rows >= self._options.max_records or part.bytes >= self._options.max_bytes:
                self._finish(stream, part)

    def _relieve(self) -> None:
        """Write the largest file to disk if the columns of all files take too much memory."""
        parts = [
            (part.file.pending, stream, part) for stream, part in self._open_parts() if part.file
        ]
        if sum(pending for pending, _, _ in parts) < _PENDING:
            return
        _, stream, part = max(parts, key=lambda each: each[0])
        assert part.file is not None
        try:
            part.file.write_out()
        except OSError as error:
            self._fail(stream, part, error)

    # -- files -----------------------------------------------------------------------------

    def _close(self, stream: _Stream, part: _Part) -> None:
        try:
            self._finish(stream, part)
        except OSError as error:
            self._fail(stream, part, error)

    def _finish(self, stream: _Stream, part: _Part) -> None:
        file = part.file
        if file is None:
            return
        name = file.finish()
        part.file = None
        part.next = name.next
        self._say(
            line(
                "closed",
                id=stream.id,
                partition=part.number,
                epoch=part.epoch,
                next=name.next,
                records=file.rows,
                bytes=stream.place.size(name.path),
                file=name.path,
            )
        )

    def _fail(self, stream: _Stream, part: _Part, error: OSError) -> None:
        file = part.file
        if file is not None:
            part.file = None
            file.abandon()
            # The file may have been renamed before the failure: remove it. If that raises
            # `OSError`,
            # the process ends, and the next one looks which files there are.
            stream.place.remove(file.named().path)
        part.dead = part.epoch
        self._say(
            line(
                "failed",
                id=stream.id,
                partition=part.number,
                epoch=part.epoch,
                next=part.next,
                reason=reason_of(error),
            )
        )


def _last(name: CaptureName) -> int:
    return name.last


def reason_of(error: OSError) -> str:
    """Return the text of an error, with the name of the file."""
    reason = error.strerror or str(error)
    if isinstance(error.filename, str | bytes):
        return f"{os.fsdecode(error.filename)}: {reason}"
    return reason
