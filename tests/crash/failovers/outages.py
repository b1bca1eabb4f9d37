"""How long the clients of a run had no service."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from tests.crash.ledger import Entry

# What a client hears from a broker that serves.
OUTCOMES = ("answered", "confirmed", "committed")


def find_outages(entries: Sequence[Entry]) -> list[tuple[str, int]]:
    """For each thing that was done to the cluster, its kind and the longest time without an outcome
    until it was mended, in milliseconds."""
    times = [entry.at for entry in entries if entry.what in OUTCOMES]
    found: list[tuple[str, int]] = []
    began: Entry | None = None
    for entry in entries:
        if entry.what == "disturbs":
            began = entry
        elif entry.what == "mended" and began is not None:
            # It counts as mended when a client has got an outcome.
            first, end = bisect_left(times, began.at), bisect_right(times, entry.at)
            gaps = [b - a for a, b in pairwise(times[max(0, first - 1) : end])]
            found.append((began.about["kind"], max(gaps, default=entry.at - began.at)))
    return found


def summarize(outages: Iterable[tuple[str, int]]) -> dict[str, dict[str, float]]:
    """The count, the median and the longest of each kind, in seconds."""
    kinds: dict[str, list[int]] = {}
    for kind, length in outages:
        kinds.setdefault(kind, []).append(length)
    return {
        kind: {
            "count": len(lengths),
            "median": round(median(lengths) / 1000, 2),
            "longest": round(max(lengths) / 1000, 2),
        }
        for kind, lengths in sorted(kinds.items())
    }
