"""The lease, the row of a cluster in `ferrymq.lease`.

Times are those of the clock of the database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ferrymq_broker.replication.errors import LeaseLost, ReplicationError
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
from ferrymq_broker.replication.shared_journal import Done, Lease

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

# Notifications of all clusters of a database; the payload is the name of the cluster.
CHANNEL: Final = "ferrymq"
# Seconds for which a successor is waited for after the end of a lease.
_SUCCESSOR_SECONDS: Final = 5

_COLUMNS: Final = """
    term, holder, address, extract(epoch FROM ends - clock_timestamp())::float8 AS remaining,
    successor
"""
_OBSERVE: Final = PreparedStatement(
    "observe", f"SELECT {_COLUMNS} FROM ferrymq.lease WHERE cluster = $1::text", 1
)
# A change of the term waits for the appends that have locked the key. Two members that acquire at
# once are put in order by the lock of the row; the second looks at the conditions again.
_ACQUIRE: Final = PreparedStatement(
    "acquire",
    f"""
    WITH taken AS (
        UPDATE ferrymq.lease
        SET term = term + 1, holder = $2::text, address = $3::text, successor = '',
            ends = clock_timestamp() + make_interval(secs => $4::float8)
        WHERE cluster = $1::text
            AND (holder = '' OR ends <= clock_timestamp())
            AND (successor IN ('', $2::text)
                OR ends + interval '{_SUCCESSOR_SECONDS} s' <= clock_timestamp())
        RETURNING cluster, {_COLUMNS}
    )
    SELECT term, holder, address, remaining, successor, pg_notify('{CHANNEL}', cluster) FROM taken
    """,
    4,
)
_RENEW: Final = PreparedStatement(
    "renew",
    f"""
    UPDATE ferrymq.lease SET ends = clock_timestamp() + make_interval(secs => $3::float8)
    WHERE cluster = $1::text AND term = $2::bigint
    RETURNING {_COLUMNS}
    """,
    3,
)
_RELEASE: Final = PreparedStatement(
    "release",
    f"""
    WITH ended AS (
        UPDATE ferrymq.lease SET holder = '', address = '', ends = clock_timestamp()
        WHERE cluster = $1::text AND term = $2::bigint
        RETURNING cluster
    )
    SELECT pg_notify('{CHANNEL}', cluster) FROM ended
    """,
    2,
)
_NAME_SUCCESSOR: Final = PreparedStatement(
    "name_successor",
    f"""
    WITH named AS (
        UPDATE ferrymq.lease SET successor = $2::text WHERE cluster = $1::text
        RETURNING cluster, {_COLUMNS}
    )
    SELECT term, holder, address, remaining, successor, pg_notify('{CHANNEL}', cluster) FROM named
    """,
    2,
)
_FENCE: Final = PreparedStatement(
    "fence",
    f"""
    WITH fenced AS (
        UPDATE ferrymq.lease
        SET term = term + 1, holder = '', address = '', successor = '', ends = clock_timestamp()
        WHERE cluster = $1::text
        RETURNING cluster, {_COLUMNS}
    )
    SELECT term, holder, address, remaining, successor, pg_notify('{CHANNEL}', cluster) FROM fenced
    """,
    1,
)


class LeaseRow:
    """The lease of one cluster. See `SharedJournal` for the methods."""

    def __init__(self, connection: DatabaseConnection, cluster: str) -> None:
        self._connection = connection
        self._name = cluster
        self._cluster = cluster.encode()

    def observe(self, done: Done[Lease]) -> None:
        """Return the lease."""
        self._run(_OBSERVE, [self._cluster], converted(self._lease, done))

    def acquire(self, holder: str, address: str, seconds: float, done: Done[Lease]) -> None:
        """Take the lease if it is free; return it as it is then."""

        def take(result: PGresult | Exception) -> None:
            if isinstance(result, Exception):
                done(result)
            elif result.ntuples == 0:
                self.observe(done)
            else:
                done(_lease(result)._replace(taken=True))

        parameters = [self._cluster, holder.encode(), address.encode(), repr(seconds).encode()]
        self._run(_ACQUIRE, parameters, take)

    def renew(self, term: int, seconds: float, done: Done[Lease]) -> None:
        """Extend the lease of this term."""

        def parse(result: PGresult) -> Lease | Exception:
            if result.ntuples == 0:
                return LeaseLost(f"the term is no longer {term}")
            return _lease(result)

        parameters = [self._cluster, b"%d" % term, repr(seconds).encode()]
        self._run(_RENEW, parameters, converted(parse, done))

    def release(self, term: int, done: Done[None]) -> None:
        """End the lease of this term."""
        self._run(_RELEASE, [self._cluster, b"%d" % term], converted(nothing, done))

    def name_successor(self, name: str, done: Done[Lease]) -> None:
        """Name the only member that may take the lease next."""
        parameters = [self._cluster, name.encode()]
        self._run(_NAME_SUCCESSOR, parameters, converted(self._lease, done))

    def fence(self, done: Done[Lease]) -> None:
        """Begin a new term without a holder."""
        self._run(_FENCE, [self._cluster], converted(self._lease, done))

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` when the lease may have changed."""

        def take(payload: bytes) -> None:
            # Nothing is in it when the connection is new.
            if payload in (b"", self._cluster):
                changed()

        self._connection.listen(take)

    def _run(
        self, statement: PreparedStatement, parameters: list[bytes], done: Done[PGresult]
    ) -> None:
        self._connection.run(DatabaseCall([(statement, parameters)], done))

    def _lease(self, result: PGresult) -> Lease | Exception:
        if result.ntuples == 0:
            return ReplicationError(f"the cluster {self._name} is no longer in the database")
        return _lease(result)


def _lease(result: PGresult) -> Lease:
    return Lease(
        integer(result, 0, 0),
        text(result, 0, 1),
        text(result, 0, 2),
        number(result, 0, 3),
        text(result, 0, 4),
    )
