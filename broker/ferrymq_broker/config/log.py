"""The log and the audit log: ``[log]``."""

from __future__ import annotations

from typing import Literal

from ferrymq_broker.config.paths import File
from ferrymq_broker.config.section import Section


class Log(Section):
    """``[log]``: the log that the broker writes to standard error.

    `audit` is the file for logins, refusals and changes, one line of JSON for each. Without `audit`
    these entries go to standard error too.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    audit: File | None = None
