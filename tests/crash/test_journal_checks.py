"""What the checks of a cluster's journal find, and what they allow; how outages are measured."""

from __future__ import annotations

import pytest

from tests.crash.failovers.database import AuditRow
from tests.crash.failovers.journal_checks import check_journal
from tests.crash.failovers.outages import find_outages, summarize
from tests.crash.ledger import Entry


def term(number: int, holder: str) -> AuditRow:
    return AuditRow("term", number, None, holder)


def batch(number: int, of_term: int, member: str) -> AuditRow:
    return AuditRow("batch", of_term, number, member)


GOOD = [
    term(1, "a"),
    batch(1, 1, "a"),
    batch(2, 1, "a"),
    term(2, ""),
    term(3, "b"),
    batch(3, 3, "b"),
]


def rules(audit: list[AuditRow], batches: list[tuple[int, int]] | None = None) -> set[str]:
    if batches is None:
        batches = [(row.number, row.term) for row in audit if row.number is not None]
    return {violation.rule for violation in check_journal(audit, batches)}


def test_a_journal_of_one_leader_at_a_time_is_right() -> None:
    assert rules(GOOD) == set()


def test_a_trimmed_journal_is_right() -> None:
    assert rules(GOOD, [(3, 3)]) == set()


@pytest.mark.parametrize(
    ("rule", "audit"),
    [
        ("not fenced", [*GOOD, batch(4, 1, "a")]),
        ("not fenced", [*GOOD[:4], batch(3, 1, "a")]),
        ("two holders", [*GOOD, batch(4, 3, "a")]),
        ("two holders", [*GOOD[:4], batch(3, 2, "a")]),
        ("term decreases", [*GOOD, batch(4, 1, "a")]),
        ("term decreases", [*GOOD, term(3, "a")]),
        ("batch gap", [*GOOD, batch(5, 3, "b")]),
        ("batch gap", [*GOOD, batch(3, 3, "b")]),
    ],
)
def test_a_journal_of_two_leaders_is_wrong(rule: str, audit: list[AuditRow]) -> None:
    assert rule in rules(audit)


def test_batches_that_are_missing_or_others_are_wrong() -> None:
    assert "batch gap" in rules(GOOD, [(1, 1), (3, 3)])
    assert "batch changed" in rules(GOOD, [(2, 3), (3, 3)])


def test_an_outage_is_the_longest_time_without_an_outcome() -> None:
    times = [("confirmed", 100), ("answered", 900), ("answered", 3000), ("committed", 3010)]
    entries = [Entry(what, at, {}) for what, at in times]
    entries += [
        Entry("disturbs", 1000, {"kind": "kill leader"}),
        Entry("mended", 3005, {"kind": "kill leader"}),
    ]
    entries.sort(key=lambda entry: entry.at)
    assert find_outages(entries) == [("kill leader", 2100)]


def test_outages_are_summarized_by_kind() -> None:
    found = summarize([("kill leader", 2000), ("kill leader", 4000), ("fence", 300)])
    assert found["kill leader"] == {"count": 2, "median": 3.0, "longest": 4.0}
    assert found["fence"]["count"] == 1
