"""Where clients connect: ``[[listener]]``."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from ferrymq_broker.config.section import Section
from ferrymq_broker.config.url import ListenAddress, parse_listen_url


def _check_url(url: str) -> str:
    parse_listen_url(url)
    return url


class Listener(Section):
    """``[[listener]]``: an address clients connect to."""

    url: Annotated[str, AfterValidator(_check_url)]

    @property
    def address(self) -> ListenAddress:
        """The URL taken apart."""
        return parse_listen_url(self.url)
