"""The diagrams of `docs/engine.md`, drawn from the engine's state tables.

    python -m tests.support.diagrams          # write them
    python -m tests.support.diagrams --check  # exit 1 if they are not what the tables say

A diagram is a Mermaid block between ``<!-- diagram: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

from ferrymq.engine.states import (
    CONNECTION_TABLE,
    LINK_TABLE,
    SESSION_TABLE,
    ConnectionState,
    LinkState,
    SessionState,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "engine.md"

S = TypeVar("S", bound=Enum)
I = TypeVar("I", bound=Enum)  # noqa: E741  (an input)


def words(given: Enum) -> str:
    """An input as the label of an arrow: ``SEND_CLOSE_ERROR`` is ``send close (error)``."""
    label = given.name.lower().replace("_", " ").replace("recv", "receive")
    return label.removesuffix(" error") + " (error)" if label.endswith(" error") else label


def mermaid(table: Mapping[tuple[S, I], S], start: S, end: S) -> str:
    """A state diagram with an arrow for every entry; inputs with one effect share an arrow."""
    arrows: dict[tuple[S, S], list[str]] = {}
    for (state, given), new in table.items():
        arrows.setdefault((state, new), []).append(words(given))
    lines = ["stateDiagram-v2", f"    [*] --> {start.name}"]
    for (state, new), labels in arrows.items():
        lines.append(f"    {state.name} --> {new.name}: {', '.join(labels)}")
    if end is not start:
        lines.append(f"    {end.name} --> [*]")
    return "\n".join(lines)


def diagrams() -> dict[str, str]:
    """Every diagram by its name."""
    return {
        "connection": mermaid(CONNECTION_TABLE, ConnectionState.START, ConnectionState.END),
        "session": mermaid(SESSION_TABLE, SessionState.UNMAPPED, SessionState.UNMAPPED),
        "link": mermaid(LINK_TABLE, LinkState.DETACHED, LinkState.DETACHED),
    }


BLOCK = re.compile(r"(<!-- diagram: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def drawn(page: str) -> str:
    """The page with its diagrams as they have to be. Raises `KeyError` for an unknown one."""
    known = diagrams()
    return BLOCK.sub(lambda m: f"{m[1]}```mermaid\n{known[m[2]]}\n```\n{m[3]}", page)


def main() -> int:
    """Write the diagrams, or check them."""
    page = PAGE.read_text("utf-8")
    right = drawn(page)
    if "--check" in sys.argv[1:]:
        if page != right:
            print(f"{PAGE.name} is not what the tables say: run python -m tests.support.diagrams")
        return int(page != right)
    PAGE.write_text(right, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
