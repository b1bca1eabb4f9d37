"""Operations on the sessions of a queue, or of the queue of a subscription."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ferrymq_broker.filters.parse import MAX_SESSION
from ferrymq_broker.management.errors import BAD_REQUEST, CONFLICT, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.queues.sessions import Sessions
from ferrymq_codec.scalars import Timestamp

DEFAULT_TOP: Final = 100
MAX_TOP: Final = 1000


class QueueSessions:
    """The operations on the sessions of the queue that `find` returns."""

    def __init__(self, find: Callable[[Call], Queue]) -> None:
        self._find = find

    def operations(self) -> dict[str, Operation]:
        """Return the operations by name."""
        return {
            "RENEW-SESSION": Operation(self.renew, ("session", "link")),
            "GET-SESSION-STATE": Operation(self.get_state, ("session",)),
            "SET-SESSION-STATE": Operation(self.set_state, ("session", "state", "link")),
            "LIST-SESSIONS": Operation(self.list, ("changed-since", "skip", "top")),
        }

    def renew(self, call: Call) -> Result:
        """Handle RENEW-SESSION: the lock of a session begins anew. With `link`, only if the link of
        this name owns the session."""
        call.expect_only("session", "link")
        sessions = self._sessions(call)
        until = sessions.renew(_session(call), call.text("link", ""))
        return Result(
            {"expiration": Timestamp(int(until)) if until else None}, description="renewed"
        )

    def get_state(self, call: Call) -> Result:
        """Handle GET-SESSION-STATE: return the state of a session, null if it has none."""
        call.expect_only("session")
        sessions = self._sessions(call)
        session = sessions.find(_session(call))
        sessions.node.agenda.changes.claim()
        return Result({"state": None if session is None else session.state})

    def set_state(self, call: Call) -> Result:
        """Handle SET-SESSION-STATE: set the state of a session; null removes it. With `link`, only
        if the link of this name owns the session."""
        call.expect_only("session", "state", "link")
        sessions = self._sessions(call)
        id = _session(call)
        state = call.arguments.get("state")
        if isinstance(state, str):
            # Shells have only strings.
            state = state.encode()
        if state is not None and not isinstance(state, bytes):
            raise ManagementError(BAD_REQUEST, "state: binary or null is needed")
        sessions.set_state(id, state, call.text("link", ""))
        return Result(description="set" if state is not None else "removed")

    def list(self, call: Call) -> Result:
        """Handle LIST-SESSIONS: return sessions, the last changed first."""
        call.expect_only("changed-since", "skip", "top")
        sessions = self._sessions(call)
        skip = call.number("skip", 0)
        top = min(call.number("top", DEFAULT_TOP), MAX_TOP)
        found: list[dict[str, object]] = []
        for session in sessions.list_changed(call.number("changed-since", 0), skip, top):
            facts: dict[str, object] = {
                "session": session.id,
                "messages": int(session.messages),
                "changed": Timestamp(int(session.changed)),
                "owned": session.taken,
                "state-size": None if session.state is None else len(session.state),
            }
            until = sessions.locked_until(session)
            if until:
                facts["locked-until"] = Timestamp(int(until))
            found.append(facts)
        return Result({"sessions": found})

    def _sessions(self, call: Call) -> Sessions:
        queue = self._find(call)
        sessions = queue.entries.sessions
        if sessions is None:
            raise ManagementError(CONFLICT, f"{queue.address[:200]!r} has no sessions")
        return sessions


def _session(call: Call) -> str:
    id = call.text("session")
    if not 0 < len(id) <= MAX_SESSION:
        raise ManagementError(
            BAD_REQUEST, f"session: an id of 1 to {MAX_SESSION} characters is needed"
        )
    return id
