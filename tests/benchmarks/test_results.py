"""Results: medians, ratios, verdicts, and their way into JSON and documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import cli, markdown
from bench.results import Figure, Report


def report() -> Report:
    made = Report("codec", build={"codec": "pure"}, options={"rounds": 3})
    made.figures = [
        Figure("encode", "ferrymq", "operations/s", [100.0, 300.0, 200.0], demand=150.0),
        Figure("encode", "peer", "operations/s", [10.0, 10.0, 40.0]),
        Figure("p50", "ferrymq", "µs", [30.0, 31.0, 32.0], demand=25.0),
        Figure("p50", "echo", "µs", [20.0, 20.0, 20.0]),
    ]
    made.compare("encode", "ferrymq", "peer", at_least=8.0)
    made.compare("p50", "ferrymq", "echo", at_most=2.0, unit="µs")
    made.compare("encode", "ferrymq", "nobody")
    return made


def run(**changes: Any) -> dict[str, Any]:
    return {
        "date": "2026-01-02", "machine": {"cores": "2"}, "reports": [report().to_json() | changes],
    }  # fmt: skip


def test_medians_and_verdicts() -> None:
    first, _, slow, _ = report().figures
    assert first.median == 200.0
    assert first.spread == (100.0, 300.0)
    assert first.met is True
    assert slow.met is False, "of times, less is better"


def test_ratios_are_taken_inside_a_round() -> None:
    rates, times = report().comparisons
    # 10, 30 and 5: the median of the ratios, not the ratio of the medians.
    assert rates.ratio == 10.0
    assert rates.met is True
    assert times.ratio == pytest.approx(1.55)
    assert times.met is True


def test_nothing_is_demanded_of_the_interpreted_build() -> None:
    made = report()
    made.drop_demands()
    assert {row.met for row in [*made.figures, *made.comparisons]} == {None}


def test_json_round_trip() -> None:
    assert Report.from_json(json.loads(json.dumps(report().to_json()))) == report()


def test_a_document_is_updated_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{markdown.BEGIN}\nold\n{markdown.END}\nafter\n", "utf-8")
    markdown.update(page, markdown.render(run()))
    once = page.read_text("utf-8")
    assert once.startswith("before\n") and once.endswith("after\n")
    assert "old" not in once
    assert "| encode | ferrymq | 200.0 | 100.0 … 300.0 | operations/s | ≥ 150.0: met |" in once
    assert "|  | peer | 10.0 |" in once, "a case is named once"
    assert "| encode | ferrymq ÷ peer | 10.0 × | ≥ 8 ×: met |" in once
    markdown.update(page, markdown.render(run()))
    assert page.read_text("utf-8") == once


def test_parts_that_were_not_measured_now_stay_as_they_were(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    memory = "### Memory\n\nMeasured on another day.\n"
    page.write_text(f"{markdown.BEGIN}\n\n{memory}\n{markdown.END}\n", "utf-8")
    later = run() | {"date": "2026-11-22"}
    markdown.update(page, markdown.render(run()))
    markdown.update(page, markdown.render(later))
    text = page.read_text("utf-8")
    assert text.count(memory) == 1 and text.count("### Codec") == 1
    assert text.index("### Codec") < text.index("Measured 2026-11-22") < text.index("### Memory")


def test_the_exit_status() -> None:
    assert cli.verdict(run(), check=False) == 0
    assert cli.verdict(run(), check=True) == 1, "one figure is missed"
    assert cli.verdict(run(failures=["lost"]), check=False) == 1


def test_an_earlier_run_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "run.json"
    saved.write_text(json.dumps(run(failures=["2 lost"])), "utf-8")
    assert cli.main(["--from", str(saved)]) == 1
    shown = capsys.readouterr().out
    assert "FAILED: 2 lost" in shown
    assert "MISSED" in shown and "ferrymq ÷ peer" in shown
