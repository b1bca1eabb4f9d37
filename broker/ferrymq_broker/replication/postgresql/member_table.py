"""The members of a cluster, the table `ferrymq.member`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.replication.postgresql.connection import DatabaseConnection
from ferrymq_broker.replication.postgresql.statements import (
    DatabaseCall,
    PreparedStatement,
    converted,
    integer,
    nothing,
    number,
    text,
)
from ferrymq_broker.replication.shared_journal import Done, Member

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

# What a member says of itself need not be durable, and waits for no standby of PostgreSQL.
_ANNOUNCE: Final = PreparedStatement(
    "announce",
    """
    WITH setting AS (SELECT set_config('synchronous_commit', 'off', true))
    INSERT INTO ferrymq.member (cluster, name, role, address, applied, version, seen)
    SELECT $1::text, $2::text, $3::text, $4::text, $5::bigint, $6::text, clock_timestamp()
    FROM setting
    ON CONFLICT (cluster, name) DO UPDATE
    SET role = excluded.role, address = excluded.address, applied = excluded.applied,
        version = excluded.version, seen = excluded.seen
    """,
    6,
)
_MEMBERS: Final = PreparedStatement(
    "members",
    """
    SELECT name, role, address, applied, version,
        extract(epoch FROM clock_timestamp() - seen)::float8
    FROM ferrymq.member WHERE cluster = $1::text ORDER BY name COLLATE "C"
    """,
    1,
)


class MemberTable:
    """The members of one cluster. See `SharedJournal` for the methods."""

    def __init__(self, connection: DatabaseConnection, cluster: str) -> None:
        self._connection = connection
        self._cluster = cluster.encode()

    def announce(self, member: Member, done: Done[None]) -> None:
        """Write what a member says of itself."""
        texts = (member.name, member.role, member.address, str(member.applied), member.version)
        parameters = [self._cluster, *(one.encode() for one in texts)]
        self._run(_ANNOUNCE, parameters, converted(nothing, done))

    def members(self, done: Done[list[Member]]) -> None:
        """Return the members by name."""
        self._run(_MEMBERS, [self._cluster], converted(_members, done))

    def _run(
        self, statement: PreparedStatement, parameters: list[bytes], done: Done[PGresult]
    ) -> None:
        self._connection.run(DatabaseCall([(statement, parameters)], done))


def _members(result: PGresult) -> list[Member]:
    return [
        Member(
            text(result, row, 0),
            text(result, row, 1),
            text(result, row, 2),
            integer(result, row, 3),
            text(result, row, 4),
            number(result, row, 5),
        )
        for row in range(result.ntuples)
    ]
