"""Leases: a leased message goes to nobody else until its lease is over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.crash.history import History, Violation

# How many ms earlier than told a lease may seem to lapse: a broker that starts again counts from
# the date that it has stored, in milliseconds.
_CLOCK: Final = 5


def check_leases(history: History) -> Iterator[Violation]:
    """Check that leased messages go to nobody else before their holder has settled or released the
    lease, or let it lapse, and that a lease lapses at its time."""
    until: dict[str, int] = {}
    over: set[str] = set()
    # By message and node: the lease by which it was received last.
    held: dict[tuple[str, str], str] = {}
    for place, entry in enumerate(history.entries):
        about = entry.about
        lease: str = about.get("lease", "")
        if entry.what == "leased":
            until[lease] = about["until"]
        elif entry.what == "ends" or (entry.what == "gives" and lease):
            # It is about to be over.
            over.add(lease)
            early = until.get(lease, 0) - entry.at
            if about.get("lapsed") and early > _CLOCK:
                yield Violation("lapsed early", f"{lease} was lost {early} ms before its time")
        elif entry.what == "overdue":
            yield Violation("lapsed late", f"{lease} was there after {until[lease]}, at {entry.at}")
        elif entry.what == "got":
            key = about["id"], about["node"]
            before = held.get(key, lease)
            if before != lease and before not in over and entry.at < until[before] - _CLOCK:
                text = f"{key[0]} was in the lease {before}, and came to others at {place}"
                yield Violation("taken from a lease", text)
            if lease:
                held[key] = lease
            else:
                held.pop(key, None)
