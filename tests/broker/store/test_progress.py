"""How far recovery is, told as a share of all records."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ferrymq_broker.broker import Broker
from ferrymq_broker.recovery.recover import recover
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from ferrymq_broker.store.lmdb_records import LmdbRecords
from ferrymq_broker.values.policy import QueuePolicy
from tests.broker.store.kit import SMALL, ManualExecutor


def open_broker(path: Path) -> tuple[Broker, DurableStore]:
    broker = Broker(lambda call: None, lambda due: None, 0.0)
    store = DurableStore.open(path, broker.agenda.changes, StoreOptions(segment_bytes=SMALL))
    broker.begin_pass(1000.0)
    return broker, store


def test_progress_says_how_many_records_there_are(tmp_path: Path) -> None:
    broker, store = open_broker(tmp_path)
    broker.keep(store)
    executor = ManualExecutor()
    store.start(executor, lambda: broker.on_stable(1000.0), lambda reason: None, lambda on: None)
    for number in range(7):
        broker.default.create(f"queue-{number}", QueuePolicy())
    broker.finish_pass()
    executor.run()
    store.close()
    with contextlib.closing(LmdbRecords(tmp_path)) as records:
        count = records.count()
    assert count > 7
    broker, store = open_broker(tmp_path)
    assert store.count() == count
    told: list[tuple[str, int, int]] = []
    recover(broker, store, lambda *said: told.append(said))
    assert told
    assert {total for _, _, total in told} == {count}
    store.close()
