"""Counts of the sent messages, with which the results of a pipeline can be compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256

from pyspark_ferrymq.traffic.scenario import TrafficEvent


@dataclass(slots=True)
class Counted:
    """The counts of one address. `bytes` is the size of all bodies together."""

    messages: int = 0
    bytes: int = 0
    late: int = 0
    duplicates: int = 0
    keys: set[str] = field(default_factory=set)
    poison: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, object]:
        """Return the counts in the form that is printed."""
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "late": self.late,
            "duplicates": self.duplicates,
            "keys": len(self.keys),
            "poison": dict(sorted(self.poison.items())),
        }


class Ledger:
    """The counts of all messages, by address, and a digest of them."""

    def __init__(self) -> None:
        self.addresses: dict[str, Counted] = {}
        self._digest = sha256()

    def enter(self, address: str, event: TrafficEvent) -> None:
        """Count a message."""
        counted = self.addresses.setdefault(address, Counted())
        counted.messages += 1
        counted.bytes += len(event.body)
        counted.late += event.late
        counted.duplicates += event.duplicate
        counted.keys.add(event.key)
        if event.poison is not None:
            counted.poison[event.poison] += 1
        head = f"{address}\0{event.message_id}\0{event.key}\0{event.schema}\0{event.delay}\0"
        self._digest.update(head.encode() + len(event.body).to_bytes(4) + event.body)

    @property
    def messages(self) -> int:
        """The number of messages."""
        return sum(counted.messages for counted in self.addresses.values())

    @property
    def digest(self) -> str:
        """The SHA-256 of the messages in order, without their times of sending."""
        return self._digest.hexdigest()

    def as_json(self) -> dict[str, object]:
        """Return the counts in the form that is printed."""
        return {
            "messages": self.messages,
            "digest": self.digest,
            "addresses": {
                address: counted.as_json() for address, counted in sorted(self.addresses.items())
            },
        }
