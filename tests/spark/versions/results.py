"""The results of a run, as JUnit's files have them, and the table of the page."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.spark.versions.features import FEATURES, Feature
from tests.spark.versions.obtain import ROOT

RESULTS: Final = Path(__file__).with_name("results.json")
PAGE: Final = ROOT / "docs" / "pipeline" / "spark-versions.md"
_BEGIN: Final = "<!-- results: written by `python -m tests.spark.versions page`, do not edit -->"
_END: Final = "<!-- end of results -->"


def cells(report: Path) -> dict[str, str]:
    """The text of each feature's cell, from the report of one version."""
    cases: dict[str, list[ET.Element]] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        module = case.get("classname", "").rpartition(".")[2]
        name = case.get("name", "").partition("[")[0]
        cases.setdefault(f"{module}.py::{name}", []).append(case)
    return {each.name: _cell(each, cases) for each in FEATURES}


def _cell(feature: Feature, cases: Mapping[str, list[ET.Element]]) -> str:
    found = [case for test in feature.tests for case in cases.get(test, [])]
    if any(case.find(kind) is not None for case in found for kind in ("failure", "error")):
        return "no"
    if not found or any(case.find("skipped") is not None for case in found):
        return "not run"
    texts = [
        str(each.get("value"))
        for case in found
        for each in case.iter("property")
        if each.get("name") == "cell"
    ]
    return texts[0] if texts else "yes"


def keep(versions: Mapping[str, Mapping[str, str]]) -> None:
    """Write the results: the cells by release of Spark."""
    RESULTS.write_text(json.dumps(versions, indent=1) + "\n", "utf-8")


def table() -> str:
    """The table of the kept results."""
    versions = json.loads(RESULTS.read_text("utf-8"))
    rows = [["", *(f"Spark {release}" for release in versions)], ["---"] * (len(versions) + 1)]
    rows += [
        [each.name, *(found.get(each.name, "not run") for found in versions.values())]
        for each in FEATURES
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def page(text: str) -> str:
    """The page with the table of the kept results."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n\n{table()}\n\n{_END}{after}"
