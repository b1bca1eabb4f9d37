"""The files of a member on a simulated disk, with records in memory."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from ferrymq_broker.replication.member_files import MemberFiles, RecordsCopy
from ferrymq_broker.replication.shared_journal import Position
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.durable_store import DurableStore, StoreOptions
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.format_file import write_clean, write_format
from ferrymq_broker.store.head_file import HeadContent, HeadFile
from ferrymq_broker.store.records import Records
from ferrymq_broker.store.replica_file import write_replica
from tests.simulation.disk import SimulatedDisk, SimulatedFolder
from tests.support.memory_records import MemoryDisk, MemoryRecords


class MemoryCopy(RecordsCopy):
    """A copy of records in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.is_closed = False

    def read(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]

    def close(self) -> None:
        self.is_closed = True


class MemoryFiles(MemberFiles):
    """The files of a member. `asides` are the records that were set aside."""

    def __init__(
        self,
        disk: SimulatedDisk,
        records: MemoryDisk,
        cluster: str,
        options: StoreOptions,
        open_records: Callable[[MemoryDisk], Records] = MemoryRecords,
    ) -> None:
        self.disk = disk
        self.records = records
        self.cluster = cluster
        self.options = options
        self.asides: list[MemoryDisk] = []
        self._open_records = open_records
        self._is_loading = False
        self._loaded = b""

    def open(self) -> DurableStore:
        if self._is_loading:
            self._empty()
            self._is_loading = False
        return DurableStore(
            SimulatedFolder(self.disk),
            lambda clean: self._open_records(self.records),
            Changes(),
            self.options,
            cluster=self.cluster,
        )

    def set_aside(self) -> str:
        aside = MemoryDisk()
        aside.stored, aside.applied = self.records.stored, self.records.applied
        self.asides.append(aside)
        self._is_loading = True
        self._empty()
        return f"aside {len(self.asides)}"

    def _empty(self) -> None:
        self.disk.names = {}
        self.disk.synced_names = {}
        self.records.stored, self.records.applied = {}, -1

    def begin_load(self) -> None:
        self._is_loading = True
        self._empty()
        self._loaded = b""

    def load(self, data: bytes) -> None:
        self._loaded += data

    def finish_load(self, position: Position) -> None:
        self.records.stored, self.records.applied = pickle.loads(self._loaded)
        folder = SimulatedFolder(self.disk)
        HeadFile.create(folder, HeadContent(position.number, "")).close()
        write_replica(folder, self.cluster)
        write_clean(folder, position.number)
        write_format(folder)
        self._is_loading = False

    def copy(self, records: Records, is_cancelled: Callable[[], bool]) -> RecordsCopy:
        if is_cancelled():
            raise StoreError("the copy of the records was given up")
        return MemoryCopy(pickle.dumps((self.records.stored, self.records.applied)))
