"""A check of all data of a store that no broker uses. It changes nothing."""

from __future__ import annotations

import json
import os
import signal
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb

from ferrymq_broker.cli.store.json_lines import line_of
from ferrymq_broker.store.changes import DROP, DROP_RANGE, PUT
from ferrymq_broker.store.disk import RealFolder
from ferrymq_broker.store.errors import StoreDamaged, StoreError
from ferrymq_broker.store.format_file import FORMAT, read_format
from ferrymq_broker.store.head_file import (
    HEAD_NAME,
    HeadContent,
    read_head,
    require_batches,
    require_whole,
)
from ferrymq_broker.store.in_use_file import IN_USE_NAME, require_original
from ferrymq_broker.store.keys import APPLIED_KEY, describe_key, is_intact
from ferrymq_broker.store.lmdb_file import check_file
from ferrymq_broker.store.lmdb_records import DATA_NAME
from ferrymq_broker.store.records import Record
from ferrymq_broker.store.replica_file import REPLICA_NAME, read_replica
from ferrymq_broker.store.segments import JournalFrame, JournalReader, find_segments
from ferrymq_broker.store.tables import NAMES

# Called with the name of the step, how much of it is done, and how much there is to do.
Progress = Callable[[str, int, int], None]

_KEY_BYTES: Final = 17
_SIZE: Final = struct.Struct(">I")
# The size of a change without its value: its kind, its key, and the rest.
_HEADS: Final = {PUT: 1 + _KEY_BYTES + 8, DROP: 1 + _KEY_BYTES, DROP_RANGE: 1 + _KEY_BYTES + 8}
# Records between two reports of progress.
_OFTEN: Final = 1000
# Seconds after which the reading of damaged pages is given up.
_PATIENCE: Final = 60
# Further findings are only counted.
MOST_FINDINGS: Final = 1000


class Finding(NamedTuple):
    """Something wrong: the file and the reason."""

    file: str
    reason: str


class Contents:
    """The result of a check: `records` by table, changes and batches of the journal, and
    findings."""

    def __init__(self) -> None:
        self.records: Counter[str] = Counter()
        self.batches = 0
        self.changes = 0
        self.applied = 0
        self.last = 0
        self.findings: list[Finding] = []
        # The number of findings, including those that are not in the list.
        self.found: int = 0

    def add(self, file: Path, reason: str) -> None:
        """Add a finding."""
        if any(found.reason.endswith(reason) for found in self.findings):
            return
        self.found += 1
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(Finding(str(file), reason))


def check(folder: RealFolder, progress: Progress) -> Contents:
    """Read every record and every frame of a locked folder. Raises `StoreVersionError`."""
    contents = Contents()
    try:
        format = read_format(folder)
    except StoreDamaged as error:
        contents.add(folder.path / "format", str(error))
        return contents
    assert format is not None
    try:
        require_original(folder)
    except StoreDamaged as error:
        contents.add(folder.path / IN_USE_NAME, str(error))
    try:
        # A member reads the batches from its cluster; its own journal may be torn.
        is_replica = bool(read_replica(folder))
    except StoreDamaged as error:
        contents.add(folder.path / REPLICA_NAME, str(error))
        is_replica = True
    head: HeadContent | None = None
    if format.version >= FORMAT and not is_replica:
        try:
            head = read_head(folder)
        except StoreDamaged as error:
            contents.add(folder.path / HEAD_NAME, str(error))
    if _check_records(folder.path, contents, progress) and not is_replica:
        _check_journal(folder, format.secret, contents, progress)
        if head is not None and not contents.found:
            try:
                require_whole(folder, head, contents.applied)
                require_batches(folder, head, contents.last)
            except StoreDamaged as error:
                contents.add(folder.path, str(error))
    return contents


# -- records ----------------------------------------------------------------------------------


def _check_records(path: Path, contents: Contents, progress: Progress) -> bool:
    """Read all records. Return whether they can be read at all, damaged or not.

    LMDB trusts the contents of a damaged page, and the process may crash or loop because of it. So
    a child process reads the records.
    """
    file = path / DATA_NAME
    if not file.exists():
        contents.add(file, "the file is missing")
        return False
    try:
        check_file(file, lambda done, total: progress("pages", done, total))
    except StoreDamaged as error:
        contents.add(file, str(error))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            if contents.found:
                signal.alarm(_PATIENCE)
            with os.fdopen(writer, "w", encoding="utf-8") as pipe:
                for report in _read_records(file):
                    pipe.write(json.dumps(report) + "\n")
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    told = False
    with os.fdopen(reader, encoding="utf-8") as pipe:
        for line in pipe:
            report = json.loads(line)
            if "found" in report:
                contents.add(file, report["found"])
            elif "done" in report:
                progress("records", report["done"], report["total"])
            else:
                told = True
                contents.records.update(report["records"])
                contents.applied = contents.last = report["applied"]
    _, status = os.waitpid(child, 0)
    if status != 0 or not told:
        if contents.found:
            # The reason has been found already.
            return False
        contents.add(file, f"it cannot be read to its end: {_ended(status)}")
        return False
    return True


def _ended(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"reading it ends with signal {os.WTERMSIG(status)}"
    return "reading it fails"


def _read_records(file: Path) -> Iterator[dict[str, object]]:
    """Yield findings and progress, and at the end the counts."""
    try:
        environment = lmdb.open(str(file.parent), readonly=True, lock=False, max_dbs=0)
    except lmdb.Error as error:
        yield {"found": f"LMDB cannot read it: {error}"}
        return
    try:
        yield from _read_tree(environment)
    except lmdb.Error as error:
        yield {"found": f"a page is damaged: {error}"}
    finally:
        environment.close()


def _read_tree(environment: Any) -> Iterator[dict[str, object]]:
    with environment.begin() as txn:
        total: int = environment.stat()["entries"]
        records: Counter[str] = Counter()
        applied = 0
        done = 0
        before = b""
        with txn.cursor() as cursor:
            for key, stored in cursor:
                done += 1
                if done > total:
                    break
                if done % _OFTEN == 0:
                    yield {"done": done, "total": total}
                if key <= before:
                    yield {"found": f"{describe_key(key)} is out of order"}
                before = key
                if key == APPLIED_KEY:
                    applied = int.from_bytes(stored[4:], "big")
                    continue
                wrong = wrong_with(key, stored)
                if wrong:
                    yield {"found": wrong}
                else:
                    records[NAMES[key[0]]] += 1
        if done != total:
            yield {"found": f"{done} records can be found, but there should be {total}"}
        yield {"records": dict(records), "applied": applied}


def wrong_with(key: bytes, stored: bytes) -> str:
    """Return what is wrong with a record; empty if it is valid. `stored` is checksum and value."""
    if len(key) != _KEY_BYTES or key[0] not in NAMES:
        return f"{describe_key(key)} belongs to no table"
    if not is_intact(key, stored):
        return f"{describe_key(key)} is damaged: its checksum is wrong"
    id, number = int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:], "big")
    try:
        line_of(key[0], Record(id, number, bytes(stored[4:])))
    except StoreError as error:
        return str(error)
    return ""


# -- the journal ------------------------------------------------------------------------------


def _check_journal(
    folder: RealFolder, secret: bytes, contents: Contents, progress: Progress
) -> None:
    try:
        segments = find_segments(folder)
    except StoreDamaged as error:
        contents.add(folder.path, str(error))
        return
    total = sum(segment.capacity for segment in segments)
    done = 0
    reader = JournalReader(folder, secret, segments, contents.applied)
    try:
        for frame in reader.frames():
            done += frame.header.size
            progress("journal", done, total)
            _check_frame(folder, frame, contents)
        contents.last = reader.last
    except StoreDamaged as error:
        contents.add(folder.path, str(error))
    except OSError as error:
        contents.add(Path(error.filename or folder.path), error.strerror or str(error))
    finally:
        for segment in segments:
            segment.file.close()


def _check_frame(folder: RealFolder, frame: JournalFrame, contents: Contents) -> None:
    if frame.header.number > contents.applied:
        contents.batches += 1
    file = folder.path / frame.segment.name
    count = 0
    try:
        for kind, key, stored in changes_of(frame.batch):
            count += 1
            wrong = wrong_with(key, stored) if kind == PUT else ""
            if wrong:
                contents.add(file, f"batch {frame.header.number}: {wrong}")
    except StoreDamaged as error:
        contents.add(file, f"batch {frame.header.number}: {error}")
        return
    contents.changes += count
    if count != frame.header.changes:
        reason = f"{count} changes, but its header says {frame.header.changes}"
        contents.add(file, f"batch {frame.header.number} has {reason}")


def changes_of(batch: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the changes of a batch: kind, key, and for a put checksum and value.

    Raises `StoreDamaged`.
    """
    at = 0
    while at < len(batch):
        kind = batch[at]
        end = at + _HEADS.get(kind, len(batch))
        if end > len(batch):
            raise StoreDamaged(f"an invalid change is at byte {at}")
        key = batch[at + 1 : at + 1 + _KEY_BYTES]
        if kind == PUT:
            (size,) = _SIZE.unpack_from(batch, at + 1 + _KEY_BYTES)
            begin = end - 4
            end += size
            if end > len(batch):
                raise StoreDamaged(f"the change at byte {at} is incomplete")
            yield kind, key, batch[begin:end]
        else:
            yield kind, key, b""
        at = end
