"""The ledger is in order, its loader refuses mistakes, and no MUST is left without an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import page, results
from tests.conformance.ledger import (
    CLAUSES,
    ROOT,
    Clause,
    Ledger,
    LedgerError,
    Part,
    Side,
    Standing,
    load,
)
from tests.conformance.reach import Reach, reach_of
from tests.conformance.results import Result
from tests.conformance.sides import Verdict, verdict

GOOD = {
    "id": '"core-2.4.1-1"',
    "section": '"2.4.1"',
    "level": '"MUST"',
    "binds": '"both ends"',
    "text": '"open comes first."',
}


def write(directory: Path, *entries: dict[str, str]) -> Path:
    blocks = ["\n".join(f"{key} = {value}" for key, value in entry.items()) for entry in entries]
    text = "\n".join(['title = "A part"', *(f"[[clause]]\n{block}" for block in blocks)])
    (directory / "part.toml").write_text(text, "utf-8")
    tests = directory / "tests" / "engine"
    tests.mkdir(parents=True, exist_ok=True)
    (tests / "test_open.py").write_text(
        "def test_first(): pass\n"
        "class TestOpen:\n    async def test_inside(self): pass\n"
        "TestMachine = object\n",
        "utf-8",
    )
    return directory


def load_one(directory: Path, **changes: str) -> Clause:
    [clause] = load(write(directory, GOOD | changes), directory).clauses
    return clause


# ── The ledger of this repository ────────────────────────────────────────────────────────────────


def test_every_must_has_tests_or_a_reason() -> None:
    missing = [c.id for c in load().clauses if c.binding and c.standing is Standing.OPEN]
    assert missing == []


def test_clauses_of_a_section_are_numbered_from_one_without_gaps() -> None:
    numbers: dict[tuple[str, str], list[int]] = {}
    for clause in load().clauses:
        key = (clause.document, clause.section)
        numbers.setdefault(key, []).append(int(clause.id.rpartition("-")[2]))
    assert {key: found for key, found in numbers.items() if sorted(found) != found} == {}
    assert {key for key, found in numbers.items() if found != [*range(1, len(found) + 1)]} == set()


def test_the_page_is_that_of_the_ledger() -> None:
    # The committed page is one of a run in which every test passed.
    ledger = load()
    written = (ROOT / "docs" / "conformance.md").read_text("utf-8")
    reach = {test: reach_of(test, ROOT) for test in ledger.tests}
    assert written == page.render(
        ledger, dict.fromkeys(ledger.tests, Result.PASSED), reach
    ), "run `make conformance`"


def test_no_must_is_deferred_without_a_word_on_what_happens_instead() -> None:
    # A reason is a sentence, not a label.
    short = [c.id for c in load().clauses if c.reason and len(c.reason.split()) < 5]
    assert short == []


def test_every_document_is_there() -> None:
    assert {clause.document for clause in load().clauses} == {"core", "pairing", "broker"}
    assert len(list(CLAUSES.glob("*.toml"))) == len(load().parts)


# ── The loader ───────────────────────────────────────────────────────────────────────────────────


def test_a_clause_is_read_whole(tmp_path: Path) -> None:
    tests = '["tests/engine/test_open.py::test_first"]'
    assert load_one(tmp_path, tests=tests) == Clause(
        id="core-2.4.1-1",
        section="2.4.1",
        level="MUST",
        binds="both ends",
        text="open comes first.",
        tests=("tests/engine/test_open.py::test_first",),
    )


@pytest.mark.parametrize(
    ("changes", "standing"),
    [
        ({}, Standing.OPEN),
        ({"why_not": '"never"'}, Standing.NOT_APPLICABLE),
        ({"not_kept": '"later"'}, Standing.NOT_KEPT),
        (
            {"not_kept": '"later"', "instead": '["tests/engine/test_open.py::test_first"]'},
            Standing.NOT_KEPT,
        ),
        ({"tests": '["tests/engine/test_open.py::test_first"]'}, Standing.TESTED),
        ({"tests": '["tests/engine/test_open.py::TestOpen::test_inside"]'}, Standing.TESTED),
        ({"tests": '["tests/engine/test_open.py::TestMachine::runTest"]'}, Standing.TESTED),
    ],
)
def test_standing(tmp_path: Path, changes: dict[str, str], standing: Standing) -> None:
    assert load_one(tmp_path, **changes).standing is standing


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": '"x"'}, "test is not a key"),
        ({"level": '"OUGHT"'}, "'OUGHT' is none of MUST"),
        ({"binds": '"everybody"'}, "'everybody' is nobody"),
        ({"id": '"core-2.4.2-1"'}, "the id has to be <document>-2.4.1-<n>"),
        ({"tests": "[]"}, "tests has to list one test"),
        ({"tests": '["tests/engine/test_open.py::test_second"]'}, "there is no test"),
        ({"tests": '["tests/engine/test_open.py::TestOpen::test_first"]'}, "there is no test"),
        ({"tests": '["tests/engine/test_gone.py::test_first"]'}, "there is no test"),
        (
            {"tests": '["tests/engine/test_open.py::test_first"]', "why_not": '"never"'},
            "there can be tests or why_not, not both",
        ),
        ({"not_kept": '"later"', "why_not": '"never"'}, "why_not or not_kept, not both"),
        ({"binds": '"server"', "no_client": '"It has none."'}, "no_client says what binds"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(LedgerError) as caught:
        load_one(tmp_path, **changes)
    assert "part.toml" in str(caught.value)
    assert message in str(caught.value)


def test_an_id_is_used_once(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"core-2\.4\.1-1: there are two clauses"):
        load(write(tmp_path, GOOD, GOOD), tmp_path)


# ── Results and the page ─────────────────────────────────────────────────────────────────────────


def sample() -> Ledger:
    def clause(n: int, level: str, **proof: object) -> Clause:
        text = f"Rule {n} | or so."
        return Clause(f"core-1.4-{n}", "1.4", level, "sender", text, **proof)  # type: ignore[arg-type]

    clauses = (
        clause(1, "MUST", tests=("t.py::test_a", "t.py::test_b")),
        clause(2, "MUST", why_not="There is none."),
        clause(3, "MAY"),
    )
    return Ledger((Part("part", "A part", clauses),))


def test_parameters_are_folded_and_the_worst_counts() -> None:
    recorded = {
        "t.py::test_a[1]": "passed",
        "t.py::test_a[2]": "failed",
        "t.py::test_b": "passed",
        "t.py::test_other": "failed",
    }
    assert results.gather(["t.py::test_a", "t.py::test_b", "t.py::test_c"], recorded) == {
        "t.py::test_a": Result.FAILED,
        "t.py::test_b": Result.PASSED,
        "t.py::test_c": Result.SKIPPED,
    }


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (Result.PASSED, Result.PASSED),
        (Result.SKIPPED, Result.SKIPPED),
        (Result.FAILED, Result.FAILED),
    ],
)
def test_a_clause_passes_when_all_its_tests_do(second: Result, expected: Result) -> None:
    found = {"t.py::test_a": Result.PASSED, "t.py::test_b": second}
    states = [results.result_of(clause, found) for clause in sample().clauses]
    assert states == [expected, Result.NOT_APPLICABLE, Result.OPEN]


@pytest.mark.parametrize(
    ("found", "expected"),
    [(Result.PASSED, Result.NOT_KEPT), (Result.FAILED, Result.FAILED), (None, Result.SKIPPED)],
)
def test_what_is_said_to_happen_instead_has_to_happen(
    found: Result | None, expected: Result
) -> None:
    test = "t.py::test_a"
    clause = Clause(
        "core-1.4-1", "1.4", "MUST", "sender", "A rule.", not_kept="Later.", instead=(test,)
    )
    assert results.result_of(clause, {} if found is None else {test: found}) is expected


def test_a_clause_whose_test_never_ran_has_not_passed() -> None:
    assert results.result_of(sample().clauses[0], {}) is Result.SKIPPED


def test_pytest_outcomes_are_recorded(tmp_path: Path) -> None:
    # The ledger's own runner on tests of this very file: one function, several parameters.
    this = "tests/conformance/test_ledger.py"
    names = [f"{this}::test_standing", f"{this}::test_mistakes_are_named"]
    assert results.run(names) == dict.fromkeys(names, Result.PASSED)


def test_the_page_shows_rule_proof_and_result() -> None:
    reach = {"t.py::test_a": Reach.BROKER, "t.py::test_b": Reach.ENGINE}
    text = page.render(sample(), dict.fromkeys(reach, Result.PASSED), reach)
    assert (
        "| core-1.4-1 | MUST | sender | Rule 1 \\| or so. "
        "| **B** `t.py::test_a`<br>E `t.py::test_b` | passed | engine only |"
    ) in text
    assert "| There is none. | not applicable | not applicable |" in text
    assert "|  | **open** | **open** |" in text
    assert "| broker | all | 3 | 1 | 0 | 0 | 0 | 1 | 0 | 1 | 0 |" in text
    assert "| client | MUST, MUST NOT | 2 | 0 | 0 | 1 | 0 | 1 | 0 | 0 | 0 |" in text
    assert page.headline(sample(), {}, reach).startswith(
        "AMQP 1.0, broker: 3 clauses: 1 not run, 1 open, 1 not applicable"
    )


# ── Sides ────────────────────────────────────────────────────────────────────────────────────────

E, M, B, C = Reach.ENGINE, Reach.MEMORY, Reach.BROKER, Reach.CLIENT


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("tests/wire/test_transactions.py::test_no_commit_without_a_message_that_was_too_large", B),
        ("tests/hostile/test_frames.py::test_what_cannot_be_said_in_a_session", B),
        ("tests/interop/test_rhea.py::test_drain", B),
        ("tests/broker/test_server.py::test_messages_go_through", B),
        ("tests/client/test_sending.py::test_a_message_arrives_and_is_accepted", C),
        ("tests/wire/test_client_connections.py::test_what_is_no_frame_ends_the_connection", C),
        ("tests/client/test_with_broker.py::test_every_kind_of_body", C),
        ("tests/broker/test_outcomes.py::test_accepted_removes_the_message", M),
        ("tests/simulation/test_seeds.py::test_waiters_are_remembered", M),
        ("tests/client/test_message.py::TestFields::test_reading_an_empty_map_changes_nothing", E),
        ("tests/engine/test_flow.py::test_drain_gives_the_credit_back", E),
    ],
)
def test_what_a_test_reaches_follows_from_its_source(test: str, expected: Reach) -> None:
    assert reach_of(test, ROOT) is expected


@pytest.mark.parametrize(
    ("reached", "broker", "client"),
    [
        ([E], Verdict.ENGINE, Verdict.ENGINE),
        ([E, M], Verdict.MEMORY, Verdict.ENGINE),
        ([E, B], Verdict.PASSED, Verdict.ENGINE),
        ([E, C], Verdict.ENGINE, Verdict.PASSED),
        ([B], Verdict.PASSED, Verdict.UNSEEN),
        ([M], Verdict.MEMORY, Verdict.UNSEEN),
        ([B, C], Verdict.PASSED, Verdict.PASSED),
    ],
)
def test_only_a_test_over_the_wire_lets_a_side_pass(
    reached: list[Reach], broker: Verdict, client: Verdict
) -> None:
    reach = {f"t.py::test_{layer.name}": layer for layer in reached}
    clause = Clause("core-1.4-1", "1.4", "MUST", "both ends", "A rule.", tests=tuple(reach))
    results = dict.fromkeys(reach, Result.PASSED)
    assert [verdict(clause, side, results, reach) for side in Side] == [broker, client]


@pytest.mark.parametrize(
    ("failing", "broker", "client"),
    [
        (E, Verdict.FAILED, Verdict.FAILED),
        (M, Verdict.FAILED, Verdict.PASSED),
        (B, Verdict.FAILED, Verdict.PASSED),
        (C, Verdict.PASSED, Verdict.FAILED),
    ],
)
def test_a_failure_is_one_of_the_sides_that_it_concerns(
    failing: Reach, broker: Verdict, client: Verdict
) -> None:
    reach = {f"t.py::test_{layer.name}": layer for layer in Reach}
    clause = Clause("core-1.4-1", "1.4", "MUST", "both ends", "A rule.", tests=tuple(reach))
    results = dict.fromkeys(reach, Result.PASSED) | {f"t.py::test_{failing.name}": Result.FAILED}
    assert [verdict(clause, side, results, reach) for side in Side] == [broker, client]


@pytest.mark.parametrize(
    ("changes", "sides"),
    [
        ({}, {Side.BROKER, Side.CLIENT}),
        ({"binds": '"server"'}, {Side.BROKER}),
        ({"binds": '"controller"'}, {Side.CLIENT}),
        ({"no_client": '"It never does that."'}, {Side.BROKER}),
        ({"no_client": '"It never does that."', "no_broker": '"Nor that."'}, set()),
    ],
)
def test_a_clause_binds_the_sides_that_can_keep_it(
    tmp_path: Path, changes: dict[str, str], sides: set[Side]
) -> None:
    clause = load_one(tmp_path, tests='["tests/engine/test_open.py::test_first"]', **changes)
    assert clause.sides == sides
    test = clause.tests[0]
    for side in set(Side) - sides:
        assert verdict(clause, side, {test: Result.PASSED}, {test: E}) is Verdict.NOT_BOUND
