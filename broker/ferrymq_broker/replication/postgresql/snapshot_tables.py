"""The snapshots of a cluster: the tables `ferrymq.snapshot` and `ferrymq.snapshot_piece`."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import google_crc32c

from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.postgresql.connection import DatabaseConnection
from ferrymq_broker.replication.postgresql.statements import (
    DatabaseCall,
    PreparedStatement,
    binary,
    converted,
    integer,
    nothing,
    number,
)
from ferrymq_broker.replication.shared_journal import Done, Position, SnapshotInfo

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

# The most pieces that one statement deletes: other calls wait for it.
_DROP_PIECES: Final = 32

_KEY: Final = struct.Struct(">qi")
_crc: Final[Any] = google_crc32c.value
_extend_crc: Final[Any] = google_crc32c.extend

_BEGIN: Final = PreparedStatement(
    "begin_snapshot",
    """
    INSERT INTO ferrymq.snapshot (cluster, number, term) VALUES ($1::text, $2::bigint, $3::bigint)
    RETURNING id
    """,
    3,
)
_ADD: Final = PreparedStatement(
    "add_piece",
    """
    INSERT INTO ferrymq.snapshot_piece (snapshot, index, crc, data)
    SELECT id, $3::integer, $4::bigint, $5::bytea FROM ferrymq.snapshot
    WHERE cluster = $1::text AND id = $2::bigint AND created IS NULL
    ON CONFLICT (snapshot, index) DO UPDATE SET crc = excluded.crc, data = excluded.data
    """,
    5,
    binary=[4],
)
_COUNT: Final = """
    SELECT count(*) AS pieces, coalesce(max(index), -1) + 1 AS after_last,
        coalesce(sum(octet_length(data)), 0) AS size
    FROM ferrymq.snapshot_piece WHERE snapshot = $2::bigint
"""
# The journal has the last batch, or another snapshot ends with it; or this is what the cluster
# begins with.
_FINISH: Final = PreparedStatement(
    "finish_snapshot",
    f"""
    UPDATE ferrymq.snapshot
    SET pieces = $3::integer, size = $4::bigint, created = clock_timestamp()
    FROM ({_COUNT}) AS found
    WHERE cluster = $1::text AND id = $2::bigint
        AND found.pieces = $3::integer AND found.after_last = found.pieces
        AND found.size = $4::bigint
        AND (
            EXISTS (
                SELECT FROM ferrymq.batch AS last WHERE last.cluster = $1::text
                    AND last.number = snapshot.number AND last.term = snapshot.term
            )
            OR EXISTS (
                SELECT FROM ferrymq.snapshot AS other
                WHERE other.cluster = $1::text AND other.created IS NOT NULL
                    AND other.number = snapshot.number AND other.term = snapshot.term
            )
            OR NOT EXISTS (SELECT FROM ferrymq.batch AS any_one WHERE any_one.cluster = $1::text)
            AND NOT EXISTS (
                SELECT FROM ferrymq.snapshot AS other
                WHERE other.cluster = $1::text AND other.created IS NOT NULL
            )
        )
    """,
    4,
)
_LIST: Final = PreparedStatement(
    "snapshots",
    """
    SELECT id, number, term, pieces, size, extract(epoch FROM created)::float8
    FROM ferrymq.snapshot WHERE cluster = $1::text AND created IS NOT NULL ORDER BY id DESC
    """,
    1,
)
_READ: Final = PreparedStatement(
    "read_piece",
    """
    SELECT crc, piece.data FROM ferrymq.snapshot
    JOIN ferrymq.snapshot_piece AS piece ON snapshot = id
    WHERE cluster = $1::text AND id = $2::bigint AND index = $3::integer
    """,
    3,
)
# From here on it is not complete, and is in no list.
_HIDE: Final = PreparedStatement(
    "hide_snapshot",
    "UPDATE ferrymq.snapshot SET created = NULL WHERE cluster = $1::text AND id = $2::bigint",
    2,
)
_DROP_SOME: Final = PreparedStatement(
    "drop_pieces",
    f"""
    DELETE FROM ferrymq.snapshot_piece WHERE snapshot = $2::bigint AND index IN (
        SELECT index FROM ferrymq.snapshot_piece WHERE snapshot = (
            SELECT id FROM ferrymq.snapshot WHERE cluster = $1::text AND id = $2::bigint
        )
        ORDER BY index LIMIT {_DROP_PIECES}
    )
    """,
    2,
)
_DROP: Final = PreparedStatement(
    "drop_snapshot",
    "DELETE FROM ferrymq.snapshot WHERE cluster = $1::text AND id = $2::bigint",
    2,
)


class SnapshotTables:
    """The snapshots of one cluster. See `SharedJournal` for the methods."""

    def __init__(self, connection: DatabaseConnection, cluster: str) -> None:
        self._connection = connection
        self._cluster = cluster.encode()

    def begin_snapshot(self, position: Position, done: Done[int]) -> None:
        """Begin a snapshot and return its id."""
        parameters = [b"%d" % position.number, b"%d" % position.term]
        self._run(_BEGIN, parameters, converted(lambda result: integer(result, 0, 0), done))

    def add_piece(self, id: int, index: int, data: bytes, done: Done[None]) -> None:
        """Add a piece."""

        def parse(result: PGresult) -> Exception | None:
            if result.command_tuples == 0:
                return ReplicationError(
                    f"piece {index} cannot be added to snapshot {id}, which is complete or was"
                    " dropped"
                )
            return None

        parameters = [b"%d" % id, b"%d" % index, b"%d" % _checksum(id, index, data), data]
        self._run(_ADD, parameters, converted(parse, done))

    def finish_snapshot(self, id: int, pieces: int, size: int, done: Done[None]) -> None:
        """Make a snapshot complete."""

        def parse(result: PGresult) -> Exception | None:
            if result.command_tuples == 0:
                return ReplicationError(
                    f"snapshot {id} has not {pieces} pieces of together {size} bytes, or its last"
                    " batch is not in the journal"
                )
            return None

        parameters = [b"%d" % one for one in (id, pieces, size)]
        self._run(_FINISH, parameters, converted(parse, done))

    def snapshots(self, done: Done[list[SnapshotInfo]]) -> None:
        """Return the complete snapshots, the newest first."""
        self._run(_LIST, [], converted(_infos, done))

    def read_piece(self, id: int, index: int, done: Done[bytes]) -> None:
        """Return a piece."""

        def parse(result: PGresult) -> bytes | Exception:
            if result.ntuples == 0:
                return ReplicationError(f"snapshot {id} has no piece {index}")
            data = binary(result, 0, 1)
            if _checksum(id, index, data) != integer(result, 0, 0):
                return ReplicationError(f"piece {index} of snapshot {id} is damaged")
            return data

        self._run(_READ, [b"%d" % id, b"%d" % index], converted(parse, done))

    def drop_snapshot(self, id: int, done: Done[None]) -> None:
        """Delete a snapshot: first from the list, then its pieces, some at a time."""

        def take(result: PGresult | Exception) -> None:
            if isinstance(result, Exception):
                done(result)
            elif result.command_tuples:
                self._run(_DROP_SOME, [b"%d" % id], take)
            else:
                self._run(_DROP, [b"%d" % id], converted(nothing, done))

        self._run(_HIDE, [b"%d" % id], take)

    def _run(
        self, statement: PreparedStatement, parameters: list[bytes], done: Done[PGresult]
    ) -> None:
        self._connection.run(DatabaseCall([(statement, [self._cluster, *parameters])], done))


def _checksum(id: int, index: int, data: bytes) -> int:
    """Return the CRC-32C of a piece with its key, so that a piece under another key is noticed."""
    value: int = _extend_crc(_crc(_KEY.pack(id, index)), data)
    return value


def _infos(result: PGresult) -> list[SnapshotInfo]:
    return [
        SnapshotInfo(
            integer(result, row, 0),
            Position(integer(result, row, 1), integer(result, row, 2)),
            integer(result, row, 3),
            integer(result, row, 4),
            number(result, row, 5),
        )
        for row in range(result.ntuples)
    ]
