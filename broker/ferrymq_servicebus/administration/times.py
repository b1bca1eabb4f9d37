"""Times as texts."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(seconds: float) -> str:
    """Return a time in seconds since the epoch as a text."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds_of(text: str) -> int:
    """Return milliseconds since the epoch; a time without a zone is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
