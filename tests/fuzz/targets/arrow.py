"""Messages as columns: whatever they are they are rows, and so are those beside them."""

from __future__ import annotations

from random import Random

from ferrymq import Message
from ferrymq.arrow import METADATA, RAW, RecordDecoder
from ferrymq.chunks import Chunk, ChunkBuilder
from ferrymq_codec.containers import PairMap
from ferrymq_codec.errors import DecodeError
from ferrymq_types.messaging import AmqpValue
from tests.fuzz.mutation.values import mutate_values
from tests.fuzz.pool import MESSAGES, message

_ALL = (*METADATA, RAW)
_EXACT = ("body", "partitionKey", "applicationProperties")
# Values whose texts are rendered, so that they share their room with those of any other message.
_GOOD = message(AmqpValue(value=["good", {"a": 1}]))
_ROW = RecordDecoder(_ALL).decode_messages([_GOOD]).to_pylist()[0]
# Bytes of columns for each byte of the messages, and at all.
_MOST, _SPARE = 64, 8 << 20


def one(data: bytes) -> None:
    """Two rows of them, all columns and one column alone, with good ones on either side."""
    if not data:
        return
    payload = data[1:]
    payloads = [_GOOD, payload, payload, _GOOD]
    batch = RecordDecoder(_ALL).decode_messages(payloads)
    batch.validate(full=True)
    rows = batch.to_pylist()
    assert rows[0] == rows[3] == _ROW
    assert batch.slice(1, 1).equals(batch.slice(2, 1)) or _is_late(rows[1], rows[2])
    assert rows[1]["raw"] == payload
    kind = rows[1]["bodyType"]
    assert kind in (None, "data", "value", "sequence", "malformed")
    assert kind != "malformed" or rows[1]["body"] == payload
    try:
        Message.decode(payload)
    except DecodeError:
        assert kind == "malformed"
    assert batch.nbytes <= _MOST * sum(map(len, payloads)) + _SPARE
    name = _ALL[data[0] % len(_ALL)]
    alone = RecordDecoder([name]).decode_messages(payloads)
    alone.validate(full=True)
    if kind != "malformed":
        assert alone.column(0).slice(1, 1).equals(batch.column(name).slice(1, 1))
    _in_chunk(payload, name)
    RecordDecoder(_EXACT, verbatim=True).decode_messages(payloads).validate(full=True)


def _is_late(row: dict[str, object], other: dict[str, object]) -> bool:
    """Whether there was no room for the second, which is long, behind the first."""
    return other["bodyType"] == "malformed" and row["bodyType"] != "malformed"


def _in_chunk(payload: bytes, name: str) -> None:
    builder = ChunkBuilder()
    for offset, format in enumerate((0, 7)):
        builder.add(payload, 1000, offset, format)
    batch = RecordDecoder([name]).decode(Chunk(builder.build(2, 2)))
    batch.validate(full=True)
    assert batch.num_rows == 2


def _nested(depth: int) -> bytes:
    """Maps as keys of maps: each has twice the backslashes of the one inside."""
    value: object = "x"
    for _ in range(depth):
        value = PairMap([(value, 1)])
    return message(AmqpValue(value=value))


def _described(descriptor: int, count: int) -> bytes:
    """An array of many zeros with a descriptor of so many bytes."""
    name = b"\xb3" + descriptor.to_bytes(4, "big") + b"s" * descriptor
    body = count.to_bytes(4, "big") + b"\x00" + name + b"\x43"
    return b"\x00\x53\x77\xf0" + len(body).to_bytes(4, "big") + body


def seeds() -> list[bytes]:
    """Messages of every section, and some whose JSON is far longer than they are."""
    bombs = [_nested(12), _nested(30), _described(10_000, 60_000), _described(1, 60_000)]
    return [bytes((column % 256,)) + each for column, each in enumerate([*MESSAGES, _GOOD, *bombs])]


def mutate(random: Random, data: bytes) -> bytes:
    """Other sections, other values in them, or another column."""
    if random.random() < 0.1:
        return data + random.choice(MESSAGES)
    if random.random() < 0.1:
        return bytes((random.randrange(256),)) + data[1:]
    return (data[:1] or b"\0") + mutate_values(random, data[1:])


# What pyarrow loads at its first use takes seconds on a busy machine: no input should pay for it.
one(b"\0" + _GOOD)
