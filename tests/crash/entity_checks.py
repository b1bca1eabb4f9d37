"""Management: what was declared is there, what was deleted is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.crash.history import History, Violation


def check_entities(history: History) -> Iterator[Violation]:
    """Every entity in its last state, of which at most the last change is in doubt."""
    # For each entity the settings it may have; None for not being there.
    possible: dict[tuple[str, str], list[dict[str, Any] | None]] = {}
    for entry in history.entries:
        about = entry.about
        if entry.what in ("declares", "declared", "deletes", "deleted", "found", "missing"):
            key = (about["type"], about["name"])
            states = possible.setdefault(key, [None])
        match entry.what:
            case "declares":
                states.append(about["settings"])
            case "declared":
                states[:] = [about["settings"]]
            case "deletes":
                states.append(None)
            case "deleted":
                states[:] = [None]
            case "missing":
                if None not in states:
                    yield Violation("lost", f"{key[0]} {key[1]} is missing")
            case "found":
                there = about["settings"]
                if not any(state is not None and _fits(there, state) for state in states):
                    text = f"{key[0]} {key[1]} is there as {there}, not as one of {states}"
                    yield Violation("entity", text)


def _fits(there: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(there.get(name) == value for name, value in wanted.items())
