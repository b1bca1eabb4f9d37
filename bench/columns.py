"""The speed of converting messages to columns and rows to messages: `python -m bench.columns`.

The figure is processor time per record of 1 KiB, in the best round; see `ferrymq.arrow`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from ferrymq.arrow import DEFAULT, METADATA, POSITION, RAW, MessageEncoder, RecordDecoder
from ferrymq.arrow.wire import scanner
from ferrymq.chunks import Chunk, ChunkBuilder
from ferrymq.message import Message

RECORDS = 100_000
BODY_BYTES = 1024
CHUNK_BYTES = 8 << 20
ROUNDS = 5
START = 1_767_323_045_678

READ = {
    "position": POSITION,
    "body": ("body",),
    "body, position": ("body", *POSITION),
    "default": DEFAULT,
    "all metadata": METADATA,
    "all, raw": (*METADATA, RAW),
    "raw": (RAW,),
}
WRITTEN = {
    "body": ("body",),
    "default": ("body", "messageId", "subject", "contentType", "applicationProperties"),
}


def chunks() -> list[Chunk]:
    """Return records like those of a shop, in chunks as a broker sends them."""
    body = random.Random(7).randbytes(BODY_BYTES)
    builder = ChunkBuilder()
    made: list[Chunk] = []
    for offset in range(RECORDS):
        message = Message(
            body,
            durable=True,
            message_id=f"order-{offset:08d}",
            subject="orders.created",
            content_type="application/json",
            creation_time=START + offset,
            application_properties={"region": "eu-west-1", "attempt": offset % 7, "tenant": "acme"},
        )
        builder.add(message.encode(), START + offset, offset, 0)
        if builder.size > CHUNK_BYTES:
            made.append(Chunk(builder.build(offset + 1, RECORDS)))
    if builder.count:
        made.append(Chunk(builder.build(RECORDS, RECORDS)))
    return made


def nanoseconds(work: Callable[..., object], inputs: Sequence[object]) -> float:
    """Return the nanoseconds per record in the best round."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for each in inputs:
            work(each)
        best = min(best, time.process_time() - start)
    return best / RECORDS * 1e9


def main() -> None:
    """Measure and print the figures."""
    compiled = not (scanner.__file__ or "").endswith(".py")
    print(f"{'compiled' if compiled else 'interpreted'}, {RECORDS} records of {BODY_BYTES} bytes")
    records = chunks()
    for name, columns in READ.items():
        decoder = RecordDecoder(columns, "orders::0", 0)
        print(f"read {name:16} {nanoseconds(decoder.decode, records):8.0f} ns")
    for name, columns in WRITTEN.items():
        batches = [RecordDecoder(columns).decode(chunk) for chunk in records]
        encoder = MessageEncoder(batches[0].schema)
        print(f"write {name:15} {nanoseconds(encoder.encode, batches):8.0f} ns")


if __name__ == "__main__":
    main()
