"""Rates and history: ``[history]``."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from ferrymq_broker.config.section import Section
from ferrymq_broker.config.units import Size

MIB: Final = 1024 * 1024


class History(Section):
    """``[history]``: whether the broker samples the counters of all nodes every 5 s, and how many
    bytes the samples may take.

    Nodes that are used when the samples take `max_bytes` have rates, but no history.
    """

    enabled: bool = True
    max_bytes: Annotated[Size, Field(ge=0)] = 64 * MIB
