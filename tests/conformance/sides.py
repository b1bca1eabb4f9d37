"""How a clause stands for the broker and for the client: what a peer of either was shown.

Only a test over the wire against the running program lets a clause say *passed* for it. Tests of
the engine, and of the broker in memory, are worth having, but leave out what lies around them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from tests.conformance.ledger import Clause, Ledger, Side, Standing
from tests.conformance.reach import Reach
from tests.conformance.results import Result, worst


class Verdict(StrEnum):
    """What the tests of a clause say about one side."""

    PASSED = "passed"
    """A test over the wire against this side has passed, and so have the others that concern it."""
    MEMORY = "in memory only"
    ENGINE = "engine only"
    UNSEEN = "not shown"
    """Every test of the clause is one of the other side."""
    FAILED = "failed"
    SKIPPED = "not run"
    OPEN = "open"
    NOT_KEPT = "not kept"
    NOT_APPLICABLE = "not applicable"
    NOT_BOUND = "–"
    """The clause does not bind this side, or no peer can tell whether it is kept."""


_WIRE: Final = {Side.BROKER: Reach.BROKER, Side.CLIENT: Reach.CLIENT}
# What concerns a side although no peer has a part in it, the nearest to the wire first.
_BENEATH: Final = {
    Side.BROKER: {Reach.MEMORY: Verdict.MEMORY, Reach.ENGINE: Verdict.ENGINE},
    Side.CLIENT: {Reach.ENGINE: Verdict.ENGINE},
}
_REASONED: Final = {
    Standing.NOT_KEPT: Verdict.NOT_KEPT,
    Standing.NOT_APPLICABLE: Verdict.NOT_APPLICABLE,
    Standing.OPEN: Verdict.OPEN,
}


def verdict(
    clause: Clause, side: Side, results: Mapping[str, Result], reach: Mapping[str, Reach]
) -> Verdict:
    """Tell how a clause stands for a side, given the results of its tests and what they reach."""
    if side not in clause.sides:
        return Verdict.NOT_BOUND
    beneath = _BENEATH[side]
    concerned = [t for t in clause.evidence if reach[t] is _WIRE[side] or reach[t] in beneath]
    found = worst([results.get(test, Result.SKIPPED) for test in concerned] or [Result.PASSED])
    if found is not Result.PASSED:
        return Verdict.FAILED if found is Result.FAILED else Verdict.SKIPPED
    if clause.standing is not Standing.TESTED:
        return _REASONED[clause.standing]
    reached = {reach[test] for test in concerned}
    if _WIRE[side] in reached:
        return Verdict.PASSED
    return next((word for layer, word in beneath.items() if layer in reached), Verdict.UNSEEN)


def unseen(ledger: Ledger, side: Side, reach: Mapping[str, Reach]) -> list[Clause]:
    """The clauses that bind a side, have tests, and none over the wire against it."""
    return [
        clause
        for clause in ledger.clauses
        if clause.standing is Standing.TESTED
        and side in clause.sides
        and not any(reach[test] is _WIRE[side] for test in clause.tests)
    ]
