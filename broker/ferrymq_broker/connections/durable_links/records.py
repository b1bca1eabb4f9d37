"""Records of termini and of their unsettled deliveries in the store.

A `TERMINUS` is a map: the key of the link, its terminus, and when its expiry time began. A
`DELIVERY` is a map, too. For a target it has the `tag` and the `state` that the client was told,
encoded. For a source it has the `tag`, the `queue` and the `sequence` of the entry, whether it was
the `first` delivery of the entry, and the milliseconds that were `left` until its expiry: from
these the same bytes can be made again. Records of earlier versions have the `time` of sending
instead.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.map_values import encode_map
from ferrymq_codec import codes
from ferrymq_codec.compound import descriptor_bytes
from ferrymq_codec.errors import CodecError
from ferrymq_codec.reader import Reader
from ferrymq_codec.scalars import Described
from ferrymq_codec.value_reader import read_value
from ferrymq_types import descriptors
from ferrymq_types.messaging import Accepted, Modified, Rejected, Released, Source, Target
from ferrymq_types.registry import typed
from ferrymq_types.unions import Outcome

# The state of most deliveries.
_ACCEPTED: Final = descriptor_bytes(descriptors.ACCEPTED) + bytes((codes.LIST0,))


def encode_outcome(outcome: Outcome) -> bytes:
    """Encode an outcome as it goes over the wire."""
    if isinstance(outcome, Accepted):
        return _ACCEPTED
    w = BytesWriter()
    outcome.encode(w)
    return w.getvalue()


def decode_outcome(value: object) -> Outcome:
    """Decode what `encode_outcome` has encoded. Raises `StoreDamaged`."""
    found = _decode(value)
    if isinstance(found, Accepted | Rejected | Released | Modified):
        return found
    raise StoreDamaged("the stored state of a delivery is not an outcome")


def encode_terminus(terminus: Source | Target) -> bytes:
    """Encode a source or a target as it goes over the wire."""
    w = BytesWriter()
    terminus.encode(w)
    return w.getvalue()


def decode_source(value: object) -> Source:
    """Decode a source that `encode_terminus` has encoded. Raises `StoreDamaged`."""
    found = _decode(value)
    if isinstance(found, Source):
        return found
    raise StoreDamaged("the record of a terminus has no source")


def decode_target(value: object) -> Target:
    """Decode a target that `encode_terminus` has encoded. Raises `StoreDamaged`."""
    found = _decode(value)
    if isinstance(found, Target):
        return found
    raise StoreDamaged("the record of a terminus has no target")


def _decode(value: object) -> object:
    if not isinstance(value, bytes):
        return None
    try:
        reader = Reader(value)
        found = read_value(reader, "record")
        return typed(found) if isinstance(found, Described) else found
    except CodecError as error:
        raise StoreDamaged(f"the record of a terminus cannot be read: {error}") from error


def encode_received(tag: bytes, outcome: Outcome) -> bytes:
    """Encode a delivery to a target, with the outcome that its sender is told."""
    return encode_map({"tag": tag, "state": encode_outcome(outcome)})


def encode_sent(tag: bytes, queue: i64, sequence: i64, first: bool, left: i64) -> bytes:
    """Encode a delivery of a source, for an entry of a queue."""
    return encode_map(
        {
            "tag": tag,
            "queue": int(queue),
            "sequence": int(sequence),
            "first": first,
            "left": int(left),
        }
    )


def read_tag(fields: dict[str, object], id: int) -> bytes:
    """Read the tag of a delivery. Raises `StoreDamaged`."""
    tag = fields.get("tag")
    if not isinstance(tag, bytes):
        raise StoreDamaged(f"a stored delivery of terminus {id} has no tag")
    return tag
