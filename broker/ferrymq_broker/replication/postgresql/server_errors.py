"""The errors that PostgreSQL reports, as sentences that say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import pq

from ferrymq_broker.replication.errors import JournalUnavailable, ReplicationError

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

INIT: Final = "run `ferrymq replica init`"

# SQLSTATEs of PostgreSQL (appendix A of its manual): those that may pass by themselves ...
_PASSING: Final = frozenset(
    {
        "23505",  # a batch with this number is there already
        "40001",
        "40P01",
        "55P03",
        "57014",
        "53000",
        "53100",
        "53200",
        "53300",
    }
)
# ... and those after which the connection is of no use any more: the server stops, it has become
# read-only, or it does not know the prepared statements.
_BREAKING: Final = frozenset(
    {"0A000", "25006", "26000", "57P01", "57P02", "57P03", "57P04", "57P05"}
)
_MISSING: Final = frozenset({"3F000", "42P01", "42703"})
_FORBIDDEN: Final = "42501"


def sqlstate(result: PGresult) -> str:
    """Return the code of an error."""
    return (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()


def is_breaking(code: str) -> bool:
    """Return whether a connection is of no use after this error."""
    return code in _BREAKING or code.startswith("08")


def error_of(result: PGresult) -> ReplicationError:
    """Return the error that a result reports. Its text has the message of the server, without the
    statement and its parameters."""
    code = sqlstate(result)
    message = message_of(result)
    if code in _MISSING:
        return ReplicationError(f"the database lacks tables of ferrymq ({message}): {INIT}")
    if code == _FORBIDDEN:
        return ReplicationError(
            f"the role of the database may not do this ({message}):"
            f" {INIT} with --grant-to ROLE, as the owner of the tables"
        )
    said = f"the database answered with an error: {message} ({code})"
    if code in _PASSING or is_breaking(code):
        return JournalUnavailable(said)
    return ReplicationError(said)


def message_of(result: PGresult) -> str:
    """Return the message of an error or a warning."""
    return (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
