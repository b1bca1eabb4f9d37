"""The comparison of what is in the target with what the producers were told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tests.spark.kills.producers import KeyedProducer

# How many violations of a rule are told in full.
_EXAMPLES: Final = 5


class CopiedRecord(NamedTuple):
    """A record of the target: its body, and where it is: broker and partition."""

    body: bytes
    place: str


class Judgement:
    """What is wrong with the records of a target: how many `violations` of each rule, and
    `examples` of them.

    | rule | |
    |---|---|
    | `lost` | an acknowledged record is not there |
    | `twice` | a record is there more than once, whether it was acknowledged or not |
    | `order` | a record is behind a later one of its key |
    | `moved` | records of a key are in two places |
    | `foreign` | a record that nobody has sent |
    """

    def __init__(self, producers: Sequence[KeyedProducer], copies: Iterable[CopiedRecord]) -> None:
        self.violations: Counter[str] = Counter()
        self.examples: defaultdict[str, list[str]] = defaultdict(list)
        self._producers = {one.prefix: one for one in producers}
        for rule, what in self._compare(copies):
            self.violations[rule] += 1
            if len(self.examples[rule]) < _EXAMPLES:
                self.examples[rule].append(what)

    def _compare(self, copies: Iterable[CopiedRecord]) -> Iterator[tuple[str, str]]:
        found = {prefix: bytearray(one.sent) for prefix, one in self._producers.items()}
        # By key: the highest number so far, and its place.
        last: dict[str, tuple[int, str]] = {}
        for body, place in copies:
            prefix, _, text = body.decode().partition(" ")
            producer = self._producers.get(prefix)
            if producer is None or not text.isdigit() or int(text) >= producer.sent:
                yield "foreign", f"{body!r} at {place}"
                continue
            number = int(text)
            if found[prefix][number]:
                yield "twice", f"{body!r} at {place}"
                continue
            found[prefix][number] = 1
            key = producer.key_of(number)
            before, where = last.get(key, (-1, place))
            if place != where:
                yield "moved", f"{body!r} with key {key!r} at {place}, others at {where}"
            elif number < before:
                yield "order", f"{body!r} with key {key!r} behind number {before}"
            last[key] = (max(number, before), where)
        for prefix, producer in self._producers.items():
            for number in range(producer.sent):
                if producer.was_acknowledged(number) and not found[prefix][number]:
                    yield "lost", f"'{prefix} {number}'"
