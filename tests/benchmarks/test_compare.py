"""`python -m bench compare`: what has moved beyond noise, and the exit status for a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import cli, compare
from bench.results import Figure, Report


def run(*figures: Figure, **machine: str) -> dict[str, Any]:
    report = Report("broker", build={"uvloop": "0.23.0"}, figures=list(figures))
    return {"format": 1, "quick": False, "machine": {"cores": "2"} | machine,
            "reports": [report.to_json()]}  # fmt: skip


def verdict(old: list[float], new: list[float], unit: str = "messages/s") -> str:
    figures = [Figure("100 B", "ferrymq", unit, values) for values in (old, new)]
    return compare.judge("broker", *figures).verdict


def test_a_figure_has_moved_if_its_ranges_are_apart_and_its_medians_differ_enough() -> None:
    old = [100.0, 101.0, 102.0, 103.0]
    assert verdict(old, [120.0, 121.0, 122.0, 123.0]) == "faster"
    assert verdict(old, [80.0, 81.0, 82.0, 83.0]) == "slower"
    assert verdict(old, [104.0, 105.0, 106.0, 107.0]) == "same", "apart, but hardly different"
    assert verdict(old, [90.0, 130.0, 131.0, 132.0]) == "same", "the ranges overlap"


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_with_few_rounds_the_difference_must_be_larger(rounds: int) -> None:
    assert verdict([100.0] * rounds, [125.0] * rounds) == "same"
    assert verdict([100.0] * rounds, [75.0] * rounds) == "slower"
    assert verdict([100.0] * rounds, [135.0] * rounds) == "faster"


def test_less_is_better_for_times_and_sizes() -> None:
    low, high = [10.0] * 4, [20.0] * 4
    assert verdict(low, high, "µs") == "slower" and verdict(high, low, "µs/message") == "faster"
    assert verdict(low, high, "MiB") == "larger" and verdict(high, low, "KiB") == "smaller"
    assert verdict([-0.1, 0.0, 0.1], [5.0] * 3, "% of a core") == "same", "there is no ratio"


def status(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], *options: str
) -> int:  # fmt: skip
    files = []
    for name, content in (("old", old), ("new", new)):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(content), "utf-8")
        files.append(str(file))
    return cli.main(["compare", *files, *options])


def test_the_exit_status_is_1_only_if_a_figure_is_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = run(Figure("100 B", "ferrymq", "messages/s", [50.0] * 5))
    fast = run(Figure("100 B", "ferrymq", "messages/s", [90.0] * 5))
    assert status(tmp_path, slow, fast) == 0
    assert "faster" in capsys.readouterr().out
    assert status(tmp_path, fast, fast) == 0
    assert "1 of 1 figures are the same" in capsys.readouterr().out
    assert status(tmp_path, fast, slow, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["worse"] and told["changes"][0]["verdict"] == "slower"
    assert told["changes"][0]["new_range"] == [50.0, 50.0]


def test_other_machines_and_versions_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = Figure("100 B", "ferrymq", "messages/s", [50.0] * 5)
    new = run(figure, cores="8", load="3.00")
    new["reports"][0]["build"]["uvloop"] = "0.24.0"
    assert status(tmp_path, run(figure), new) == 0
    shown = capsys.readouterr().out
    assert "warning: machine: cores was 2, is 8" in shown
    assert "warning: broker: uvloop was 0.23.0, is 0.24.0" in shown
    assert "load" not in shown


def test_files_without_a_common_figure_cannot_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = run(Figure("100 B", "ferrymq", "messages/s", [50.0]))
    other = run(Figure("1 KiB", "ferrymq", "messages/s", [50.0]))
    assert status(tmp_path, one, other) == 2
    assert status(tmp_path, one, {}) == 2
    assert "cannot be compared" in capsys.readouterr().err
