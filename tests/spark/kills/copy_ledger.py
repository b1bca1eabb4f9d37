"""The ledger: what was sent, what of it was acknowledged, and what is wrong with the target."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

# How many violations of a rule are told in full.
_EXAMPLES: Final = 5


class SentRecords:
    """The records of one producer, by their numbers. Their keys begin with its name."""

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self.acknowledged = 0
        self._acknowledged = bytearray()
        self._keys = bytearray()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: int) -> int:
        """Note that a record is about to be sent, and return its number."""
        self._keys.append(key)
        self._acknowledged.append(False)
        return len(self._keys) - 1

    def acknowledge(self, number: int) -> None:
        """Note that the broker has accepted a record."""
        self._acknowledged[number] = True
        self.acknowledged += 1

    def was_acknowledged(self, number: int) -> bool:
        """Return whether the broker has accepted a record."""
        return bool(self._acknowledged[number])

    def body_of(self, number: int) -> bytes:
        """Return the body of a record."""
        return f"{self.producer} {number}".encode()

    def key_of(self, number: int) -> str:
        """Return the partition key of a record."""
        return f"{self.producer}-{self._keys[number]}"


class CopiedRecord(NamedTuple):
    """A record of the target: its body, and where it is: broker and partition."""

    body: bytes
    place: str


class Judgement:
    """Comparison of a target with what was sent: `violations` by rule, and `examples` of them.

    | rule | |
    |---|---|
    | `lost` | an acknowledged record is not there |
    | `twice` | a record is there more than once, whether it was acknowledged or not |
    | `order` | a record is behind a later one of its key |
    | `moved` | records of a key are in two places |
    | `foreign` | a record that nobody has sent |
    """

    def __init__(self, sent: Sequence[SentRecords], copies: Iterable[CopiedRecord]) -> None:
        self.violations: Counter[str] = Counter()
        self.examples: defaultdict[str, list[str]] = defaultdict(list)
        self._sent = {one.producer: one for one in sent}
        for rule, what in self._compare(copies):
            self.violations[rule] += 1
            if len(self.examples[rule]) < _EXAMPLES:
                self.examples[rule].append(what)

    def _compare(self, copies: Iterable[CopiedRecord]) -> Iterator[tuple[str, str]]:
        found = {producer: bytearray(len(sent)) for producer, sent in self._sent.items()}
        # By key: the highest number so far, and its place.
        last: dict[str, tuple[int, str]] = {}
        for body, place in copies:
            producer, _, text = body.decode().partition(" ")
            sent = self._sent.get(producer)
            if sent is None or not text.isdigit() or int(text) >= len(sent):
                yield "foreign", f"{body!r} at {place}"
                continue
            number = int(text)
            if found[producer][number]:
                yield "twice", f"{body!r} at {place}"
                continue
            found[producer][number] = True
            key = sent.key_of(number)
            before, where = last.get(key, (-1, place))
            if place != where:
                yield "moved", f"{body!r} with key {key!r} at {place}, others at {where}"
            elif number < before:
                yield "order", f"{body!r} with key {key!r} behind number {before}"
            last[key] = (max(number, before), where)
        for producer, sent in self._sent.items():
            for number in range(len(sent)):
                if sent.was_acknowledged(number) and not found[producer][number]:
                    yield "lost", f"{sent.body_of(number)!r}"
