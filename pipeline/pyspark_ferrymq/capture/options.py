"""The options of the capture sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.options.connection import BrokerOptions
from pyspark_ferrymq.options.names import CONNECTION, SPARK
from pyspark_ferrymq.options.option_values import Values

OWN: Final = ("path", "allowGaps", "maxRecordsPerFile")
"""The options that only this sink has."""

_KNOWN: Final = {name.lower(): name for name in (*OWN, *CONNECTION, *SPARK)}


@dataclass(frozen=True, kw_only=True)
class CaptureSinkOptions:
    """The options of the sink. `connection` is None if files are not compared with the broker."""

    path: str
    connection: BrokerOptions | None = None
    allow_gaps: bool = False
    max_records_per_file: int = 1_000_000

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> CaptureSinkOptions:
        """Parse options. Raises `AmqpOptionError` for the first wrong one."""
        for name in options:
            if name.lower() not in _KNOWN:
                close = get_close_matches(name.lower(), _KNOWN, n=1)
                guess = f"; did you mean {_KNOWN[close[0]]!r}?" if close else ""
                raise AmqpOptionError(
                    f"there is no option {name!r} of amqp_capture{guess}"
                    f" (options: {', '.join((*OWN, *CONNECTION))})"
                )
        given = Values(options)
        most = given.number("maxRecordsPerFile", 1)
        return cls(
            path=given.required("path"),
            connection=BrokerOptions.parse(given) if given.has("url") else None,
            allow_gaps=given.flag("allowGaps", False),
            max_records_per_file=cls.max_records_per_file if most is None else most,
        )
