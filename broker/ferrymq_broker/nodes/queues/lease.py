"""The lease: messages of a queue that are kept for a holder, and its record.

The record of a lease is a map: `holder`, `number`, `date` (when it lapses), `duration` (ms), `fate`
and `ranges`: the sequences of its messages, in the order of the lease, as pairs of first i64 and
last i64. While a lease ends in slices, its record has the messages that are left and, as `fate`,
what becomes of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from mypy_extensions import i64

from ferrymq_broker.store.map_values import encode_map
from ferrymq_broker.timers import Timer

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.node import Agenda

# The condition of errors about a lease that does not exist, or not any more.
LEASE_LOST: Final = "ferrymq:lease-lost"

# What becomes of the messages of a lease: nothing so far; they are removed; they return; they
# return as failed deliveries.
HELD: Final = 0
SETTLED: Final = 1
RELEASED: Final = 2
LAPSED: Final = 3

_RANGE: Final = 16


class LeaseWatcher:
    """The interface of a watcher that learns of the end of leases."""

    __slots__ = ()

    def on_due(self, lease: QueueLease) -> None:
        """End the lease, whose time is over."""

    def on_settled(self, entry: Entry) -> None:
        """Remove a leased message, which the holder is done with."""

    def on_returned(self, entry: Entry, failed: bool) -> None:
        """Return a leased message to its place; `failed` counts a failed delivery."""


@final
class QueueLease(Timer):
    """The lease `number` of a `holder`: its messages are `entries`, in the order of delivery, with
    `bytes` bytes of payload.

    `deadline` is when it lapses, by `Agenda.now`, and `duration` how long it holds after a renewal,
    in ms. `record` is the number of its record. While messages are still being added, it is
    `growing`. `fate` is what becomes of its messages.
    """

    __slots__ = (
        "holder",
        "number",
        "entries",
        "bytes",
        "deadline",
        "duration",
        "record",
        "growing",
        "fate",
        "_watcher",
    )

    def __init__(self, holder: str, number: i64, record: i64, watcher: LeaseWatcher) -> None:
        super().__init__()
        self.holder: str = holder
        self.number: i64 = number
        self.entries: list[Entry] = []
        self.bytes: i64 = 0
        self.deadline: i64 = 0
        self.duration: i64 = 0
        self.record: i64 = record
        self.growing: bool = True
        self.fate: i64 = HELD
        self._watcher = watcher

    def add(self, entry: Entry) -> None:
        """Add a message, which counts as held now."""
        self.entries.append(entry)
        self.bytes += i64(entry.size)

    def on_time(self, now: i64) -> None:
        """End the lease."""
        self._watcher.on_due(self)

    def encode(self, agenda: Agenda) -> bytes:
        """Return the value of its record."""
        fields = {
            "holder": self.holder,
            "number": int(self.number),
            "date": int(agenda.date_of(self.deadline)),
            "duration": int(self.duration),
            "fate": int(self.fate),
            "ranges": _ranges(self.entries),
        }
        return encode_map(fields)


def _ranges(entries: list[Entry]) -> bytes:
    """Encode the sequences of the entries, also of those that have no record: positions in the
    lease stay the same when such messages are lost."""
    w = BytesWriter()
    first: i64 = 0
    last: i64 = -2
    for entry in entries:
        sequence = entry.sequence
        if sequence != last + 1:
            if last >= 0:
                write_i64_be(w, first)
                write_i64_be(w, last)
            first = sequence
        last = sequence
    if last >= 0:
        write_i64_be(w, first)
        write_i64_be(w, last)
    return w.getvalue()


def read_ranges(ranges: bytes) -> list[tuple[int, int]]:
    """Return the first and last sequences of the ranges in a record."""
    at: i64 = 0
    size: i64 = len(ranges)
    found: list[tuple[int, int]] = []
    while at + _RANGE <= size:
        found.append((int(read_i64_be(ranges, at)), int(read_i64_be(ranges, at + 8))))
        at += _RANGE
    return found
