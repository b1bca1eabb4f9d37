"""A store in memory, which a test holds in its hand.

store = ManualStore()
net = Network(store=store)
store.held = True           # from now on no batch gets to disk
...
store.release()             # what has come together is on disk now
net.restart()               # the machine stops, and starts with what was on disk
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from librt.strings import read_i32_be, read_i64_be

from ferrymq_broker.store.changes import DROP, DROP_RANGE, PUT, Changes
from ferrymq_broker.store.keys import encode_key, is_intact
from ferrymq_broker.store.records import Record
from ferrymq_broker.store.store import Store

Key = tuple[int, int, int]


class ManualStore(Store):
    """Records in a dictionary: those of all batches that have been completed.

    A batch that was taken is completed by `complete`, unless it is `held`.
    """

    def __init__(self) -> None:
        self.records: dict[Key, bytes] = {}
        self.batches = 0
        self.held = False
        self.batch: bytes | None = None
        self.taken: Callable[[], object] = lambda: None
        self.changes = Changes()
        # What the broker left, and after how many batches.
        self._left: tuple[int, list[bytes]] = (0, [])

    @property
    def applied(self) -> int:
        """Records are there as soon as their batch is."""
        return self.batches

    def open(self, changes: Changes, taken: Callable[[], object]) -> None:
        """A new broker has these changes; a batch that was under way is lost. `taken` is called
        when there is a batch to be completed."""
        self.changes = changes
        self.taken = taken
        self.batch = None
        changes.enabled = True
        changes.number = self.batches + 1
        changes.stable = self.batches

    def push(self) -> None:
        """Take the batch, if there is one and no other is under way."""
        if self.batch is None and self.changes.count:
            self.batch = b"".join(self.changes.close())
            self.taken()

    def complete(self) -> bool:
        """The batch is on disk, if there is one; the broker has to be told if so."""
        if self.batch is None or self.held:
            return False
        apply(self.batch, self.records)
        self.batch = None
        self.batches += 1
        return True

    def leave(self, paged_out: list[bytes]) -> None:
        """The broker was stopped in good order, and leaves this for the next."""
        assert self.batch is None and not self.changes.count
        self._left = (self.batches, paged_out)

    def take_paged_out(self) -> list[bytes]:
        """What was left, if nothing has been changed since."""
        batches, blocks = self._left
        self._left = (0, [])
        return blocks if batches == self.batches else []

    def release(self) -> None:
        """Nothing is held back any more; `Network.run` completes it."""
        self.held = False
        if self.batch is not None:
            self.taken()

    def get(self, table: int, id: int, number: int) -> bytes | None:
        """The value of a record."""
        return self.records.get((table, id, number))

    def scan(self, table: int) -> Iterator[Record]:
        """All records of a table by id and number."""
        for key in sorted(key for key in self.records if key[0] == table):
            yield Record(key[1], key[2], self.records[key])

    def count(self, table: int | None = None) -> int:
        """How many records of a table there are, or of all."""
        return sum(table is None or key[0] == table for key in self.records)


def apply(batch: bytes, records: dict[Key, bytes]) -> None:
    """Let the records be what the batch says."""
    at = 0
    while at < len(batch):
        kind, table, id = batch[at], batch[at + 1], int(read_i64_be(batch, at + 2))
        number = int(read_i64_be(batch, at + 10))
        at += 18
        if kind == PUT:
            size = read_i32_be(batch, at)
            value = batch[at + 8 : at + 8 + size]
            assert len(value) == size
            assert is_intact(encode_key(table, id, number), batch[at + 4 : at + 8 + size])
            records[table, id, number] = value
            at += 8 + size
        elif kind == DROP:
            records.pop((table, id, number), None)
        else:
            assert kind == DROP_RANGE
            last = int(read_i64_be(batch, at))
            at += 8
            for key in [k for k in records if k[:2] == (table, id) and number <= k[2] <= last]:
                del records[key]
