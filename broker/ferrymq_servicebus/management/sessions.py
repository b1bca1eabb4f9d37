"""Operations on the sessions of an entity."""

from __future__ import annotations

from typing import Final

from ferrymq_broker.management.sessions import MAX_TOP, QueueSessions
from ferrymq_codec.containers import Array
from ferrymq_codec.scalars import Int, Timestamp
from ferrymq_servicebus.management.asked import Asked, Handler
from ferrymq_servicebus.management.entity import Entity
from ferrymq_servicebus.management.failures import done, expect, invalid

# The end of the year 9999, of a lock that does not end.
_NEVER: Final = 253_402_300_799_999
# The time of the last update, a millisecond later, that asks for the sessions with messages
# or a state, whenever they changed.
_WITH_MESSAGES: Final = _NEVER + 1


class EntitySessions:
    """The operations on the sessions of an entity."""

    def __init__(self, entity: Entity) -> None:
        self._entity = entity
        operations = QueueSessions(lambda call: entity.queue()).operations()
        self._renew = operations["RENEW-SESSION"].handler
        self._get = operations["GET-SESSION-STATE"].handler
        self._set = operations["SET-SESSION-STATE"].handler
        self._list = operations["LIST-SESSIONS"].handler

    def operations(self) -> dict[str, Handler]:
        """Return the operations by name."""
        return {
            "renew-session-lock": self.renew,
            "get-session-state": self.get_state,
            "set-session-state": self.set_state,
            "get-message-sessions": self.list_sessions,
        }

    def renew(self, asked: Asked) -> dict[str, object] | None:
        """Renew the lock of a session; return when it ends."""
        self._entity.expect_listen(asked)
        asked.text("session-id")
        until = expect(done(self._renew(asked.call(asked.of_session()))))["expiration"]
        return {"expiration": Timestamp(_NEVER) if until is None else until}

    def get_state(self, asked: Asked) -> dict[str, object] | None:
        """Return the state of a session, null without one."""
        self._entity.expect_listen(asked)
        call = asked.call({"session": asked.text("session-id")})
        return {"session-state": expect(done(self._get(call)))["state"]}

    def set_state(self, asked: Asked) -> dict[str, object] | None:
        """Set the state of a session, or remove it."""
        self._entity.expect_listen(asked)
        asked.text("session-id")
        arguments = asked.of_session()
        arguments["state"] = asked.arguments.get("session-state")
        expect(done(self._set(asked.call(arguments))))
        return {}

    def list_sessions(self, asked: Asked) -> dict[str, object] | None:
        """Return the ids of sessions: those with messages or a state, or those that
        changed since a time."""
        self._entity.expect_listen(asked)
        since = asked.number("last-updated-time", _WITH_MESSAGES)
        with_messages = since >= _WITH_MESSAGES
        skip, top = asked.number("skip", 0), asked.number("top", MAX_TOP)
        if skip < 0 or top < 0:
            raise invalid("skip and top: numbers of at least 0 are needed")
        top = min(top, MAX_TOP)
        ids: list[str] = []
        seen = passed = 0
        while len(ids) < top:
            arguments: dict[str, object] = {
                "changed-since": 0 if with_messages else max(since, 0),
                "skip": seen,
                "top": MAX_TOP,
            }
            page = expect(done(self._list(asked.call(arguments))))["sessions"]
            assert isinstance(page, list)
            for session in page:
                if with_messages and not session["messages"] and session["state-size"] is None:
                    continue
                passed += 1
                if passed > skip and len(ids) < top:
                    ids.append(session["session"])
            seen += len(page)
            if len(page) < MAX_TOP:
                break
        return {"skip": Int(skip), "sessions-ids": Array("string", ids)} if ids else None
