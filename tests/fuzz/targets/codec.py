"""The decoders of every place, and what they decode encoded again.

The first byte says which decoder. Only `DecodeError` may leave one. What it gives can be encoded,
and that means the same: decoded and encoded once more, it is the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from librt.strings import BytesWriter

from ferrymq_codec.composite import Composite
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_codec.values import (
    read_annotations,
    read_array,
    read_map,
    read_multiple,
    read_string_map,
    read_symbol_map,
    read_value,
    write_annotations,
    write_array,
    write_map,
    write_multiple,
    write_string_map,
    write_symbol_map,
    write_value,
)
from ferrymq_types import unions
from ferrymq_types.registry import decode_any
from tests.fuzz.mutation.frames import split
from tests.fuzz.mutation.values import mutate_values
from tests.fuzz.pool import AMQP, MESSAGES, SASL

_Encode = Callable[[BytesWriter, object, str], None]


def _encode_any(w: BytesWriter, value: object, field: str) -> None:
    if isinstance(value, Composite):
        value.encode(w)
    else:
        write_value(w, value, field)


_PLACES: tuple[tuple[Callable[[Reader, str], object], _Encode], ...] = (
    (read_value, write_value),
    (decode_any, _encode_any),
    (unions.decode_frame, _encode_any),
    (unions.decode_sasl_frame, _encode_any),
    (unions.decode_section, _encode_any),
    (unions.decode_source, _encode_any),
    (unions.decode_target, _encode_any),
    (unions.decode_delivery_state, _encode_any),
    (unions.decode_outcome, _encode_any),
    (unions.decode_filter, _encode_any),
    (unions.decode_lifetime_policy, _encode_any),
    (unions.decode_message_id, unions.encode_message_id),  # type: ignore[assignment]
    (read_map, write_map),  # type: ignore[assignment]
    (read_symbol_map, write_symbol_map),  # type: ignore[assignment]
    (read_annotations, write_annotations),  # type: ignore[assignment]
    (read_string_map, write_string_map),  # type: ignore[assignment]
    (read_array, write_array),  # type: ignore[assignment]
    (lambda r, field: read_multiple(r, "symbol", field),
     lambda w, value, field: write_multiple(w, "symbol", value, field)),  # type: ignore[arg-type]
)  # fmt: skip


def one(data: bytes) -> None:
    """Decode; if that works, encode, decode and encode again."""
    if not data:
        return
    decode, encode = _PLACES[data[0] % len(_PLACES)]
    _skip(data)
    reader = Reader(data, 1, len(data))
    try:
        value = decode(reader, "value")
    except DecodeError as error:
        assert 0 <= error.offset <= len(data), error
        assert error.field
        return
    assert 1 < reader.pos <= len(data)
    first = _encoded(encode, value)
    again = decode(Reader(first, 0, len(first)), "value")
    assert _encoded(encode, again) == first
    assert len(repr(value)) >= 0


def _skip(data: bytes) -> None:
    reader = Reader(data, 1, len(data))
    try:
        while reader.remaining():
            before = reader.pos
            reader.skip_value("value")
            assert before < reader.pos <= len(data)
    except DecodeError:
        pass


def _encoded(encode: _Encode, value: object) -> bytes:
    w = BytesWriter()
    encode(w, value, "value")
    return w.getvalue()


def seeds() -> list[bytes]:
    """Every performative and every message, where it belongs and where it does not."""
    bodies = [frame[8:] for stream in AMQP for frame in split(stream)]
    found = [bytes((place,)) + body for body in bodies for place in (0, 1, 2)]
    found += [b"\3" + frame[8:] for frame in SASL]
    found += [bytes((place,)) + message for message in MESSAGES for place in (0, 1, 4)]
    for place in range(len(_PLACES)):
        found += [bytes((place,)) + value for value in _VALUES]
    return found


def mutate(random: Random, data: bytes) -> bytes:
    """Another place, or another value."""
    if random.random() < 0.1 or not data:
        return bytes((random.randrange(len(_PLACES)),)) + data[1:]
    return data[:1] + mutate_values(random, data[1:])


_VALUES = (
    b"\x40",
    b"\xc1\x09\x04\xa3\x01a\x43\xa3\x01b\x41",
    b"\xe0\x05\x02\xa3\x01a\x01b",
    b"\xf0\0\0\0\x07\0\0\0\x02\x50\1\2",
    b"\xa3\x04copy",
    b"\0\xa3\x03a:b\xc0\x02\x01\x45",
    b"\x98" + bytes(16),
)
