"""Appending of batches to the table `ferrymq.batch`."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import google_crc32c

from ferrymq_broker.event_log import log
from ferrymq_broker.replication.errors import JournalUnavailable, LeaseLost, ReplicationError
from ferrymq_broker.replication.postgresql.connection import DatabaseConnection
from ferrymq_broker.replication.postgresql.statements import (
    BEGIN,
    COMMIT,
    DatabaseCall,
    PreparedStatement,
    Step,
    boolean,
    converted,
    integer,
)
from ferrymq_broker.replication.shared_journal import Done

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

# The most bytes of a part. A server keeps several copies of a value in memory.
PART_BYTES: Final = 16 << 20

_KEY: Final = struct.Struct(">qqii")
_crc: Final[Any] = google_crc32c.value
_extend_crc: Final[Any] = google_crc32c.extend

# The lock of the key is kept until the commit, and a change of the term has to wait for it. If the
# term is changing, the statement waits and looks again, so an old term finds no row. A cluster
# without batches goes on after its newest snapshot.
_APPEND: Final = PreparedStatement(
    "append",
    """
    WITH fence AS (
        SELECT 1 FROM ferrymq.lease WHERE cluster = $1::text AND term = $2::bigint FOR KEY SHARE
    )
    INSERT INTO ferrymq.batch (cluster, number, part, parts, term, changes, total, crc, data)
    SELECT $1::text, $3::bigint, 0, $4::integer, $2::bigint, $5::integer,
        coalesce(last.total, 0) + octet_length($7::bytea), $6::bigint, $7::bytea
    FROM fence LEFT JOIN (
        SELECT number, total FROM ferrymq.batch WHERE cluster = $1::text
        ORDER BY number DESC, part DESC LIMIT 1
    ) AS last ON true
    WHERE $3::bigint - 1 = coalesce(last.number, (
        SELECT max(number) FROM ferrymq.snapshot WHERE cluster = $1::text AND created IS NOT NULL
    ), 0)
    """,
    7,
    binary=[6],
)
# For a test that has to notice that the fence is missing: with "1", any term is accepted.
_UNSAFE: Final = "FERRYMQ_UNSAFE_NO_FENCE"
_APPEND_UNFENCED: Final = PreparedStatement(
    "append", _APPEND.sql.decode().replace(" AND term = $2::bigint FOR", " FOR"), 7, binary=[6]
)
# A further part, in the transaction of the first, which holds the lock.
_APPEND_PART: Final = PreparedStatement(
    "append_part",
    """
    INSERT INTO ferrymq.batch (cluster, number, part, parts, term, changes, total, crc, data)
    SELECT cluster, number, $3::integer, parts, term, changes,
        total + octet_length($5::bytea), $4::bigint, $5::bytea
    FROM ferrymq.batch WHERE cluster = $1::text AND number = $2::bigint AND part = $3::integer - 1
    """,
    5,
    binary=[4],
)
# Why an append wrote nothing: the term of the lease, the last batch, whether the batch is there
# in this term.
_REFUSED: Final = PreparedStatement(
    "refused",
    """
    SELECT (SELECT term FROM ferrymq.lease WHERE cluster = $1::text),
        (SELECT max(number) FROM ferrymq.batch WHERE cluster = $1::text),
        EXISTS (
            SELECT FROM ferrymq.batch
            WHERE cluster = $1::text AND number = $2::bigint AND term = $3::bigint
        )
    """,
    3,
)
# The lock of the key is a change of the row. So the statement ends with a commit that waits for the
# standby of PostgreSQL, which then has everything that was committed before, the batch too.
_CONFIRM: Final = PreparedStatement(
    "confirm",
    """
    WITH fence AS (
        SELECT 1 FROM ferrymq.lease WHERE cluster = $1::text AND term = $2::bigint FOR KEY SHARE
    )
    SELECT EXISTS (
        SELECT FROM ferrymq.batch
        WHERE cluster = $1::text AND number = $3::bigint AND term = $2::bigint
    ) FROM fence
    """,
    3,
)


class BatchAppends:
    """Appends batches to one cluster. See `SharedJournal` for the methods."""

    def __init__(self, connection: DatabaseConnection, cluster: str) -> None:
        self._connection = connection
        self._cluster = cluster.encode()
        self._append = _APPEND
        if os.environ.get(_UNSAFE) == "1":
            log.warning(f"{_UNSAFE} is set: a broker that has lost the lease can append batches")
            self._append = _APPEND_UNFENCED

    def append(
        self, term: int, number: int, changes: int, parts: Sequence[bytes], done: Done[None]
    ) -> None:
        """Append a batch if `term` is that of the lease."""

        def take(result: PGresult | Exception) -> None:
            if isinstance(result, Exception):
                done(result)
            elif result.command_tuples == 0:
                self._explain(term, number, done)
            else:
                done(None)

        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._connection.run(DatabaseCall(self._appending(term, number, changes, data), take))

    def _appending(self, term: int, number: int, changes: int, data: bytes) -> list[Step]:
        pieces = [data]
        if len(data) > PART_BYTES:
            starts = range(0, len(data), PART_BYTES)
            pieces = [data[start : start + PART_BYTES] for start in starts]
        crc = part_checksum(number, term, 0, changes, pieces[0])
        integers = (b"%d" % one for one in (term, number, len(pieces), changes, crc))
        first: Step = (self._append, [self._cluster, *integers, pieces[0]])
        if len(pieces) == 1:
            return [first]
        steps: list[Step] = [(BEGIN, ()), first]
        for part, piece in enumerate(pieces[1:], 1):
            crc = part_checksum(number, term, part, changes, piece)
            integers = (b"%d" % one for one in (number, part, crc))
            steps.append((_APPEND_PART, [self._cluster, *integers, piece]))
        return [*steps, (COMMIT, ())]

    def _explain(self, term: int, number: int, done: Done[None]) -> None:
        """Give `done` the reason why an append wrote nothing."""

        def parse(result: PGresult) -> Exception:
            current, last = integer(result, 0, 0), integer(result, 0, 1)
            if current != term:
                return LeaseLost(f"the term is {current}, not {term}")
            if boolean(result, 0, 2):
                return JournalUnavailable(f"batch {number} is there already")
            return ReplicationError(f"batch {number} does not follow batch {last}")

        self._run(_REFUSED, [b"%d" % number, b"%d" % term], converted(parse, done))

    def confirm(self, term: int, number: int, done: Done[bool]) -> None:
        """Find out whether a batch was written, and wait until it is replicated."""

        def parse(result: PGresult) -> bool | Exception:
            if result.ntuples == 0:
                return LeaseLost(f"the term is no longer {term}")
            return boolean(result, 0, 0)

        self._run(_CONFIRM, [b"%d" % term, b"%d" % number], converted(parse, done))

    def _run(
        self, statement: PreparedStatement, parameters: list[bytes], done: Done[PGresult]
    ) -> None:
        self._connection.run(DatabaseCall([(statement, [self._cluster, *parameters])], done))


def part_checksum(number: int, term: int, part: int, changes: int, data: bytes) -> int:
    """Return the CRC-32C of a part with its key, so that a part under another key is noticed."""
    value: int = _extend_crc(_crc(_KEY.pack(number, term, part, changes)), data)
    return value
