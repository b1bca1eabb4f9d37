"""Store commands and the store of a cluster's member."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrymq_broker.cli.store.integrity import check
from ferrymq_broker.cli.store.json_lines import line_of
from ferrymq_broker.cli.store.merge import moved
from ferrymq_broker.cli.store.offline_store import opened
from ferrymq_broker.store.changes import Changes
from ferrymq_broker.store.disk import RealFolder
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.errors import StoreError
from ferrymq_broker.store.map_values import encode_map
from ferrymq_broker.store.records import Record
from ferrymq_broker.store.replica_file import REPLICA_NAME
from ferrymq_broker.store.tables import TERM
from tests.broker.replication.kit import CLUSTER, LeaderStore


def fill(path: Path) -> None:
    """A member's store, closed; then a segment of its journal that is torn."""
    store = DurableStore.open(path, Changes(), cluster=CLUSTER)
    leader = LeaderStore(store)
    leader.appender.answer()
    leader.executor.run()
    store.close()
    (path / "clean").unlink()
    (path / f"journal-{2:016}-65536").write_bytes(b"torn")
    (path / "head").write_bytes(b"torn")


def test_verify_knows_the_term_and_reads_no_journal(tmp_path: Path) -> None:
    fill(tmp_path)
    contents = check(RealFolder(tmp_path), lambda what, done, total: None)
    assert contents.findings == []
    assert contents.records == {"term": 1}
    assert contents.applied == 1


def test_verify_finds_a_damaged_mark(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / REPLICA_NAME).write_bytes(b"ferrymq replica\n")
    contents = check(RealFolder(tmp_path), lambda what, done, total: None)
    assert [Path(found.file).name for found in contents.findings] == [REPLICA_NAME]


def test_other_commands_refuse_it(tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(StoreError, match="ferrymq store restore"), opened(tmp_path):
        pass


def test_a_merge_leaves_the_term_at_its_key() -> None:
    fields = {"table": "term", "id": 0, "number": 0, "value": {"term": 3}}
    assert moved(fields, 100) == fields
    line = line_of(TERM, Record(0, 0, encode_map({"term": 3})))
    assert line == '{"table": "term", "id": 0, "number": 0, "value": {"term": 3}}'
