"""A shared journal on PostgreSQL.

The leader's batches have one connection, the lease another, and everything else a third: neither an
append nor a renewal waits for a piece of a snapshot.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.postgresql.batch_appends import BatchAppends
from ferrymq_broker.replication.postgresql.batch_table import BatchTable
from ferrymq_broker.replication.postgresql.connection import DatabaseConnection
from ferrymq_broker.replication.postgresql.database_schema import version_error
from ferrymq_broker.replication.postgresql.endpoints import DatabaseUrl
from ferrymq_broker.replication.postgresql.lease_row import CHANNEL, LeaseRow
from ferrymq_broker.replication.postgresql.member_table import MemberTable
from ferrymq_broker.replication.postgresql.snapshot_tables import SnapshotTables
from ferrymq_broker.replication.postgresql.statements import (
    PreparedStatement,
    Step,
    boolean,
    integer,
)
from ferrymq_broker.replication.shared_journal import (
    Done,
    JournalFigures,
    Lease,
    Member,
    Position,
    SharedBatch,
    SharedJournal,
    SnapshotInfo,
)

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

# Settings of a role or of a database could change what a statement means, so each connection sets:
_SETTINGS: Final = (
    # a commit waits for the standby of PostgreSQL, and a canceled wait is told as a warning;
    "synchronous_commit = on",
    "client_min_messages = warning",
    # statements end by our clock, and the server notices that a client is gone;
    "statement_timeout = 0",
    "lock_timeout = 0",
    "idle_in_transaction_session_timeout = 0",
    "idle_session_timeout = 0",
    "client_connection_check_interval = '1s'",
    # the fence looks at the row again after a wait;
    "default_transaction_isolation = 'read committed'",
    "default_transaction_read_only = off",
    "search_path = pg_catalog",
    # plans are made once, and use the keys also while the tables are empty.
    "plan_cache_mode = force_generic_plan",
    "enable_seqscan = off",
    "enable_bitmapscan = off",
    "jit = off",
)
# For tests that show what synchronous commits are good for: with "1", commits do not wait.
_UNSAFE: Final = "FERRYMQ_UNSAFE_NO_SYNC"

_CHECK: Final = PreparedStatement(
    "check",
    """
    SELECT (SELECT max(version) FROM ferrymq.version),
        EXISTS (SELECT FROM ferrymq.lease WHERE cluster = $1::text)
    """,
    1,
)


class PostgresqlJournal(SharedJournal):
    """The journal of the cluster of this name. See `SharedJournal` for the methods.

    `timeout` and `lease_timeout` are the seconds after which a statement counts as unanswered; the
    second is for the lease, and should be less than half of it. Nothing is connected before the
    first call. Raises `ReplicationError` if the URL is none of PostgreSQL.
    """

    def __init__(
        self,
        url: str,
        cluster: str,
        loop: asyncio.AbstractEventLoop,
        timeout: float = 10.0,
        lease_timeout: float = 3.0,
    ) -> None:
        database = DatabaseUrl(url, f"ferrymq {cluster}")
        settings = "; ".join(f"SET {setting}" for setting in _SETTINGS)
        if os.environ.get(_UNSAFE) == "1":
            settings += "; SET synchronous_commit = off"
        self._name = cluster
        set_up: list[Step] = [(PreparedStatement("", settings), ())]
        check: Step = (_CHECK, [cluster.encode()])
        listen: Step = (PreparedStatement("", f"LISTEN {CHANNEL}"), ())
        self._for_appends, self._for_others = (
            DatabaseConnection(database, loop, timeout, [*set_up, check], self._check)
            for _ in range(2)
        )
        self._for_lease = DatabaseConnection(
            database, loop, lease_timeout, [*set_up, listen, check], self._check
        )
        self._appends = BatchAppends(self._for_appends, cluster)
        self._batches = BatchTable(self._for_others, cluster)
        self._snapshots = SnapshotTables(self._for_others, cluster)
        self._lease = LeaseRow(self._for_lease, cluster)
        self._members = MemberTable(self._for_others, cluster)

    def _check(self, result: PGresult) -> Exception | None:
        """Return the error if the database has not the tables that we know, or no cluster."""
        error = version_error(integer(result, 0, 0))
        if error is None and not boolean(result, 0, 1):
            return ReplicationError(
                f"the database has no cluster {self._name}: run `ferrymq replica init`"
            )
        return error

    # -- batches -----------------------------------------------------------------------------

    def append(
        self, term: int, number: int, changes: int, parts: Sequence[bytes], done: Done[None]
    ) -> None:
        """Append a batch if `term` is that of the lease."""
        self._appends.append(term, number, changes, parts, done)

    def confirm(self, term: int, number: int, done: Done[bool]) -> None:
        """Find out whether a batch was written, and wait until it is replicated."""
        self._appends.confirm(term, number, done)

    def read(self, after: int, most: int, done: Done[list[SharedBatch]]) -> None:
        """Return the batches after a number, at most 4000."""
        self._batches.read(after, most, done)

    def has(self, position: Position, done: Done[bool]) -> None:
        """Return whether there is a batch, or a snapshot, of this number and term."""
        self._batches.has(position, done)

    def trim(self, before: int, done: Done[int]) -> None:
        """Delete the batches before a number. Other calls are carried out between its steps."""
        self._batches.trim(before, done)

    def figures(self, done: Done[JournalFigures]) -> None:
        """Return the figures."""
        self._batches.figures(done)

    # -- the lease ---------------------------------------------------------------------------

    def observe(self, done: Done[Lease]) -> None:
        """Return the lease."""
        self._lease.observe(done)

    def acquire(self, holder: str, address: str, seconds: float, done: Done[Lease]) -> None:
        """Take the lease if it is free; return it as it is then."""
        self._lease.acquire(holder, address, seconds, done)

    def renew(self, term: int, seconds: float, done: Done[Lease]) -> None:
        """Extend the lease of this term."""
        self._lease.renew(term, seconds, done)

    def release(self, term: int, done: Done[None]) -> None:
        """End the lease of this term."""
        self._lease.release(term, done)

    def name_successor(self, name: str, done: Done[Lease]) -> None:
        """Name the only member that may take the lease next."""
        self._lease.name_successor(name, done)

    def fence(self, done: Done[Lease]) -> None:
        """Begin a new term without a holder."""
        self._lease.fence(done)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` when the lease may have changed."""
        self._lease.watch(changed)

    # -- members -----------------------------------------------------------------------------

    def announce(self, member: Member, done: Done[None]) -> None:
        """Write what a member says of itself."""
        self._members.announce(member, done)

    def members(self, done: Done[list[Member]]) -> None:
        """Return the members by name."""
        self._members.members(done)

    # -- snapshots ---------------------------------------------------------------------------

    def begin_snapshot(self, position: Position, done: Done[int]) -> None:
        """Begin a snapshot and return its id."""
        self._snapshots.begin_snapshot(position, done)

    def add_piece(self, id: int, index: int, data: bytes, done: Done[None]) -> None:
        """Add a piece to a snapshot."""
        self._snapshots.add_piece(id, index, data, done)

    def finish_snapshot(self, id: int, pieces: int, size: int, done: Done[None]) -> None:
        """Make a snapshot complete."""
        self._snapshots.finish_snapshot(id, pieces, size, done)

    def snapshots(self, done: Done[list[SnapshotInfo]]) -> None:
        """Return the complete snapshots, the newest first."""
        self._snapshots.snapshots(done)

    def read_piece(self, id: int, index: int, done: Done[bytes]) -> None:
        """Return a piece of a snapshot."""
        self._snapshots.read_piece(id, index, done)

    def drop_snapshot(self, id: int, done: Done[None]) -> None:
        """Delete a snapshot."""
        self._snapshots.drop_snapshot(id, done)

    # -- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Close all connections."""
        self._for_appends.close()
        self._for_lease.close()
        self._for_others.close()
