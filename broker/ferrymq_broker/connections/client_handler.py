"""The interface of the broker's side of a connection for the server, whatever its protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mypy_extensions import i64

from ferrymq_broker.connections.connection_port import ConnectionPort
from ferrymq_broker.connections.message_rate import MessageTraffic

if TYPE_CHECKING:
    from ferrymq_broker.access.identity import UserIdentity
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.connections.authentication import Authenticator, Login
    from ferrymq_broker.connections.client_login import ClientLogin
    from ferrymq_broker.connections.connected_client import ConnectedClient
    from ferrymq_broker.connections.link_names import LinkHolder
    from ferrymq_broker.connections.output import ClientOutput
    from ferrymq_broker.connections.shown_links import ShownLink, ShownSession
    from ferrymq_types.transport import Error


class ClientHandler(ConnectionPort):
    """The broker's side of one connection, over a transport.

    `deadline_moved` is true when `next_deadline` may be earlier than before. `rearm` is called if
    that results from another pass. `holder` has what the client publishes and consumes, for alarms
    and for changed rights. `moves_to` is the number of the worker process to which the connection
    has to be passed, -1 for none; then nothing of what the client sends is processed any more,
    because that worker does it.
    """

    __slots__ = (
        "broker",
        "client",
        "output",
        "authenticator",
        "deadline_moved",
        "rearm",
        "moves_to",
        "_closing",
    )

    def __init__(
        self,
        broker: Broker,
        client: ConnectedClient,
        output: ClientOutput,
        authenticator: Authenticator,
    ) -> None:
        self.broker: Broker = broker
        self.client: ConnectedClient = client
        self.output: ClientOutput = output
        self.authenticator: Authenticator = authenticator
        self.deadline_moved: bool = True
        self.rearm: Callable[[], object] | None = None
        self.moves_to: i64 = -1
        # The reason for which the connection will be closed.
        self._closing: Error | None = None
        broker.handlers[self] = None

    def leave(self) -> None:
        """Remove the connection from those of the broker."""
        self.broker.handlers.pop(self, None)

    def abandon(self) -> None:
        """Forget the connection, which another handler takes over."""
        self.leave()
        self.forget_transport()

    # -- the transport -------------------------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> None:
        """Process bytes that have arrived: one whole pass."""

    def read_size(self, most: i64) -> i64:
        """Return how many bytes should be read next, at most `most`."""
        return most

    def receive_eof(self, now: float) -> None:
        """Process the end of the transport, however it has ended."""

    def next_deadline(self) -> float | None:
        """Return when `handle_timeout` must be called, by the clock that gives `now`."""
        return None

    def handle_timeout(self, now: float) -> None:
        """Do what is due at this time."""

    def forget_transport(self) -> None:
        """Stop all callbacks: the transport is gone, and its end has been reported."""
        self.output.forget_transport()
        self.rearm = None

    def on_secured(self) -> None:
        """Note that TLS is established: other logins may be allowed now."""

    # -- the end -------------------------------------------------------------------------

    def close(self, error: Error | None, now: float) -> None:
        """Close the connection from the broker's side, in a pass of its own."""

    def last_words(self, error: Error) -> bytes:
        """Return the bytes of a close with this error, which ends a connection of a broker that has
        lost its lease. Output that was not written is thrown away, and the broker's nodes are not
        touched. Empty if the connection is not open."""
        return b""

    def holds_messages(self) -> bool:
        """Return whether the client has messages without an outcome."""
        return False

    # -- its state -----------------------------------------------------------------------

    def is_behind(self) -> bool:
        """Return whether no more input is read for now."""
        return False

    def is_opened(self) -> bool:
        """Return whether the client has been told that the connection is open."""
        return self.output.is_opened()

    def is_lingering(self) -> bool:
        """Return whether the client must have the time to read a close before the transport
        ends."""
        return False

    def client_login(self) -> ClientLogin:
        """Return the login of the connection."""
        raise NotImplementedError

    def holder(self) -> LinkHolder:
        """Return the object that takes back credit, and detaches what is not allowed any more."""
        raise NotImplementedError

    # -- callbacks from its parts --------------------------------------------------------

    def process(self) -> None:
        """Process the events that have arrived, as far as the slice allows."""

    def settle_login(self, login: Login, identity: UserIdentity | None, reason: str) -> None:
        """Tell the client the result of its login, in the pass in which it logged in."""
        self.client_login().settle(login, identity, reason)

    def settle_login_later(self, login: Login, identity: UserIdentity | None, reason: str) -> None:
        """Tell the client the result of its login, in another pass."""
        self.client_login().settle_later(login, identity, reason)
        self.broker.soon(self._settle_login)

    def _settle_login(self) -> None:
        if self.client_login().settle_decided():
            self.process()
            self.output.touch()
        self.broker.finish_pass()
        if self.rearm is not None:
            self.rearm()

    def move(self, worker: i64) -> None:
        """See `ConnectionPort.move`."""
        self.moves_to = worker
        self.deadline_moved = True

    def close_soon(self, error: Error) -> None:
        """Close the connection from the broker's side, in another pass."""
        self._closing = error
        self.broker.soon(self._close)

    def _close(self) -> None:
        self.close(self._closing, self.broker.clock.now)
        if self.rearm is not None:
            self.rearm()

    # -- for management --------------------------------------------------------------------

    def describe(self) -> dict[str, object]:
        """Return the attributes of the connection by their public names."""
        return {}

    def shown_sessions(self) -> list[ShownSession]:
        """Return the sessions, or what the protocol has in their place, by their numbers."""
        return []

    def shown_links(self) -> list[ShownLink]:
        """Return the links, or what the protocol has in their place."""
        return []

    def unsettled(self) -> i64:
        """Return how many deliveries are not settled."""
        return 0

    def traffic(self) -> MessageTraffic:
        """Return the messages so far, and their rates."""
        return MessageTraffic()

    def read_rates(self, now: i64) -> i64:
        """Read the counters of messages, for the rates; return how many links there are."""
        return 0
