"""What clients of another vendor's broker expect is in one module."""

from __future__ import annotations

import re
from pathlib import Path

BROKER = Path(__file__).parents[2] / "broker" / "ferrymq_broker"
ON_THE_WIRE = re.compile(r"com\.microsoft|servicebus|@latest|eventhub", re.IGNORECASE)


def test_names_of_a_vendor_are_in_one_module() -> None:
    found = {
        path.relative_to(BROKER).as_posix()
        for path in BROKER.rglob("*.py")
        if ON_THE_WIRE.search(path.read_text(encoding="utf-8"))
    }
    # `server.py` installs it.
    assert found == {"server/event_hubs.py"}
