"""The exceptions of the engine and the clients.

Every exception a caller can meet descends from `AmqpError`, which the codec
defines, so that `except AmqpError` is enough for "anything AMQP":

    AmqpError                     (ferrymq_codec.errors)
     ├─ CodecError                (ferrymq_codec.errors)
     │   ├─ EncodeError           a value that its AMQP type cannot hold
     │   └─ DecodeError           bytes that are not the value they should be
     ├─ ProtocolError             a rule of the protocol was broken
     │   ├─ LocalProtocolError    by the caller; nothing was sent, nothing changed
     │   └─ RemoteProtocolError   by the peer; the engine has already answered it
     ├─ PeerError                 the peer ended something, rightly or not
     │   ├─ ConnectionClosed
     │   ├─ SessionEnded
     │   └─ LinkDetached
     ├─ TransportError            the network or TLS failed below AMQP
     ├─ AuthenticationError       SASL did not succeed
     ├─ TransactionError          no transaction could be declared
     │   ├─ TransactionRolledBack a transaction was not committed: nothing of it was done
     │   │   ├─ FencePassed       because its work was committed before
     │   │   └─ FenceMismatch     because other work was committed under its fence
     │   └─ TransactionInDoubt    no answer came: all of it was done, or nothing
     ├─ ManagementError           a management node did not do what was asked of it
     └─ DeliveryError             a message was not accepted
         ├─ DeliveryRejected
         ├─ DeliveryReleased
         └─ DeliveryModified
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from ferrymq_codec.errors import AmqpError, CodecError, DecodeError, EncodeError

if TYPE_CHECKING:
    from ferrymq_types.transport import Error

__all__ = [
    "AmqpError",
    "AuthenticationError",
    "CodecError",
    "ConnectionClosed",
    "DecodeError",
    "DeliveryError",
    "DeliveryModified",
    "DeliveryRejected",
    "DeliveryReleased",
    "EncodeError",
    "FenceMismatch",
    "FencePassed",
    "LinkDetached",
    "LocalProtocolError",
    "ManagementError",
    "PeerError",
    "ProtocolError",
    "RemoteProtocolError",
    "Scope",
    "SessionEnded",
    "TransactionError",
    "TransactionInDoubt",
    "TransactionRolledBack",
    "TransportError",
]


class Scope(Enum):
    """The endpoint that an error ends: the answer is a close, an end or a detach (AMQP 1.0
    §2.8.14)."""

    CONNECTION = "connection"
    SESSION = "session"
    LINK = "link"


class ProtocolError(AmqpError):
    """A violation of a rule of AMQP.

    `condition` is the AMQP error condition symbol, e.g. ``amqp:session:window-violation``
    (AMQP 1.0 §2.8.15–18); `description` says what was wrong, for a person.
    """

    def __init__(self, condition: str, description: str, scope: Scope = Scope.CONNECTION) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description
        self.scope = scope


class LocalProtocolError(ProtocolError):
    """The caller asked for something the protocol does not allow in this state."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol; the engine has closed, ended or detached in answer."""


class PeerError(AmqpError):
    """The peer ended a connection, session or link. `error` is what it said, if anything.

    The text is `message`, what the peer said, and `hint`, which says what the user can do.
    """

    def __init__(self, message: str, error: Error | None = None, hint: str = "") -> None:
        if error is not None:
            message = f"{message}: {error.condition}"
            if error.description is not None:
                message = f"{message}: {error.description}"
        super().__init__(message + hint)
        self.error = error

    @property
    def condition(self) -> str | None:
        """The AMQP error condition, or None when the peer gave no error."""
        return None if self.error is None else self.error.condition


class ConnectionClosed(PeerError):
    """The connection is gone: closed by the peer, or lost."""


class SessionEnded(PeerError):
    """The peer ended the session."""


class LinkDetached(PeerError):
    """The peer detached the link. `closed` tells a close from a detach (AMQP 1.0 §2.6.4)."""

    def __init__(
        self, message: str, error: Error | None = None, closed: bool = True, hint: str = ""
    ) -> None:
        super().__init__(message, error, hint)
        self.closed = closed


class TransportError(AmqpError):
    """The network, TLS or the peer's choice of protocol failed below AMQP."""


class AuthenticationError(AmqpError):
    """SASL did not succeed. `code` is the SASL outcome code (AMQP 1.0 §5.3.3.6), if any.

    `lost` says that the transport ended before there was an outcome: the server may refuse this
    client in that way, or may have been stopped. `reason` is the text without the URL and without
    what the client advises.
    """

    def __init__(
        self,
        reason: str,
        code: int | None = None,
        lost: bool = False,
        *,
        url: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(f"{url}: {reason}{hint}" if url else reason)
        self.reason = reason
        self.code = code
        self.lost = lost


class TransactionError(AmqpError):
    """The peer could not execute a transaction request. `error` is the peer's error."""

    def __init__(self, message: str, error: Error | None = None) -> None:
        super().__init__(message)
        self.error = error

    @property
    def condition(self) -> str | None:
        """The AMQP error condition, such as ``amqp:transaction:timeout`` (AMQP 1.0 §4.5.8)."""
        return None if self.error is None else self.error.condition


class TransactionRolledBack(TransactionError):
    """The transaction was rolled back, and none of its work was done."""


class FencePassed(TransactionRolledBack):
    """The fence of the transaction is not above the last committed one, which is `sequence`."""

    def __init__(self, message: str, sequence: int, error: Error | None = None) -> None:
        super().__init__(message, error)
        self.sequence = sequence


class FenceMismatch(TransactionRolledBack):
    """The sequence of the fence was committed with other content: another count of rows, or another
    digest. The content of this transaction was not stored."""


class TransactionInDoubt(TransactionError):
    """The answer to a commit was lost: all work of the transaction was done, or none.

    The loss is the cause of this error. With a fence the result can be found out; see `Fence`.
    """


class ManagementError(AmqpError):
    """A management operation was not done, and has changed nothing.

    `status` is as in HTTP, for instance 404 if there is no such entity (`http.HTTPStatus` has names
    for the values); `description` is for a person; `condition` is an AMQP error condition, or None
    if the response has none.
    """

    def __init__(self, status: int, description: str, condition: str | None = None) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.condition = condition


class DeliveryError(AmqpError):
    """A sent message was settled with an outcome other than accepted."""

    def __init__(self, message: str, error: Error | None = None) -> None:
        super().__init__(message)
        self.error = error


class DeliveryRejected(DeliveryError):
    """The receiver rejected the message as invalid (AMQP 1.0 §3.4.3)."""


class DeliveryReleased(DeliveryError):
    """The receiver released the message untouched (AMQP 1.0 §3.4.4)."""


class DeliveryModified(DeliveryError):
    """The receiver released the message with modifications (AMQP 1.0 §3.4.5)."""

    def __init__(self, message: str, delivery_failed: bool, undeliverable_here: bool) -> None:
        super().__init__(message)
        self.delivery_failed = delivery_failed
        self.undeliverable_here = undeliverable_here
