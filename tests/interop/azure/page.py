"""The page docs/broker/azure-compatibility.md: a table of features and clients, from results."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any, Final

from tests.interop.azure.cases import FEATURES, Family
from tests.interop.azure.clients import CLIENTS, HERE, ROOT, Client

PAGE: Final = ROOT / "docs/broker/azure-compatibility.md"
RESULTS: Final = HERE / "results.json"
TEXT: Final = HERE / "page.md"

_MARKS: Final = {"passed": "✓", "failed": "✗", "absent": "–"}


def write(results: Mapping[str, Any]) -> str:
    """Return the page for the results of runs, by client."""
    parts = {
        "service-bus": _table("service-bus", results),
        "event-hubs": _table("event-hubs", results),
        "failures": _failures(results),
        "runs": _runs(results),
    }
    return re.sub(r"\{\{([\w-]+)\}\}", lambda found: parts[found[1]], TEXT.read_text("utf-8"))


def _clients(results: Mapping[str, Any]) -> list[Client]:
    return [client for key, client in CLIENTS.items() if key in results]


def _table(family: Family, results: Mapping[str, Any]) -> str:
    clients = [client for client in _clients(results) if client.family == family]
    lines = ["| |" + "".join(f" {client.title} |" for client in clients)]
    lines.append("|---|" + "---|" * len(clients))
    for feature in FEATURES:
        if feature.family == family:
            cells = [_cell(results[client.key]["cases"], feature.name) for client in clients]
            lines.append(f"| {feature.row} |" + "".join(f" {cell} |" for cell in cells))
    return "\n".join(lines)


def _cell(cases: Mapping[str, Any], name: str) -> str:
    return _MARKS[cases[name]["verdict"]] if name in cases else ""


def _failures(results: Mapping[str, Any]) -> str:
    lines: list[str] = []
    for feature in FEATURES:
        told: dict[str, list[str]] = {}
        for client in _clients(results):
            case = results[client.key]["cases"].get(feature.name, {})
            if case.get("verdict") == "failed":
                told.setdefault(_quoted(case["error"]), []).append(client.title)
        for error, titles in told.items():
            lines.append(f"| {feature.row} | {'; '.join(titles)} | {error} |")
    if not lines:
        return "Nothing failed."
    return "\n".join(["| | client | error |", "|---|---|---|", *lines])


def _quoted(error: str) -> str:
    """Return an error as code for a table, without what differs from run to run."""
    error = re.sub(r"localhost:\d+", "localhost", error).replace("|", "\\|").replace("`", "'")
    return "`" + (error if len(error) <= 160 else error[:160] + "…") + "`"


def _runs(results: Mapping[str, Any]) -> str:
    runs = [f"{each.title} on {results[each.key]['date']}" for each in _clients(results)]
    return textwrap.fill(f"Runs: {'; '.join(runs)}.", 116, break_on_hyphens=False)
