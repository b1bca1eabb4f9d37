"""The transcripts of RabbitMQ, and the judged differences from them.

`transcripts.json` is what RabbitMQ has said, by script. The differences that are judged are in the
table of docs/decisions/0029-differences-from-rabbitmq.md: a row for each script, with what RabbitMQ
says, what ferrymq says instead, and the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from tests.interop.amqp_0_9_1.clients import HERE, RabbitmqUnderTest
from tests.interop.amqp_0_9_1.scripts import SCRIPTS
from tests.interop.features.client_process import ROOT

RECORD: Final = HERE / "transcripts.json"
PAGE: Final = ROOT / "docs/decisions/0029-differences-from-rabbitmq.md"
_ROW: Final = re.compile(r"^\| `([\w-]+)` \| (.*?) \| (.*?) \| (.+?) \|$", re.MULTILINE)
_NOTHING: Final = "nothing"


def record() -> None:
    """Play all scripts on RabbitMQ, and write what it says."""
    broker = RabbitmqUnderTest()
    try:
        said = {script.name: script.transcript(broker.site.port) for script in SCRIPTS}
    finally:
        broker.close()
    RECORD.write_text(json.dumps(said, indent=1, sort_keys=True) + "\n", "utf-8")


def recorded() -> dict[str, list[str]]:
    """Return what RabbitMQ has said, by script."""
    found: dict[str, list[str]] = json.loads(RECORD.read_text("utf-8"))
    return found


def judged() -> dict[str, tuple[str, str]]:
    """Return the cells of the table in the decision, by script."""
    if not PAGE.exists():
        return {}
    return {name: (theirs, ours) for name, theirs, ours, _ in _ROW.findall(PAGE.read_text("utf-8"))}


def difference(theirs: Sequence[str], ours: Sequence[str]) -> tuple[str, str] | None:
    """Return the cells of a difference: from the first line that differs to the last one."""
    theirs, ours = list(theirs), list(ours)
    if theirs == ours:
        return None
    while theirs and ours and theirs[0] == ours[0]:
        del theirs[0], ours[0]
    while theirs and ours and theirs[-1] == ours[-1]:
        del theirs[-1], ours[-1]
    return _cell(theirs), _cell(ours)


def _cell(lines: Sequence[str]) -> str:
    return "; ".join(f"`{line.replace('|', '/')}`" for line in lines) or _NOTHING


def row(name: str, cells: tuple[Any, Any]) -> str:
    """Return a row of the table, for who has to judge it."""
    return f"| `{name}` | {cells[0]} | {cells[1]} | … |"
