"""What capture is told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

HOLDER: Final = "$capture"
"""Who holds what is to be captured."""


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """Where to, and when a file is closed: with so many records, bytes of messages, or
    milliseconds after the first. `raw` is whether it has the messages as they were published."""

    directory: str
    max_records: int = 1_000_000
    max_bytes: int = 256 * 1024 * 1024
    max_age: int = 300_000
    raw: bool = True

    def to_json(self) -> str:
        """For the process that writes."""
        return json.dumps(asdict(self))


def from_json(text: str) -> CaptureOptions:
    """What `to_json` has made."""
    return CaptureOptions(**json.loads(text))
