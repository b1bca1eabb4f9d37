"""The options of capture."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

HOLDER: Final = "$capture"
"""The name of capture as the holder of streams."""


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The directory, and the limits at which a file is closed: records, bytes of messages, and
    milliseconds after the first record. `raw` says whether files contain the encoded messages
    too."""

    directory: str
    max_records: int = 1_000_000
    max_bytes: int = 256 * 1024 * 1024
    max_age: int = 300_000
    raw: bool = True

    def to_json(self) -> str:
        """Return the options as text for the process that writes files."""
        return json.dumps(asdict(self))


def from_json(text: str) -> CaptureOptions:
    """Return the options from the result of `to_json`."""
    return CaptureOptions(**json.loads(text))
