"""Values that are maps: they are encoded as AMQP maps, so that versions can add and remove
fields."""

from __future__ import annotations

from collections.abc import Mapping

from librt.strings import BytesWriter

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_codec.value_reader import read_value
from ferrymq_codec.value_writer import write_value


def encode_map(fields: Mapping[str, object]) -> bytes:
    """Encode fields, whose values have AMQP types."""
    w = BytesWriter()
    write_value(w, dict(fields), "record")
    return w.getvalue()


def decode_map(value: bytes) -> dict[str, object]:
    """Decode what `encode_map` made. Raises `StoreDamaged` for anything else."""
    try:
        reader = Reader(value)
        fields = read_value(reader, "record")
    except DecodeError as error:
        raise StoreDamaged(f"the value of a record is not a map: {error}") from error
    if not isinstance(fields, dict) or reader.remaining():
        raise StoreDamaged("the value of a record is not a map")
    return {str(key): value for key, value in fields.items()}
