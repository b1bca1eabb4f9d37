"""Operations on locked messages, by their tokens."""

from __future__ import annotations

from ferrymq_broker.management.locks import QueueLocks
from ferrymq_codec.containers import Array
from ferrymq_servicebus.dead_letters import DEAD_LETTER
from ferrymq_servicebus.management.asked import Asked, Handler
from ferrymq_servicebus.management.entity import Entity
from ferrymq_servicebus.management.failures import done, expect, invalid
from ferrymq_servicebus.outcomes import with_properties


class EntityLocks:
    """The operations on the locked messages of an entity."""

    def __init__(self, entity: Entity) -> None:
        self._entity = entity
        operations = QueueLocks(lambda call: entity.queue()).operations()
        self._renew = operations["RENEW-LOCKS"].handler
        self._settle = operations["SETTLE"].handler

    def operations(self) -> dict[str, Handler]:
        """Return the operations by name."""
        return {"renew-lock": self.renew, "update-disposition": self.settle}

    def renew(self, asked: Asked) -> dict[str, object] | None:
        """Let locks hold for their whole duration from now on; return when they end."""
        self._entity.expect_listen(asked)
        result = done(self._renew(asked.call({"tokens": asked.tokens("lock-tokens")})))
        expirations = expect(result)["expirations"]
        assert isinstance(expirations, list)
        return {"expirations": Array("timestamp", expirations)}

    def settle(self, asked: Asked) -> dict[str, object] | None:
        """Give locked messages an outcome."""
        self._entity.expect_listen(asked)
        arguments = _outcome(asked)
        tokens = asked.tokens("lock-tokens")
        arguments["tokens"] = tokens
        if arguments["outcome"] != "rejected":
            self._change(tokens, asked.map("properties-to-modify"))
        arguments.update(asked.of_session())
        expect(done(self._settle(asked.call(arguments))))
        return {}

    def _change(self, tokens: list[bytes], properties: dict[str, object] | None) -> None:
        """Set application-properties of the messages, if all of them are locked."""
        queue = self._entity.queue()
        if not properties or queue.locks is None:
            return
        found = [queue.locks.find(token) for token in tokens]
        entries = [lock.entry for lock in found if lock is not None]
        if len(entries) == len(tokens):
            for entry in entries:
                message = queue.message_of(entry)
                if message is not None:
                    queue.amend(entry, with_properties(message, properties))


def _outcome(asked: Asked) -> dict[str, object]:
    """Return the arguments of SETTLE for a disposition status. Raises `RequestFailed`."""
    status = asked.text("disposition-status")
    if status == "completed":
        return {"outcome": "accepted"}
    if status == "abandoned":
        return {"outcome": "modified", "delivery-failed": True}
    if status in ("defered", "deferred"):
        return {"outcome": "deferred"}
    if status == "suspended":
        info: dict[str, object] = dict(asked.map("properties-to-modify") or {})
        for key, name in (
            ("deadletter-reason", "DeadLetterReason"),
            ("deadletter-description", "DeadLetterErrorDescription"),
        ):
            if asked.arguments.get(key) is not None:
                info[name] = asked.text(key)
        return {"outcome": "rejected", "condition": DEAD_LETTER, "info": info}
    raise invalid(f"disposition-status: {status[:100]!r} is none")
