"""A stream of headers and frames taken apart, changed, and put together again, well formed or
nearly so (AMQP 1.0 §2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.fuzz.mutation.plain import mutate_bytes
from tests.fuzz.mutation.values import mutate_values

_LARGEST = 1 << 20
HEADERS = tuple(b"AMQP" + bytes((id, 1, 0, 0)) for id in (0, 2, 3, 1))


def split(stream: bytes) -> list[bytes]:
    """The headers and frames of a stream; the last part may be neither."""
    parts = []
    at = 0
    while at < len(stream):
        size = 8
        if not stream.startswith(b"AMQP", at):
            size = int.from_bytes(stream[at : at + 4], "big")
            if not 8 <= size <= _LARGEST:
                size = len(stream)
        parts.append(stream[at : at + size])
        at += size
    return parts


def mutate_stream(random: Random, stream: bytes, pool: Sequence[bytes]) -> bytes:
    """One to four changes of whole frames or inside one; frames of `pool` may be put in."""
    parts = split(stream)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(len(parts) + 1)
        what = random.randrange(12)
        if what < 3 or not parts:
            parts.insert(at, random.choice(pool))
            continue
        place = random.randrange(len(parts))
        if what == 3:
            parts.pop(place)
        elif what == 4:
            parts.insert(at, parts[place])
        elif what == 5:
            other = random.randrange(len(parts))
            parts[place], parts[other] = parts[other], parts[place]
        elif what == 6:
            parts = parts[:place] + parts[place : place + 2] * random.choice((2, 5, 40))
        elif what == 7:
            parts[place] = mutate_bytes(random, parts[place])
        else:
            parts[place] = mutate_frame(random, parts[place])
    return b"".join(parts)


def mutate_frame(random: Random, frame: bytes) -> bytes:
    """Another content with a size that fits it; rarely another channel, type or data offset."""
    if len(frame) < 8 or frame.startswith(b"AMQP"):
        return random.choice(HEADERS)
    doff, kind, channel = frame[4], frame[5], frame[6:8]
    body = frame[max(8, 4 * doff) :]
    what = random.randrange(20)
    if what == 0:
        channel = random.choice((b"\0\0", b"\0\1", b"\0\7", b"\0\x08", b"\xff\xff"))
    elif what == 1:
        kind = random.choice((0, 1, 2, 255))
    elif what == 2:
        doff = random.choice((0, 1, 2, 3, 10, 255))
    elif what == 3:
        body += random.randbytes(random.choice((1, 8, 200)))
    else:
        body = mutate_values(random, body)
    extended = bytes(max(0, 4 * doff - 8)) if doff < 20 else b""
    size = 8 + len(extended) + len(body)
    return size.to_bytes(4, "big") + bytes((doff, kind)) + channel + extended + body
