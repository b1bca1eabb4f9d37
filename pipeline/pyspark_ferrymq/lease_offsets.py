"""The position of a query that consumes queues: the last lease that it has of each queue.

    {"v":1,"holder":"spark-<uuid>","queues":{"work":{"lease":7,"messages":10000}}}

The holder is the query's name at the broker; it is made with the first offset of a query, and
stays. A batch reads the leases of its end that its start does not have. The number of messages is
there so that a repeated batch has the same tasks. As for streams, the first offset of a new query
has ``"pin":true`` before `holder`: it is not yet written to the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark_ferrymq.offsets import VERSION, OffsetError


@dataclass(frozen=True, slots=True)
class LeasePosition:
    """The number of the last lease of a queue, 0 for none, and how many messages it has."""

    lease: int = 0
    messages: int = 0


@dataclass(frozen=True, slots=True)
class LeaseOffset:
    """The position of a query. `pin` marks a start that is not written to the checkpoint yet."""

    holder: str
    queues: Mapping[str, LeasePosition]
    pin: bool = False

    def to_json(self) -> dict[str, object]:
        """Return the form that Spark writes, with the queues by name."""
        found: dict[str, object] = {"v": VERSION}
        if self.pin:
            found["pin"] = True
        found["holder"] = self.holder
        found["queues"] = {
            name: {"lease": position.lease, "messages": position.messages}
            for name, position in sorted(self.queues.items())
        }
        return found

    @classmethod
    def from_json(cls, found: object) -> LeaseOffset:
        """Parse an offset. Raises `OffsetError`."""
        if not isinstance(found, dict) or found.get("v") != VERSION:
            raise OffsetError(f"{found!r} is not an offset of version {VERSION}"[:300])
        holder, queues, pin = found.get("holder"), found.get("queues"), found.get("pin", False)
        if not isinstance(holder, str) or not isinstance(queues, dict) or type(pin) is not bool:
            raise OffsetError(f"an offset of queues has a holder and queues, not {sorted(found)}")
        return cls(holder, {name: _position(name, queues[name]) for name in queues}, pin)

    def unpinned(self) -> LeaseOffset:
        """Return a copy without the mark of a start."""
        return replace(self, pin=False)

    def of(self, queue: str) -> LeasePosition:
        """Return the position in a queue, that of no lease if there is none."""
        return self.queues.get(queue, LeasePosition())


def _position(name: str, found: object) -> LeasePosition:
    if isinstance(found, dict) and found.keys() == {"lease", "messages"}:
        lease, messages = found["lease"], found["messages"]
        if all(type(one) is int and 0 <= one < 1 << 63 for one in (lease, messages)):
            return LeasePosition(lease, messages)
    raise OffsetError(f"the offset of the queue {name!r} is {found!r}"[:300])
