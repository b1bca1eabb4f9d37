"""The store's directory and limits: ``[store]``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from ferrymq_broker.config.section import Section
from ferrymq_broker.config.units import Share, Size

MIB: Final = 1024 * 1024
# Bytes of messages that may be in memory by default. With this a broker with 500 000 messages of
# 1 KiB takes less than 216 MiB.
PAGE_OUT: Final = 40 * MIB
# The lowest number of journal segments: one is being written, one applied, two are spare.
_FEWEST: Final = 4


def _directory(value: object) -> object:
    if value == "":
        raise ValueError("the path is empty; to use no store, leave the key out")
    if isinstance(value, str) and "\0" in value:
        raise ValueError("a path cannot contain NUL")
    return value


class Store(Section):
    """``[store]``: the directory of the store; without one everything is in memory.

    `max_bytes` limits all files of the store together; 0 means that only the disk limits them. The
    disk alarm begins before the limit. `segment_bytes` is the size of a file of the journal.
    `page_out` is how many bytes of messages, or which part of the memory alarm, may be in memory
    before queues page out; with 0 they never do. The default is `PAGE_OUT`, or half of the memory
    alarm if that is less.
    """

    path: Annotated[Path, BeforeValidator(_directory)] | None = None
    max_bytes: Size = 0
    segment_bytes: Annotated[Size, Field(ge=64 * 1024, le=1024 * MIB)] = 16 * MIB
    page_out: Share | None = None

    def least_bytes(self) -> int:
        """Return the lowest `max_bytes` above 0: the bytes that the journal alone needs."""
        return _FEWEST * self.segment_bytes + MIB
