"""Whether the journal of a cluster is that of one leader at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.crash.failovers.database import AuditRow
from tests.crash.history import Violation


def check_journal(
    audit: Sequence[AuditRow], batches: Sequence[tuple[int, int]]
) -> Iterator[Violation]:
    """Everything that is wrong with a journal: what the database has noted, and the numbers and
    terms of the batches that are still there."""
    holders: dict[int, str] = {}
    written: dict[int, int] = {}
    term = 0
    for row in audit:
        if row.what == "term":
            if row.term <= term:
                yield Violation("term decreases", f"term {row.term} began after term {term}")
            term = row.term
            holders[term] = row.member
            continue
        assert row.number is not None
        name = f"batch {row.number} of term {row.term}, written by {row.member}"
        if row.term != term:
            yield Violation("not fenced", f"{name}, came while the term was {term}")
        elif holders.get(term) != row.member:
            yield Violation("two holders", f"{name}: the lease was that of {holders.get(term)}")
        last = max(written, default=0)
        if row.number != last + 1:
            yield Violation("batch gap", f"{name}, came after batch {last}")
        elif row.term < written.get(last, 0):
            yield Violation("term decreases", f"{name}, came after one of term {written[last]}")
        written[row.number] = row.term
    numbers = [number for number, _ in batches]
    if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        yield Violation("batch gap", f"the journal has the batches {numbers[:5]}... with gaps")
    for number, batch_term in batches:
        if written.get(number) != batch_term:
            text = f"batch {number} is of term {batch_term}, was written in {written.get(number)}"
            yield Violation("batch changed", text)
