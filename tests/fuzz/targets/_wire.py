"""Streams to an engine: two bytes that say how it is played, then what the peer sends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from tests.fuzz.mutation.frames import mutate_stream, split


def pieces(data: bytes) -> Iterator[tuple[bytes, float]]:
    """What arrives in one read each, and the time of it in seconds.

    The first byte says how the stream is cut: as the frames are, all at once, or anywhere. The
    second is the seed of the cuts, and of how much time goes by.
    """
    stream = data[2:]
    random = Random(data[1])
    now = 0.0
    how = data[0] & 3
    parts = [stream]
    if how < 2:
        parts = split(stream)
    elif how == 2:
        parts = []
        at = 0
        while at < len(stream):
            size = random.choice((1, 3, 8, 20, 100, 10_000))
            parts.append(stream[at : at + size])
            at += size
    for part in parts:
        if data[0] & 4:
            now += random.choice((0.0, 0.1, 5.0))
        yield part, now


def mutate_play(random: Random, data: bytes, pool: Sequence[bytes]) -> bytes:
    """Another way to play the same, or other frames."""
    if len(data) < 2:
        data = b"\0\0"
    if random.random() < 0.05:
        return random.randbytes(2) + data[2:]
    return data[:2] + mutate_stream(random, data[2:], pool)
