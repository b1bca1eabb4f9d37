"""The faults of a client that end its channel or its connection.

ChannelFault, ConnectionFault      raised where a method is served, written as a close
"""

from __future__ import annotations

from typing import Final

from ferrymq.errors import ManagementError
from ferrymq_broker.errors import BrokerError
from ferrymq_rabbitmq.arguments import ArgumentError
from ferrymq_rabbitmq.management.request_refused import RequestRefused
from ferrymq_types_0_9_1.constants import (
    ACCESS_REFUSED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
)

# Reply codes (AMQP 0-9-1 §1.2) for error conditions of the broker, and for statuses of management.
_CODES: Final = {
    "amqp:unauthorized-access": ACCESS_REFUSED,
    "amqp:not-found": NOT_FOUND,
    "amqp:resource-locked": RESOURCE_LOCKED,
}
_STATUSES: Final = {403: ACCESS_REFUSED, 404: NOT_FOUND}

Refused = (BrokerError, ManagementError, RequestRefused, ArgumentError)
"""The errors of a method that becomes a `ChannelFault`."""


class ChannelFault(Exception):
    """The exception for a method that ends its channel, with a reply code and a text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class ConnectionFault(Exception):
    """The exception for a method that ends its connection, with a reply code and a text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def fault_of(error: Exception) -> ChannelFault:
    """Return the fault for one of the errors `Refused`."""
    if isinstance(error, BrokerError):
        return ChannelFault(_CODES.get(error.condition, PRECONDITION_FAILED), error.description)
    if isinstance(error, RequestRefused):
        return ChannelFault(
            _STATUSES.get(int(error.status), PRECONDITION_FAILED), error.description
        )
    if isinstance(error, ManagementError):
        return ChannelFault(_STATUSES.get(error.status, PRECONDITION_FAILED), error.description)
    return ChannelFault(PRECONDITION_FAILED, str(error))


def not_implemented(what: str) -> ConnectionFault:
    """Return the fault for something that no broker of this kind does."""
    return ConnectionFault(NOT_IMPLEMENTED, what)
