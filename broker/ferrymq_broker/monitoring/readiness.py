"""Whether the broker is ready for clients."""

from __future__ import annotations

from typing import NamedTuple


class Readiness(NamedTuple):
    """Whether the broker takes connections; if not, `reason` says why."""

    ready: bool
    reason: str
