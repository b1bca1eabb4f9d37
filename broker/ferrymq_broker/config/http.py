"""Where monitoring may ask: ``[http]``."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from ferrymq_broker.config.section import Section
from ferrymq_broker.config.url import check_http_url


class Http(Section):
    """``[http]``: where monitoring may ask, ``http://HOST:PORT``; nowhere by default.

    `connections` is how many clients it has at a time at most.
    """

    url: Annotated[str, AfterValidator(check_http_url)] | None = None
    connections: int = Field(default=100, ge=1, le=65535)
