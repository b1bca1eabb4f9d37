"""The input of pipelines: streams by name or by pattern, and the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_ferrymq.errors import AmqpOptionError

_PLACES: Final = ("earliest", "latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Streams, by name or by a regular expression, and the start for a query without a checkpoint:
    ``earliest``, ``latest``, JSON with offsets, or a time in milliseconds. `limit` is the highest
    number of records in one batch of a query.

    Raises `AmqpOptionError` unless exactly one of `streams` and `pattern` is given.
    """

    streams: tuple[str, ...] = ()
    pattern: str | None = None
    start: str = "earliest"
    end: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if bool(self.streams) == (self.pattern is not None):
            raise AmqpOptionError("choose streams: give their names, or --pattern REGEX")

    def batch(self) -> dict[str, str]:
        """Return the options for a batch."""
        options = {**self._streams(), **_bound("starting", self.start)}
        return options if self.end is None else {**options, **_bound("ending", self.end)}

    def stream(self, once: bool) -> dict[str, str]:
        """Return the options for a query, which ends with what there is if `once` is true."""
        options = {**self._streams(), **_bound("starting", self.start)}
        if self.limit is not None:
            options["maxOffsetsPerTrigger"] = str(self.limit)
            if not once:
                options["trigger"] = "processingTime"
        return options

    def _streams(self) -> dict[str, str]:
        if self.pattern is not None:
            return {"subscribePattern": self.pattern}
        return {"subscribe": ",".join(self.streams)}


def _bound(which: str, text: str) -> dict[str, str]:
    text = text.strip()
    if text in _PLACES or text.startswith("{"):
        return {f"{which}Offsets": text}
    options = {f"{which}Timestamp": str(milliseconds(text))}
    if which == "starting":
        # A partition that has no record of this time or later begins with its next record.
        options["startingOffsetsByTimestampStrategy"] = "latest"
    return options


def milliseconds(text: str) -> int:
    """Parse a time: milliseconds since 1970, or ISO 8601, in UTC if it has no time zone."""
    from datetime import UTC, datetime

    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise AmqpOptionError(
            f"{text!r} is not a time: give it as 2026-05-01T12:00, or milliseconds since 1970; for"
            ' positions, earliest, latest or {"orders":{"0":23}}'
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
