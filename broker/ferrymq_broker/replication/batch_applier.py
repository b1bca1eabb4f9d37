"""Applying batches of the shared journal to records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.shared_journal import SharedBatch
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.journal_replay import apply_now
from ferrymq_broker.store.net_effect import NetEffect
from ferrymq_broker.store.records import Records

# The bytes and changes of batches applied in one transaction. LMDB has what a transaction changes
# in memory until it ends.
BYTES_AT_ONCE: Final = 4 << 20
_CHANGES_AT_ONCE: Final = 25_000
# Changes that are read between two releases of the interpreter.
_READ_AT_ONCE: Final = 1000


def split(batches: Sequence[SharedBatch]) -> Iterator[list[SharedBatch]]:
    """Yield the batches in parts that one transaction can take."""
    part: list[SharedBatch] = []
    size = changes = 0
    for batch in batches:
        part.append(batch)
        size += len(batch.data)
        changes += batch.changes
        if size >= BYTES_AT_ONCE or changes >= _CHANGES_AT_ONCE:
            yield part
            part = []
            size = changes = 0
    if part:
        yield part


def apply_batches(records: Records, batches: Sequence[SharedBatch]) -> None:
    """Apply batches, which follow each other and the records, in one transaction.

    It takes long: call it in a thread. Raises `ReplicationError` for a batch that is not the next
    one or not valid, `StoreDamaged` for the records, `OSError`.
    """
    effect = NetEffect()
    last = records.applied
    for batch in batches:
        if batch.number != last + 1:
            raise ReplicationError(
                f"the shared journal gave batch {batch.number} where batch {last + 1} is next"
            )
        last = batch.number
        _read(effect, batch)
    apply_now(effect, records, last)


def _read(effect: NetEffect, batch: SharedBatch) -> None:
    before = effect.changes
    effect.begin(batch.data)
    try:
        while not effect.read(_READ_AT_ONCE):
            pass
    except StoreDamaged as error:
        raise ReplicationError(f"the shared journal: batch {batch.number}: {error}") from error
    if effect.changes - before != batch.changes:
        raise ReplicationError(
            f"the shared journal: batch {batch.number} has {effect.changes - before} changes "
            f"instead of {batch.changes}"
        )
