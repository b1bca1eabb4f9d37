"""RANGES and LOCATE: the ranges of streams, for clients that read by offset."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from ferrymq_broker.management.authorisation import canonical, looking
from ferrymq_broker.management.errors import BAD_REQUEST, CONFLICT, ManagementError
from ferrymq_broker.management.operation import GREATEST, Call, Result
from ferrymq_broker.management.sliced_query import Steps
from ferrymq_broker.nodes.streams.partition import StreamPartition
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.names import DYNAMIC
from ferrymq_broker.values.rights import MANAGE
from ferrymq_codec.scalars import Timestamp

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.link_terms import Party

# The most partitions in one answer. A single stream may have more.
_ANSWERED: Final = 2000
# The most names and positions in one request.
_NAMES: Final = 10_000
_POSITIONS: Final = 8000
# The work in one step.
_NAMES_AT_ONCE: Final = 250
_PARTITIONS_AT_ONCE: Final = 100

# The fields of a position beside its partition.
_WAYS: Final = ({"time"}, {"offset", "bytes"})


def may_look(party: Party, space: AddressSpace, address: str) -> bool:
    """Return whether the party may read from the stream at an address, with aliases resolved. The
    stream need not exist."""
    access = party.access
    if access.open:
        return True
    address = canonical(space, address)
    return access.permits(looking(space, address), address)


def ranges(call: Call, space: AddressSpace, all_names: list[str]) -> Steps[Result]:
    """Handle RANGES: return the ranges of the named streams, or of all streams in `all_names`
    (sorted) that the party may read.

    Names are handled in sorted order. An answer that ends early has its last name as ``after``.
    Raises `ManagementError`.
    """
    call.expect_only("names", "after")
    asked = _asked(call)
    after = call.text("after", "")
    named = asked is not None
    names = all_names if asked is None else asked
    if after:
        names = names[bisect_right(names, after) :]
    yield None
    found: list[dict[str, object]] = []
    missing: list[str] = []
    body: dict[str, object] = {"streams": found, "missing": missing}
    room = _ANSWERED
    seen = 0
    for at, name in enumerate(names, 1):
        if at % _NAMES_AT_ONCE == 0:
            yield None
        stream = _visible(call.party, space, name, named)
        if stream is None:
            if named:
                missing.append(name)
            continue
        here = stream.here()
        size = len(stream.partitions)
        if found and size > room:
            body["after"] = names[at - 2]
            break
        room -= size
        partitions: list[dict[str, object]] = []
        for partition in here:
            seen += 1
            if seen % _PARTITIONS_AT_ONCE == 0:
                yield None
            partitions.append(_range(partition))
        if stream.deleted:
            # The stream was deleted between two steps.
            if named:
                missing.append(name)
            continue
        one: dict[str, object] = {
            "name": name,
            "incarnation": str(stream.incarnation),
            "partitions": partitions,
        }
        if stream.placement.is_spread():
            one["placement"] = stream.placement.describe()
        found.append(one)
    return Result(body)


def _visible(party: Party, space: AddressSpace, name: str, named: bool) -> Stream | None:
    """Return the stream of a name, if the party may read it. A dynamic stream that the request does
    not name needs the right to manage it, as in lists."""
    if not may_look(party, space, name):
        return None
    if not named and name.startswith(DYNAMIC) and not party.access.permits(MANAGE, name):
        return None
    node = space.find(name)
    return node if isinstance(node, Stream) else None


def _asked(call: Call) -> list[str] | None:
    """Return the distinct names in the request, sorted; None if it has none."""
    if call.name:
        if "names" in call.arguments:
            raise ManagementError(
                BAD_REQUEST, "names: the request must have either a name or names, not both"
            )
        return [call.name]
    names = call.arguments.get("names")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ManagementError(BAD_REQUEST, "names: a list of strings is needed")
    if len(names) > _NAMES:
        raise ManagementError(
            BAD_REQUEST, f"names: the list has {len(names)} items; at most {_NAMES} are allowed"
        )
    return sorted({str(name) for name in names})


def _range(partition: StreamPartition) -> dict[str, object]:
    log = partition.log
    first, end = int(log.first), int(log.next)
    times = (Timestamp(log.began()), Timestamp(log.ended())) if end > first else (None, None)
    return {
        "partition": int(partition.number),
        "first-offset": first,
        "next-offset": end,
        "bytes": int(log.bytes),
        "first-time": times[0],
        "last-time": times[1],
    }


def locate(call: Call, stream: Stream) -> Steps[Result]:
    """Handle LOCATE: find offsets by time, or by bytes after an offset. Raises
    `ManagementError`."""
    call.expect_only("positions")
    positions = call.arguments.get("positions")
    if not isinstance(positions, list) or not all(isinstance(item, dict) for item in positions):
        raise ManagementError(BAD_REQUEST, "positions: a list of maps is needed")
    if len(positions) > _POSITIONS:
        raise ManagementError(
            BAD_REQUEST,
            f"positions: the list has {len(positions)} items; at most {_POSITIONS} are allowed",
        )
    offsets: list[int] = []
    for at, item in enumerate(positions, 1):
        if at % _PARTITIONS_AT_ONCE == 0:
            yield None
        offsets.append(_located(call, stream, item))
    return Result({"offsets": offsets})


def _located(call: Call, stream: Stream, item: dict[object, object]) -> int:
    fields = {str(key): value for key, value in item.items()}
    if fields.keys() - {"partition"} not in _WAYS:
        raise ManagementError(
            BAD_REQUEST,
            "positions: each must have partition, and either time, or offset and bytes; one "
            f"has {', '.join(sorted(fields)) or 'nothing'}"[:300],
        )
    one = Call(call.party, call.name, fields)
    partition = stream.partition(str(one.number("partition", 0)))
    if "time" in fields:
        return int(partition.offset_at(one.number("time", 0, -GREATEST)))
    log = partition.log
    first, end = int(log.first), int(log.next)
    offset = one.number("offset", 0)
    if offset > end:
        raise ManagementError(
            CONFLICT,
            f"{partition.address!r} has the records from {first} to before {end}; offset "
            f"{offset} is not among them: it belongs to another stream, or to a deleted stream "
            "of this name",
        )
    return int(log.reach(max(offset, first), one.number("bytes", 0)))
