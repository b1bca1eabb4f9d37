"""The batches of a cluster as they are read and deleted: the table `ferrymq.batch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.postgresql.batch_appends import part_checksum
from ferrymq_broker.replication.postgresql.connection import DatabaseConnection
from ferrymq_broker.replication.postgresql.statements import (
    DatabaseCall,
    PreparedStatement,
    binary,
    boolean,
    converted,
    integer,
    number,
    text,
)
from ferrymq_broker.replication.shared_journal import (
    Done,
    JournalFigures,
    Position,
    SharedBatch,
)

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

# The most batches in one answer, whatever their size: the event loop checks them all at once.
_MOST_BATCHES: Final = 4_000
# The most batches that one statement deletes: other calls wait for it.
_TRIM_BATCHES: Final = 100

# `octet_length` reads no data. All parts of a batch have the same sum.
_READ: Final = PreparedStatement(
    "read",
    f"""
    WITH sized AS (
        SELECT number, part, sum(octet_length) OVER (ORDER BY number) AS bytes
        FROM (
            SELECT number, part, octet_length(data) FROM ferrymq.batch
            WHERE cluster = $1::text AND number > $2::bigint
            ORDER BY number, part LIMIT {_MOST_BATCHES}
        ) AS next
    )
    SELECT number, term, changes, part, parts, crc, extract(epoch FROM committed)::float8, data
    FROM sized JOIN ferrymq.batch AS batch USING (number, part)
    WHERE batch.cluster = $1::text
        AND (bytes <= $3::bigint OR number = (SELECT min(number) FROM sized))
    ORDER BY number, part
    """,
    3,
)
_HAS: Final = PreparedStatement(
    "has",
    """
    SELECT CASE WHEN $2::bigint = 0 THEN coalesce(
        (SELECT min(number) FROM ferrymq.batch WHERE cluster = $1::text) = 1,
        NOT EXISTS (
            SELECT FROM ferrymq.snapshot
            WHERE cluster = $1::text AND created IS NOT NULL AND number > 0
        )
    )
    ELSE EXISTS (
        SELECT FROM ferrymq.batch
        WHERE cluster = $1::text AND number = $2::bigint AND term = $3::bigint
    ) OR EXISTS (
        SELECT FROM ferrymq.snapshot
        WHERE cluster = $1::text AND number = $2::bigint AND term = $3::bigint
            AND created IS NOT NULL
    ) END
    """,
    3,
)
# The last batch stays: the next one follows it.
_TRIM: Final = PreparedStatement(
    "trim",
    f"""
    WITH gone AS (
        DELETE FROM ferrymq.batch WHERE cluster = $1::text AND number IN (
            SELECT number FROM ferrymq.batch WHERE cluster = $1::text AND part = 0
                AND number < $2::bigint
                AND number <= (
                    SELECT min(number) FROM ferrymq.snapshot
                    WHERE cluster = $1::text AND created IS NOT NULL
                )
                AND number < (SELECT max(number) FROM ferrymq.batch WHERE cluster = $1::text)
            ORDER BY number LIMIT {_TRIM_BATCHES}
        )
        RETURNING part
    )
    SELECT count(*) FROM gone WHERE part = 0
    """,
    2,
)
_FIGURES: Final = PreparedStatement(
    "figures",
    """
    SELECT lease.id::text, first.number, first.term, last.number, last.term,
        last.total - first.total + octet_length(first.data),
        (SELECT sum(size)::bigint FROM ferrymq.snapshot
            WHERE cluster = $1::text AND created IS NOT NULL),
        current_setting('synchronous_standby_names') <> ''
            AND current_setting('synchronous_commit') IN ('on', 'remote_apply')
    FROM ferrymq.lease
    LEFT JOIN LATERAL (
        SELECT number, term, total, data FROM ferrymq.batch WHERE cluster = $1::text
        ORDER BY number, part LIMIT 1
    ) AS first ON true
    LEFT JOIN LATERAL (
        SELECT number, term, total FROM ferrymq.batch WHERE cluster = $1::text
        ORDER BY number DESC, part DESC LIMIT 1
    ) AS last ON true
    WHERE lease.cluster = $1::text
    """,
    1,
)


class BatchTable:
    """Reads and deletes the batches of one cluster. See `SharedJournal` for the methods."""

    def __init__(self, connection: DatabaseConnection, cluster: str) -> None:
        self._connection = connection
        self._cluster = cluster.encode()

    def read(self, after: int, most: int, done: Done[list[SharedBatch]]) -> None:
        """Return the batches after a number."""

        def parse(result: PGresult) -> list[SharedBatch] | Exception:
            return read_batches(result, after)

        self._run(_READ, [b"%d" % after, b"%d" % most], converted(parse, done))

    def has(self, position: Position, done: Done[bool]) -> None:
        """Return whether there is a batch, or a snapshot, of this number and term."""
        parameters = [b"%d" % position.number, b"%d" % position.term]
        self._run(_HAS, parameters, converted(lambda result: boolean(result, 0, 0), done))

    def trim(self, before: int, done: Done[int]) -> None:
        """Delete the batches before a number, some at a time."""
        deleted = 0

        def take(result: PGresult | Exception) -> None:
            nonlocal deleted
            if isinstance(result, Exception):
                done(result)
                return
            count = integer(result, 0, 0)
            deleted += count
            if count < _TRIM_BATCHES:
                done(deleted)
            else:
                self._run(_TRIM, [b"%d" % before], take)

        self._run(_TRIM, [b"%d" % before], take)

    def figures(self, done: Done[JournalFigures]) -> None:
        """Return the figures."""
        self._run(_FIGURES, [], converted(_figures, done))

    def _run(
        self, statement: PreparedStatement, parameters: list[bytes], done: Done[PGresult]
    ) -> None:
        self._connection.run(DatabaseCall([(statement, [self._cluster, *parameters])], done))


def read_batches(result: PGresult, after: int) -> list[SharedBatch] | ReplicationError:
    """Return the batches of a result, which has to begin after the batch `after`. Parts of a last
    batch that is incomplete are left out."""
    found: list[SharedBatch] = []
    pieces: list[bytes] = []
    for row in range(result.ntuples):
        key = tuple(integer(result, row, column) for column in range(6))
        batch, term, changes, part, parts, crc = key
        data = binary(result, row, 7)
        if batch != after + 1:
            return ReplicationError(
                f"batch {after + 1} is not in the journal, which goes on with batch {batch}: it was"
                " trimmed"
            )
        if part != len(pieces) or part_checksum(batch, term, part, changes, data) != crc:
            return ReplicationError(f"batch {batch} in the database is damaged")
        pieces.append(data)
        if len(pieces) == parts:
            whole = data if parts == 1 else b"".join(pieces)
            found.append(SharedBatch(batch, term, changes, whole, number(result, row, 6)))
            pieces.clear()
            after = batch
    return found


def _figures(result: PGresult) -> JournalFigures | ReplicationError:
    if result.ntuples == 0:
        return ReplicationError("the cluster is no longer in the database")
    return JournalFigures(
        text(result, 0, 0),
        Position(integer(result, 0, 1), integer(result, 0, 2)),
        Position(integer(result, 0, 3), integer(result, 0, 4)),
        integer(result, 0, 5),
        integer(result, 0, 6),
        boolean(result, 0, 7),
    )
