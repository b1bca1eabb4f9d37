"""`ferrymq trace` over anything: never raises, says nothing that a terminal obeys, and says the
same however the bytes were cut."""

from __future__ import annotations

import io
import json
from random import Random

from ferrymq.tracing.trace import Trace
from ferrymq_broker.cli.trace.dumps import NotReadableError, read
from tests.fuzz.mutation.frames import mutate_stream
from tests.fuzz.mutation.plain import mutate_bytes
from tests.fuzz.pool import AMQP, SASL


def one(data: bytes) -> None:
    """The first byte says how it is shown; what follows is a file."""
    if not data:
        return
    full, as_json = bool(data[0] & 1), bool(data[0] & 2)
    told = Trace("x", full, as_json)
    try:
        pieces = list(read(io.BytesIO(data[1:])))
    except NotReadableError:
        return
    lines = []
    for arrow, piece in pieces:
        lines += told.feed(arrow, piece, 1.5)
    lines += told.finish(1.5)
    for line in lines:
        assert all(part.isprintable() for part in line.split("\n")), line
        if as_json:
            json.loads(line)
    if len({arrow for arrow, _ in pieces}) == 1:
        again = Trace("x", full, as_json)
        random = Random(data[0])
        stream = b"".join([piece for _, piece in pieces])
        found = []
        at = 0
        while at < len(stream):
            size = random.choice((1, 7, 8, 9, 100, 1000))
            found += again.feed(pieces[0][0], stream[at : at + size], 1.5)
            at += size
        assert [*found, *again.finish(1.5)] == lines


def seeds() -> list[bytes]:
    """Streams and dumps."""
    stream = b"".join(SASL[:12] + AMQP[:10])
    dumped = b"\n".join([frame.hex(" ").encode() for frame in AMQP[:6]])
    found = [bytes((how,)) + stream for how in range(4)]
    found += [b"\1" + frame for frame in AMQP] + [b"\2" + frame for frame in SASL]
    found += [b"\0" + dumped, b"\0> " + dumped.replace(b"\n", b"\n< ")]
    found.append(b"\0" + b"0000: 414d 5150 0001 0000  AMQP....\n0008\n")
    found.append(b"\0\xd4\xc3\xb2\xa1")
    return found


def mutate(random: Random, data: bytes) -> bytes:
    """Other frames, or bytes."""
    if random.random() < 0.3:
        return (data[:1] or b"\0") + mutate_bytes(
            random, data[1:], (b"<", b">", b"\n", b"00", b"|")
        )
    return (data[:1] or b"\0") + mutate_stream(random, data[1:], AMQP + SASL)
