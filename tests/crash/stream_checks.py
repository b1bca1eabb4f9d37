"""Streams: offsets that stay what they are, without gaps, with everything that was acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

from tests.crash.history import History, Record, Violation


def check_streams(history: History) -> Iterator[Violation]:
    """What readers have seen at different times fits together and is complete."""
    places: dict[tuple[str, str], tuple[int, int]] = {}
    drained: set[tuple[str, str]] = set()
    for (node, partition), records in history.records.items():
        name = f"{node}::{partition}"
        time = 0
        for offset in sorted(records):
            first = records[offset][0]
            for record in records[offset]:
                if record.id != first.id:
                    text = f"{name} at {offset}: {first.id}, later {record.id}"
                    yield Violation("offset reused", text)
                elif record.time != first.time:
                    text = f"{name} at {offset}: of {first.time}, later of {record.time}"
                    yield Violation("record changed", text)
            if first.time < time:
                yield Violation("time", f"{name} at {offset}: {first.time} after {time}")
            time = first.time
            was = places.setdefault((node, first.id), (partition, offset))
            if was != (partition, offset):
                text = f"{first.id} of {node} is at {was} and at {(partition, offset)}"
                yield Violation("duplicate", text)
        there = sorted(offset for offset, seen in records.items() if any(r.drained for r in seen))
        drained.update((node, records[offset][-1].id) for offset in there)
        if there != list(range(len(there))):
            yield Violation("gap", f"{name} has {_gaps(there)}")
        gone = [offset for offset in records if offset not in set(there)]
        if gone:
            yield Violation("lost", f"{name} had records at {gone[:5]}, and has none in the end")
        yield from _order(name, records, there)
    for copy in history.copies.values():
        if copy.node not in history.streams or copy.volatile or history.denied(copy):
            continue
        if history.certain(copy) and (copy.node, copy.id) not in drained:
            yield Violation("lost", f"{copy}, sent at {copy.sent}, is not in the stream")


def _order(name: str, records: dict[int, list[Record]], there: list[int]) -> Iterator[Violation]:
    """Each producer's records come in the order it has sent them."""
    last: dict[str, int] = {}
    for offset in there:
        producer, _, number = records[offset][-1].id.rpartition(".")
        if int(number) < last.get(producer, -1):
            yield Violation("order", f"{name} at {offset}: {producer}.{number} is late")
        last[producer] = int(number)


def _gaps(offsets: list[int]) -> str:
    found = [b for a, b in zip([-1, *offsets], offsets, strict=False) if b != a + 1]
    return f"a gap in front of {found[:5]}"
