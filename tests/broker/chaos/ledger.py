"""What has ever been seen of the records of streams, by anybody: it must never be anything else.

What a broker has shown to one reader it has to show to all others, whatever becomes of the broker.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from ferrymq_types.messaging import ApplicationProperties
from tests.broker.harness import decode

# A partition: which stream, by its incarnation, and which of its partitions.
Part = tuple[UUID, int]

# What readers of chunks ask for, and the same as this file understands it.
SELECTORS = ("colour = 'red'", "colour <> 'red'", "number > 50", "colour = 'none'")


class Record(NamedTuple):
    """One record. `time` is in milliseconds since the epoch."""

    payload: bytes
    time: int
    format: int


class Ledger:
    """The records of every partition there has been, by their offsets."""

    def __init__(self) -> None:
        self._parts: dict[Part, dict[int, Record]] = {}

    def of(self, part: Part) -> dict[int, Record]:
        """What is known of a partition."""
        return self._parts.setdefault(part, {})

    def see(self, part: Part, offset: int, record: Record) -> None:
        """Somebody was shown this. Raises `AssertionError` if others have seen something else."""
        records = self.of(part)
        known = records.setdefault(offset, record)
        assert known == record, f"record {offset} was {known}, and is {record}"
        for other, before in ((offset - 1, True), (offset + 1, False)):
            neighbour = records.get(other)
            if neighbour is not None:
                first, second = (neighbour, record) if before else (record, neighbour)
                assert first.time <= second.time, f"times fall at {offset}"


def passes(payload: bytes, selector: str | None) -> bool:
    """Whether a message of a play passes one of the `SELECTORS`."""
    if selector is None:
        return True
    sections = decode(payload)
    facts = next((s.value for s in sections if isinstance(s, ApplicationProperties)), None)
    if facts is None:
        # Of what is not there nothing is true.
        return False
    number = facts["number"]
    assert isinstance(number, int)
    answers = (facts["colour"] == "red", facts["colour"] != "red", number > 50, False)
    return answers[SELECTORS.index(selector)]
