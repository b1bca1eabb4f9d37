"""The log and the audit log: ``[log]``."""

from __future__ import annotations

from typing import Literal

from ferrymq_broker.config.paths import File
from ferrymq_broker.config.section import Section


class Log(Section):
    """``[log]``: what the broker writes to standard error.

    `audit` is the file for logins, refusals and changes, a line of JSON for each; without it they
    go to standard error like all other messages.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    audit: File | None = None
