"""The readiness of the broker."""

from __future__ import annotations

from typing import NamedTuple


class Readiness(NamedTuple):
    """The readiness of the broker for connections; if it is not ready, `reason` says why."""

    ready: bool
    reason: str
