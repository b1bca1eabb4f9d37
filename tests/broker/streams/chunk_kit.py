"""Links that read chunks, and what has come over them."""

from __future__ import annotations

from ferrymq.chunks import CHUNK_FORMAT, Chunk
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq_codec.scalars import Symbol, UInt, ULong
from tests.broker.harness import Client, Receiver, text
from tests.broker.streams.kit import PLENTY, Start, read


def read_chunks(
    client: Client,
    address: str = "s::0",
    start: Start | None = "first",
    *,
    bytes: int | None = None,
    records: int | None = None,
    until: int | None = None,
    credit: int = PLENTY,
    selector: str | None = None,
    forgiving: bool = False,
    max_message_size: int = 0,
    more: dict[str, object] | None = None,
) -> Receiver:
    """A link that reads a partition in chunks of so many bytes or records."""
    limits: dict[Symbol, object] = {}
    if bytes is not None:
        limits[Symbol("bytes")] = ULong(bytes)
    if records is not None:
        limits[Symbol("records")] = UInt(records)
    properties: dict[str, object] = {"ferrymq:chunks": limits, **(more or {})}
    if until is not None:
        properties["ferrymq:until"] = until
    if forgiving:
        properties["ferrymq:on-trim"] = "continue"
    return read(
        client,
        address,
        start,
        credit=credit,
        selector=selector,
        properties=properties,
        max_message_size=max_message_size,
    )


def chunk_of(delivery: IncomingDelivery) -> Chunk:
    """What a delivery has."""
    assert delivery.message_format == CHUNK_FORMAT
    return Chunk(delivery.payload)


def chunks(receiver: Receiver) -> list[Chunk]:
    """What has come."""
    return [chunk_of(delivery) for delivery in receiver.deliveries]


def covered(receiver: Receiver) -> list[tuple[int, int]]:
    """The offsets that each chunk covers."""
    return [(int(chunk.first), int(chunk.next)) for chunk in chunks(receiver)]


def records(receiver: Receiver) -> list[tuple[int, bytes]]:
    """Offset and body of every record that has come."""
    return [
        (chunk.offset(i), text(chunk.payload(i)))
        for chunk in chunks(receiver)
        for i in range(chunk.count)
    ]
