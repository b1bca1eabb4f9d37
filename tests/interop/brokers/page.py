"""The page `docs/known-brokers.md`: a text written by hand, and tables from the results of runs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.interop.brokers.cases import CASES, Case
from tests.interop.brokers.sites import KNOWN, ROOT

PAGE: Final = ROOT / "docs/known-brokers.md"
TEXT: Final = Path(__file__).with_name("page.md")
_MARKS: Final = {
    "works": "✓",
    "lacks": "–",
    "breaks": "✗",
    "varies": "±",
    "unexpected": "?",
}
_LETTERS: Final = {"asyncio": "a", "blocking": "b", "command line": "c"}

Results = Mapping[str, Any]


def write(results: Results) -> str:
    """Return the page for the results of runs, by broker."""
    text = TEXT.read_text("utf-8")
    text = text.replace("{{table}}", _table(results)).replace("{{runs}}", _runs(results))
    return re.sub(r"\{\{lacks (.*?)\}\}\n", lambda found: _lacks(results, found[1]), text)


def rows() -> dict[str, list[Case]]:
    """Return the cases of each row of the table."""
    found: dict[str, list[Case]] = {}
    for case in CASES:
        found.setdefault(case.row, []).append(case)
    return found


def _table(results: Results) -> str:
    keys = [key for key in KNOWN if key in results]
    lines = ["| |" + "|".join(f" {KNOWN[key].title} " for key in keys) + "|"]
    lines.append("|---|" + "---|" * len(keys))
    for row, cases in rows().items():
        cells = [_cell(results[key]["cases"], cases) for key in keys]
        lines.append(f"| {row} |" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|")
    return "\n".join(lines)


def _cell(seen: Mapping[str, Any], cases: list[Case]) -> str:
    """Return the mark of the cases; with the letters of their faces if they differ."""
    marks: dict[str, str] = {}
    for case in cases:
        if case.name in seen:
            mark = _MARKS[seen[case.name]["verdict"]]
            marks[mark] = marks.get(mark, "") + _LETTERS[case.face]
    if len(marks) <= 1:
        return "".join(marks)
    return ", ".join(f"{mark} {''.join(sorted(set(on)))}" for mark, on in marks.items())


def _runs(results: Results) -> str:
    runs = [f"{_named(key, results)} on {results[key]['date']}" for key in KNOWN if key in results]
    notes = [
        f"{_named(key, results)}: {seen['note']}"
        for key in KNOWN
        if key in results
        for seen in results[key]["cases"].values()
        if seen.get("note")
    ]
    lines = [f"Runs: {', '.join(runs)}.", f"Killed under load: {'; '.join(notes)}."]
    return "\n\n".join(textwrap.fill(line, 116, break_on_hyphens=False) for line in lines)


def _named(key: str, results: Results) -> str:
    """Return the broker's name with the whole version."""
    if key == "ferrymq":
        return key
    title = re.sub(r" \d+$", "", KNOWN[key].title)
    return f"{title} {results[key]['version']}"


def _lacks(results: Results, key: str) -> str:
    """Return what the broker lacks and breaks, with the error that a program gets."""
    if key not in results:
        return "It was not part of the last run.\n"
    seen = results[key]["cases"]
    lines: dict[str, list[str]] = {}
    for row, cases in rows().items():
        for case in cases:
            verdict = seen.get(case.name, {}).get("verdict", "")
            if verdict in ("lacks", "breaks", "unexpected") and case.face == "asyncio":
                error = _quoted(seen[case.name]["error"])
                if row not in lines.setdefault(f"{_MARKS[verdict]} {error}", []):
                    lines[f"{_MARKS[verdict]} {error}"].append(row)
    if not lines:
        return ""
    table = [
        "What a program of asyncio got in the cases that do not work:",
        "",
        "| | |",
        "|---|---|",
    ]
    for error, cases_of in lines.items():
        table.append(f"| {'; '.join(cases_of)} | {error} |")
    return "\n".join(table) + "\n"


def _quoted(error: str) -> str:
    """Return an error as code for a table, without what differs from run to run."""
    error = re.sub(r"amqp://(\w+@)?127\.0\.0\.1:\d+", "amqp://host", error)
    error = re.sub(r"<(ferrymq[\w.]*\.)(\w+) object at 0x\w+>", r"<\2>", error)
    error = re.sub(r"'(sender|receiver)-[0-9a-f-]{36}'", r"'\1-…'", error)
    error = error.replace("|", "\\|")
    return "`" + (error if len(error) <= 160 else error[:160] + "…") + "`"
