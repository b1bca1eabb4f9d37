"""A transition of the state machines of AMQP 0-9-1.

The tables of transitions, in `server_states`, are not compiled: they would be much code that runs
once. The class is, because each frame reads it.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from ferrymq_rabbitmq.amqp_0_9_1.engine.engine_events import EngineEvent


@final
class Transition:
    """What an input does in a state: `state` is the next one, `event` what the user is told.

    An input with a reply code (AMQP 0-9-1 §1.2) is a fault of the peer, `text` says which one; the
    code 0 is none. A fault ends the connection.
    """

    __slots__ = ("state", "event", "code", "text")

    def __init__(
        self, state: i64, event: type[EngineEvent] | None = None, code: i64 = 0, text: str = ""
    ) -> None:
        self.state: i64 = state
        self.event: type[EngineEvent] | None = event
        self.code: i64 = code
        self.text: str = text
