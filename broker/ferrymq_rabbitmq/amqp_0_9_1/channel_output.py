"""The output of a connection of AMQP 0-9-1."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.connections.output import ClientOutput

if TYPE_CHECKING:
    from ferrymq_broker.broker import Broker
    from ferrymq_rabbitmq.amqp_0_9_1.engine.server_connection import ServerConnection

# A heartbeat (AMQP 0-9-1 §4.2.7).
_HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"


@final
class ChannelOutput(ClientOutput):
    """The bytes that an engine has for its client."""

    __slots__ = ("_engine",)

    def __init__(
        self,
        engine: ServerConnection,
        broker: Broker,
        write: Callable[[bytes], object],
        hang_up: Callable[[], object],
    ) -> None:
        super().__init__(broker.output, broker.agenda.changes, broker.counters, write, hang_up)
        self._engine = engine

    def take_output(self, proceeds: bool) -> bytes:
        """Return the output so far."""
        engine = self._engine
        return engine.data_to_send() if engine.has_output else b""

    def pending_bytes(self) -> i64:
        """Return how many bytes wait in the engine."""
        return self._engine.output_size

    def is_opened(self) -> bool:
        """Return whether the client is in a virtual host."""
        return self._engine.opened

    def is_finished(self) -> bool:
        """Return whether the connection is over."""
        return self._engine.finished

    def idle_frame(self) -> bytes:
        """Return a heartbeat."""
        return _HEARTBEAT
