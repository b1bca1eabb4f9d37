"""Where the broker keeps what is to outlive it, and how much of it there may be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from ferrymq_broker.config.section import Section
from ferrymq_broker.config.units import Share, Size

MIB: Final = 1024 * 1024
# Segments a journal has at least: one that is written, one that is applied, two in reserve.
_FEWEST: Final = 4


def _directory(value: object) -> object:
    if value == "":
        raise ValueError("a directory is needed; without a store leave the key out")
    if isinstance(value, str) and "\0" in value:
        raise ValueError("a path has no NUL")
    return value


class Store(Section):
    """``[store]``: the directory of the store; without one everything is in memory.

    `max_bytes` is what all files of the store together may have, 0 whatever the disk has room for;
    the disk alarm begins before. `segment_bytes` is the size of a file of the journal. `page_out`
    is how many bytes of messages, or which part of what raises the memory alarm, may be in memory
    before queues leave their messages on disk only; 0 is as many as there are.
    """

    path: Annotated[Path, BeforeValidator(_directory)] | None = None
    max_bytes: Size = 0
    segment_bytes: Annotated[Size, Field(ge=64 * 1024, le=1024 * MIB)] = 32 * MIB
    page_out: Share = "50%"

    def least_bytes(self) -> int:
        """What `max_bytes` must be if there is a limit: the journal alone takes as much."""
        return _FEWEST * self.segment_bytes + MIB
