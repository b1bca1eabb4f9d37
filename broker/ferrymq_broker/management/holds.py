"""HOLD and RELEASE: keep records of a stream that still have to be copied."""

from __future__ import annotations

from ferrymq_broker.management.errors import BAD_REQUEST, NOT_FOUND, ManagementError
from ferrymq_broker.management.operation import Call, Result
from ferrymq_broker.nodes.streams.stream import MAX_PARTITIONS, Stream


def hold(call: Call, stream: Stream) -> Result:
    """Handle HOLD: keep records from these offsets on, or move an existing hold there. Raises
    `ManagementError` or `BrokerError`."""
    call.expect_only("holder", "offsets")
    holder = call.text("holder")
    items = call.arguments.get("offsets")
    if not isinstance(items, list) or not items or not all(isinstance(i, dict) for i in items):
        raise ManagementError(BAD_REQUEST, "offsets: a list with at least one map is needed")
    if len(items) > MAX_PARTITIONS:
        raise ManagementError(
            BAD_REQUEST,
            f"offsets: the list has {len(items)} items; at most {MAX_PARTITIONS} are allowed",
        )
    offsets: dict[int, int] = {}
    for item in items:
        fields = {str(key): value for key, value in item.items()}
        if fields.keys() != {"partition", "offset"}:
            raise ManagementError(
                BAD_REQUEST, "offsets: each map must have partition and offset, and nothing else"
            )
        one = Call(call.party, call.name, fields)
        number = one.number("partition", 0)
        if number in offsets:
            raise ManagementError(BAD_REQUEST, f"offsets: partition {number} occurs twice")
        offsets[number] = one.number("offset", 0)
    stream.holds.move(holder, offsets)
    return Result({}, description="held")


def release(call: Call, stream: Stream) -> Result:
    """Handle RELEASE: remove a hold, and the records kept only for it. Raises `ManagementError`."""
    call.expect_only("holder")
    holder = call.text("holder")
    if not stream.release(holder):
        raise ManagementError(NOT_FOUND, f"{stream.address[:200]!r} has no hold {holder[:200]!r}")
    return Result({}, description="released")
