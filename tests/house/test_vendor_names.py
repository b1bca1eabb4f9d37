"""The broker has no names of other vendors; packages that it does not import have them."""

from __future__ import annotations

import re
from pathlib import Path

BROKER = Path(__file__).parents[2] / "broker" / "ferrymq_broker"
ON_THE_WIRE = re.compile(r"com\.microsoft|servicebus|@latest|eventhub", re.IGNORECASE)


def test_the_broker_has_no_names_of_a_vendor() -> None:
    found = {
        path.relative_to(BROKER).as_posix()
        for path in BROKER.rglob("*.py")
        if ON_THE_WIRE.search(path.read_text(encoding="utf-8"))
    }
    assert found == set()
