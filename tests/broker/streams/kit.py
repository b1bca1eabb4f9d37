"""Streams as the tests of this folder use them: declared in a network, read from a place."""

from __future__ import annotations

import itertools

from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.policy import StreamPolicy
from ferrymq_codec.scalars import Described, Symbol, Timestamp, ULong
from ferrymq_types.filters import SelectorFilter
from ferrymq_types.messaging import (
    ApplicationProperties,
    Data,
    DeliveryAnnotations,
    MessageAnnotations,
    Source,
    TerminusDurability,
)
from tests.broker.harness import Client, Network, Receiver, decode, message_annotations

POSITION = "ferrymq:position"
SELECTOR = "apache.org:selector-filter:string"
PLENTY = 100_000

_names = itertools.count()

# "first", "last", "next", an offset or a time.
Start = str | ULong | Timestamp


def declare(net: Network, address: str = "s", **policy: object) -> Stream:
    """A new stream."""
    stream = net.space.create(address, StreamPolicy(**policy))  # type: ignore[arg-type]
    assert isinstance(stream, Stream)
    return stream


def place(
    start: str, value: int, range: tuple[int, int], times: list[int], wall: int
) -> tuple[Start, int]:
    """What to ask for to begin at `start`, which `value` makes more precise, and the offset that
    it has to be where the records of this range of offsets have these times (from offset 0)."""
    first, end = range
    if start == "first":
        return start, first
    if start == "last":
        return start, max(first, end - 1)
    if start == "next":
        return start, end
    if start == "offset":
        offset = value % (end + 1)
        return ULong(offset), max(first, offset)
    time = Timestamp(wall - value % 20_000)
    later = (offset for offset, at in enumerate(times[:end]) if offset >= first and at >= time)
    return time, next(later, end)


def read(
    client: Client,
    address: str,
    start: Start | None = "first",
    *,
    credit: int = PLENTY,
    selector: str | None = None,
    properties: dict[str, object] | None = None,
    mode: str | None = None,
    max_message_size: int = 0,
    name: str | None = None,
    durable: TerminusDurability = TerminusDurability.NONE,
) -> Receiver:
    """A link that reads a stream or a partition from a place, the first record on by default."""
    filters: dict[str, object] = {}
    if start is not None:
        filters[POSITION] = Described(Symbol(POSITION), start)
    if selector is not None:
        filters[SELECTOR] = SelectorFilter(selector)
    link = client.session.attach_receiver(
        name or f"reader-{next(_names)}",
        source=Source(
            address=address, filter=filters or None, distribution_mode=mode, durable=durable
        ),
        properties=properties,
        max_message_size=max_message_size,
    )
    receiver = Receiver(client, link)
    client.links[link] = receiver
    client.net.run()
    if credit and not receiver.detached:
        receiver.credit(credit)
    return receiver


def granted(receiver: Receiver) -> dict[str, object]:
    """The properties of the broker's attach."""
    attach = receiver.link.remote_attach
    assert attach is not None
    return attach.properties or {}


def keyed(key: object, body: bytes = b"") -> list[MessageAnnotations | Data]:
    """A message with a partition key."""
    return [MessageAnnotations(value={"x-opt-partition-key": key}), Data(value=body)]


def coloured(colour: str, body: bytes) -> list[ApplicationProperties | Data]:
    """A message with an application property."""
    return [ApplicationProperties(value={"colour": colour}), Data(value=body)]


def places(receiver: Receiver) -> list[tuple[object, object]]:
    """Partition and offset of every delivery that has come."""
    return [
        (annotations["x-opt-partition"], annotations["x-opt-offset"])
        for annotations in (message_annotations(d.payload) for d in receiver.deliveries)
    ]


def offsets(receiver: Receiver) -> list[object]:
    """The offset of every delivery that has come."""
    return [offset for _, offset in places(receiver)]


def skipped(payload: bytes) -> object:
    """How many records a delivery says were lost before it; None if it does not speak of any."""
    for section in decode(payload):
        if isinstance(section, DeliveryAnnotations):
            return section.value["x-opt-skipped"]
    return None


def numbered(count: int, start: int = 0) -> list[bytes]:
    """So many bodies."""
    return [b"%d" % number for number in range(start, start + count)]
