"""The reader of frames, wherever the transport has cut the bytes.

The first byte seeds the cuts. What is read is the same however the bytes were cut, and the same
as a plain reading of the specification; only `RemoteProtocolError` may leave it.
"""

from __future__ import annotations

from random import Random

from ferrymq.engine.input import FrameInput
from ferrymq.errors import RemoteProtocolError
from tests.fuzz.mutation.frames import mutate_stream
from tests.fuzz.pool import AMQP

_LIMIT = 512
_BROKEN = "broken"


def one(data: bytes) -> None:
    """Read the frames whole and in pieces."""
    if not data:
        return
    stream = data[1:]
    random = Random(data[0])
    expected = _reading(stream)
    assert _read([stream]) == expected
    pieces = []
    at = 0
    while at < len(stream):
        size = random.choice((1, 2, 7, 8, 9, 100))
        pieces.append(stream[at : at + size])
        at += size
    assert _read(pieces) == expected


def _read(pieces: list[bytes]) -> list[object]:
    source = FrameInput()
    found: list[object] = []
    given = 0
    taken = 0
    for piece in pieces:
        given += len(piece)
        if not source.feed(piece):
            assert source.held() <= given - taken
            continue
        try:
            while source.next_frame(_LIMIT, 0):
                reader = source.reader
                found.append((int(source.channel), source.data[reader.pos : reader.end]))
                taken += 8
        except RemoteProtocolError as error:
            assert error.condition == "amqp:connection:framing-error"
            assert source.held() == 0
            return [*found, _BROKEN]
    return found


def _reading(stream: bytes) -> list[object]:
    found: list[object] = []
    at = 0
    while len(stream) - at >= 8:
        size = int.from_bytes(stream[at : at + 4], "big")
        start = 4 * stream[at + 4]
        if not (8 <= start <= size <= _LIMIT) or stream[at + 5]:
            return [*found, _BROKEN]
        if len(stream) - at < size:
            break
        channel = int.from_bytes(stream[at + 6 : at + 8], "big")
        found.append((channel, stream[at + start : at + size]))
        at += size
    return found


def seeds() -> list[bytes]:
    """Some frames in a row."""
    frames = [frame for frame in AMQP if not frame.startswith(b"AMQP")]
    return [b"\1" + b"".join(frames[i : i + 4]) for i in range(0, len(frames), 4)]


def mutate(random: Random, data: bytes) -> bytes:
    """Other frames."""
    return (data[:1] or b"\0") + mutate_stream(random, data[1:], AMQP)
