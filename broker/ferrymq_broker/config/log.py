"""What the broker says of itself, and where to: ``[log]``."""

from __future__ import annotations

from typing import Literal

from ferrymq_broker.config.paths import File
from ferrymq_broker.config.section import Section


class Log(Section):
    """``[log]``: what goes to standard error.

    `audit` is the file that logins, refusals and changes are written to, a line of JSON for each;
    without one they go where everything else goes.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    audit: File | None = None
