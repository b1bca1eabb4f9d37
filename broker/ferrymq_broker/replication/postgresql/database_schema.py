"""The tables in the database, and how they are made and upgraded.

All are in the schema `ferrymq`, and each row names its cluster, so several clusters can be in one
database. Binary strings are stored without compression (`STORAGE EXTERNAL`): the bodies of messages
often are compressed already. Each has a CRC-32C, also of its key.
"""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import sql

from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.postgresql.endpoints import DatabaseUrl

# The version of the tables that this version of ferrymq makes and uses.
VERSION: Final = 1

# A lock of the transaction (advisory), so that two `replica init` do not meet. Any number will do
# that nobody else has: these are the letters "ferrymq".
_LOCK: Final = int.from_bytes(b"ferrymq", "big")

# The statements that lead from each version to the next.
_UPGRADES: Final[tuple[str, ...]] = (
    """
    CREATE TABLE ferrymq.version (version integer NOT NULL);
    INSERT INTO ferrymq.version VALUES (0);
    -- One row for each cluster. The key (cluster, term) is the fence.
    CREATE TABLE ferrymq.lease (
        cluster text PRIMARY KEY,
        id uuid NOT NULL DEFAULT gen_random_uuid(),
        term bigint NOT NULL DEFAULT 0,
        holder text NOT NULL DEFAULT '',
        address text NOT NULL DEFAULT '',
        ends timestamptz NOT NULL DEFAULT clock_timestamp(),
        successor text NOT NULL DEFAULT '',
        UNIQUE (cluster, term)
    ) WITH (fillfactor = 50);
    -- A large batch has several parts. `total` is the number of bytes of all batches up to this
    -- part, since the first batch of the cluster. There is no foreign key: the fence looks for the
    -- cluster in the statement that inserts a batch, and a key would look again.
    CREATE TABLE ferrymq.batch (
        cluster text NOT NULL,
        number bigint NOT NULL,
        part integer NOT NULL,
        parts integer NOT NULL,
        term bigint NOT NULL,
        changes integer NOT NULL,
        total bigint NOT NULL,
        committed timestamptz NOT NULL DEFAULT clock_timestamp(),
        crc bigint NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (cluster, number, part)
    );
    ALTER TABLE ferrymq.batch ALTER data SET STORAGE EXTERNAL;
    CREATE TABLE ferrymq.member (
        cluster text NOT NULL REFERENCES ferrymq.lease (cluster),
        name text NOT NULL,
        role text NOT NULL,
        address text NOT NULL,
        applied bigint NOT NULL,
        version text NOT NULL,
        seen timestamptz NOT NULL,
        PRIMARY KEY (cluster, name)
    ) WITH (fillfactor = 50);
    -- A snapshot without a time of completion does not count.
    CREATE TABLE ferrymq.snapshot (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        cluster text NOT NULL REFERENCES ferrymq.lease (cluster),
        number bigint NOT NULL,
        term bigint NOT NULL,
        pieces integer,
        size bigint,
        created timestamptz
    );
    CREATE INDEX ON ferrymq.snapshot (cluster, number);
    CREATE TABLE ferrymq.snapshot_piece (
        snapshot bigint NOT NULL REFERENCES ferrymq.snapshot (id),
        index integer NOT NULL,
        crc bigint NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (snapshot, index)
    );
    ALTER TABLE ferrymq.snapshot_piece ALTER data SET STORAGE EXTERNAL;
    """,
)

_RIGHTS: Final = """
    GRANT USAGE ON SCHEMA ferrymq TO {role};
    GRANT SELECT ON ferrymq.version TO {role};
    GRANT SELECT, UPDATE ON ferrymq.lease TO {role};
    GRANT SELECT, INSERT, DELETE ON ferrymq.batch TO {role};
    GRANT SELECT, INSERT, UPDATE, DELETE
        ON ferrymq.member, ferrymq.snapshot, ferrymq.snapshot_piece TO {role};
"""


def version_error(found: int) -> ReplicationError | None:
    """Return the error for tables of another version than ours; None for ours."""
    if found == VERSION:
        return None
    if found > VERSION:
        return ReplicationError(
            f"the tables in the database have version {found}, and this version of ferrymq knows"
            f" version {VERSION}: install a newer version of ferrymq"
        )
    return ReplicationError(
        f"the tables in the database have version {found}, and this version of ferrymq needs"
        f" version {VERSION}: run `ferrymq replica init`"
    )


def initialise(url: str, cluster: str, grant_to: str | None) -> tuple[int, bool]:
    """Make or upgrade the tables, and make the cluster, in one transaction.

    `grant_to` is the role of the brokers: it gets the rights that they need, and no others. Return
    the version that the tables had (0 if there were none), and whether the cluster is new. Raises
    `ReplicationError`; then nothing was changed. The call blocks.
    """
    database = DatabaseUrl(url, "ferrymq replica init")
    try:
        with psycopg.connect(database.all_servers()) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            before = _upgrade(connection)
            new = connection.execute(
                "INSERT INTO ferrymq.lease (cluster) VALUES (%s) ON CONFLICT DO NOTHING", [cluster]
            )
            if grant_to is not None:
                connection.execute(sql.SQL(_RIGHTS).format(role=sql.Identifier(grant_to)))
            return before, new.rowcount == 1
    except psycopg.Error as error:
        reason = error.diag.message_primary or str(error)
        raise ReplicationError(
            f"the tables cannot be made: {database.without_password(reason)}"
        ) from None


def _upgrade(connection: psycopg.Connection[tuple[object, ...]]) -> int:
    """Bring the tables to our version, and return the version that they had."""
    row = connection.execute("SELECT to_regclass('ferrymq.version') IS NOT NULL").fetchone()
    before = 0
    if row is not None and row[0]:
        found = connection.execute("SELECT max(version) FROM ferrymq.version").fetchone()
        before = int(str(found[0])) if found is not None else 0
        if before > VERSION:
            error = version_error(before)
            assert error is not None
            raise error
    else:
        connection.execute("CREATE SCHEMA IF NOT EXISTS ferrymq")
    for statements in _UPGRADES[before:]:
        connection.execute(statements.encode())
    if before != VERSION:
        connection.execute("UPDATE ferrymq.version SET version = %s", [VERSION])
    return before
