"""The errors of replication."""

from __future__ import annotations


class ReplicationError(Exception):
    """An error of replication that a person has to mend; the text says how."""


class JournalUnavailable(ReplicationError):
    """An error: the shared journal cannot be reached, or the result of a call is unknown. A later
    call may succeed."""


class LeaseLost(ReplicationError):
    """An error: another member has a newer term, or somebody has fenced the leader."""
