"""Events of a connection, in the order in which they happened.

`Connection.take_events` returns events; the docstring of each class says when it fires. Events have
the engine's own objects (`Session`, `SenderLink`, `ReceiverLink`, `IncomingDelivery`,
`OutgoingDelivery`), whose methods are called to answer.

Events are taken after a whole read has been processed, so the state of an object may already be
*ahead* of an event: a link attached and detached in one read yields `AttachReceived` and then
`DetachReceived`, and at the first of them `link.remote_detached` is already true. The user may
answer both events: an answer that can no longer be sent is not sent.

Nearly all events say that a message or its outcome has arrived. For users that handle very many of
them, `Connection.take_bare_events` returns the delivery itself in place of such an event: see
`BareEvent`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq.engine.receiver import ReceiverLink
    from ferrymq.engine.sender import SenderLink
    from ferrymq.engine.session import Session
    from ferrymq.errors import AmqpError
    from ferrymq_types.transactions import TransactionalState
    from ferrymq_types.transport import Error, Open
    from ferrymq_types.unions import DeliveryState


class Event:
    """The base class of all events."""

    __slots__ = ()


# An event, or what stands for one: an incoming delivery for `DeliveryReceived`, an outgoing one for
# `OutcomeReceived`. So no object has to be made for each message.
BareEvent: TypeAlias = Event | IncomingDelivery | OutgoingDelivery


class HeaderReceived(Event):
    """The peer's protocol header has been accepted; once per layer (SASL, AMQP)."""

    __slots__ = ("protocol_id",)

    def __init__(self, protocol_id: int) -> None:
        self.protocol_id: int = protocol_id


class TlsAgreed(Event):
    """Both headers have named TLS: the handshake has to start now (AMQP 1.0 §5.2).

    The initiator of the transport is the TLS client. Write the output of `data_to_send`, which is
    the last unencrypted output; pass `Connection.take_tls_data` to TLS and run its handshake over
    the transport; then call `Connection.tls_established`, and only then `receive_data` with the
    data that TLS decrypts. If the handshake fails, end the transport and call `receive_eof`.
    """

    __slots__ = ()


class AuthenticationRequested(Event):
    """A client chose a mechanism and gave its credentials (server only; AMQP 1.0 §5.3.2).

    Answer with `Connection.accept_authentication` or `reject_authentication`,
    at once or later; nothing else is processed until then. `username` and
    `password` are None for ANONYMOUS; `token` is that of OAUTHBEARER. Neither
    password nor token is ever part of the repr.
    """

    __slots__ = ("mechanism", "username", "password", "hostname", "token")

    def __init__(
        self,
        mechanism: str,
        username: str | None,
        password: str | None,
        hostname: str | None,
        token: str | None = None,
    ) -> None:
        self.mechanism: str = mechanism
        self.username: str | None = username
        self.password: str | None = password
        self.hostname: str | None = hostname
        self.token: str | None = token


class ScramKeysRequested(Event):
    """A client began a SCRAM exchange (server only). Answer with `Connection.provide_scram_keys`.

    If the client's proof is valid, `AuthenticationRequested` follows, without a password.
    """

    __slots__ = ("mechanism", "username", "hostname")

    def __init__(self, mechanism: str, username: str, hostname: str | None) -> None:
        self.mechanism: str = mechanism
        self.username: str = username
        self.hostname: str | None = hostname


class Authenticated(Event):
    """SASL succeeded, on either side. `username` is None for ANONYMOUS."""

    __slots__ = ("mechanism", "username")

    def __init__(self, mechanism: str, username: str | None) -> None:
        self.mechanism: str = mechanism
        self.username: str | None = username


class OpenReceived(Event):
    """The peer's open arrived. Fires once."""

    __slots__ = ("open",)

    def __init__(self, open: Open) -> None:
        self.open: Open = open


class CloseReceived(Event):
    """The peer closed the connection; answer with `Connection.close` if not yet closed."""

    __slots__ = ("error",)

    def __init__(self, error: Error | None) -> None:
        self.error: Error | None = error


class Terminated(Event):
    """The connection is over: always the last event, fires once.

    `error` is None after an orderly close from either side; `ConnectionClosed` if the peer closed
    with an error or the transport ended; `RemoteProtocolError` if the peer broke the protocol;
    `AuthenticationError` or `TransportError` if the connection was not opened.
    """

    __slots__ = ("error",)

    def __init__(self, error: AmqpError | None) -> None:
        self.error: AmqpError | None = error


class BeginReceived(Event):
    """The peer began a session, or answered ours (then `session.initiated` is true)."""

    __slots__ = ("session",)

    def __init__(self, session: Session) -> None:
        self.session: Session = session


class EndReceived(Event):
    """The peer ended the session; answered by `Session.end` unless the end was ours."""

    __slots__ = ("session", "error")

    def __init__(self, session: Session, error: Error | None) -> None:
        self.session: Session = session
        self.error: Error | None = error


class SessionTerminated(Event):
    """The session is over on both sides, or the engine ended it for a violation by the peer.

    Fires once for every session, before `Terminated`, with every link of it lost. The owner must
    recover the unsettled deliveries of its links.
    """

    __slots__ = ("session", "error")

    def __init__(self, session: Session, error: AmqpError | None) -> None:
        self.session: Session = session
        self.error: AmqpError | None = error


class AttachReceived(Event):
    """The peer attached a link, or answered our attach (then `link.initiated` is true).

    Answer a link that is not ours with `link.accept` or `link.refuse`.
    """

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link: Link = link


class DetachReceived(Event):
    """The peer detached (`closed` false) or closed the link.

    If the peer began, answer with `link.detach`; if it answers our detach, `link.local_detached`
    was true before.
    """

    __slots__ = ("link", "closed", "error")

    def __init__(self, link: Link, closed: bool, error: Error | None) -> None:
        self.link: Link = link
        self.closed: bool = closed
        self.error: Error | None = error


class LinkFailed(Event):
    """The engine detached the link because the peer broke a rule on it."""

    __slots__ = ("link", "error")

    def __init__(self, link: Link, error: AmqpError) -> None:
        self.link: Link = link
        self.error: AmqpError = error


class CreditReceived(Event):
    """A flow for one of our sender links arrived: its `credit`, `drain` or properties changed.

    `properties` are those of this flow. When `link.drain` is true, send the available messages and
    then call `link.drained`.
    """

    __slots__ = ("link", "properties")

    def __init__(self, link: SenderLink, properties: dict[str, object] | None = None) -> None:
        self.link: SenderLink = link
        self.properties: dict[str, object] | None = properties


class DrainCompleted(Event):
    """The sender has used or given back the credit of a receiver link that we drained."""

    __slots__ = ("link",)

    def __init__(self, link: ReceiverLink) -> None:
        self.link: ReceiverLink = link


class DeliveryReceived(Event):
    """A whole message arrived; all of its frames are in `delivery.payload`."""

    __slots__ = ("link", "delivery")

    def __init__(self, link: ReceiverLink, delivery: IncomingDelivery) -> None:
        self.link: ReceiverLink = link
        self.delivery: IncomingDelivery = delivery


class PostingBegun(Event):
    """A frame of a delivery arrived that names a transaction, and the delivery is not whole yet.

    Fires for the first of several frames, and for transfers that came before their attach was
    answered. One of `DeliveryReceived` and `DeliveryAborted` follows when the delivery ends.
    Neither follows when its link or its session ends first (AMQP 1.0 §4.4.1).
    """

    __slots__ = ("link", "state")

    def __init__(self, link: ReceiverLink, state: TransactionalState) -> None:
        self.link: ReceiverLink = link
        self.state: TransactionalState = state


class TransferIgnored(Event):
    """A transfer was dropped, because we have detached its link or the link has failed.

    Fires only for a transfer that carries a state. A transaction that the state names lacks a
    message and must not be committed (AMQP 1.0 §4.4.4.1).
    """

    __slots__ = ("link", "state")

    def __init__(self, link: ReceiverLink, state: DeliveryState) -> None:
        self.link: ReceiverLink = link
        self.state: DeliveryState = state


class DeliveryAborted(Event):
    """The sender aborted a delivery after part of it had arrived (AMQP 1.0 §2.6.14)."""

    __slots__ = ("link", "delivery")

    def __init__(self, link: ReceiverLink, delivery: IncomingDelivery) -> None:
        self.link: ReceiverLink = link
        self.delivery: IncomingDelivery = delivery


class MessageTooLarge(Event):
    """A message of more than `max_message_size` bytes has arrived, and none of it is kept.

    Fires only if the link `rejects_large`. The delivery waits for its outcome.
    """

    __slots__ = ("link", "delivery")

    def __init__(self, link: ReceiverLink, delivery: IncomingDelivery) -> None:
        self.link: ReceiverLink = link
        self.delivery: IncomingDelivery = delivery


class OutcomeReceived(Event):
    """The receiver of one of our deliveries gave it a state, settled it, or both."""

    __slots__ = ("delivery",)

    def __init__(self, delivery: OutgoingDelivery) -> None:
        self.delivery: OutgoingDelivery = delivery


class TransactionalStateReceived(Event):
    """The receiver of one of our deliveries gave it a state that names a transaction.

    Fires in place of `OutcomeReceived`. `state` and `settled` are those of this disposition, not of
    later ones in the same read (AMQP 1.0 §4.4.2).
    """

    __slots__ = ("delivery", "state", "settled")

    def __init__(
        self, delivery: OutgoingDelivery, state: TransactionalState, settled: bool
    ) -> None:
        self.delivery: OutgoingDelivery = delivery
        self.state: TransactionalState = state
        self.settled: bool = settled


class TransactionalStateIgnored(Event):
    """The receiver gave an outcome in a transaction to a delivery whose link had ended.

    The outcome cannot be applied any more, so the transaction must not be committed
    (AMQP 1.0 §2.7.6, §4.4.4.2).
    """

    __slots__ = ("state",)

    def __init__(self, state: TransactionalState) -> None:
        self.state: TransactionalState = state


class SettlementReceived(Event):
    """The sender of a delivery we received gave it a state, settled it, or both."""

    __slots__ = ("delivery",)

    def __init__(self, delivery: IncomingDelivery) -> None:
        self.delivery: IncomingDelivery = delivery
