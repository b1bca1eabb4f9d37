"""Outcomes: the result of a delivery for the caller (AMQP 1.0 §3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq.errors import (
    DeliveryError,
    DeliveryModified,
    DeliveryRejected,
    DeliveryReleased,
    LocalProtocolError,
    Scope,
)
from ferrymq_types.messaging import Accepted, Modified, Rejected, Released

if TYPE_CHECKING:
    from ferrymq_types.unions import DeliveryState, Outcome

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()

FAILED: Final = Modified(delivery_failed=True)

RELEASED_SYMBOL: Final = "amqp:released:list"
MODIFIED_SYMBOL: Final = "amqp:modified:list"
OUTCOMES: Final = [
    "amqp:accepted:list",
    "amqp:rejected:list",
    RELEASED_SYMBOL,
    MODIFIED_SYMBOL,
]
"""The outcomes a receiver of ours may give, as a source names them (AMQP 1.0 §3.5.3)."""


_SYMBOLS: Final[dict[type, str]] = dict(
    zip((Accepted, Rejected, Released, Modified), OUTCOMES, strict=True)
)


def check_granted(state: Outcome, granted: list[str] | None) -> None:
    """Raise `LocalProtocolError` for an outcome that a source does not list (AMQP 1.0 §3.5.3).

    `granted` are the outcomes of the source; None if it lists none.
    """
    name = _SYMBOLS[type(state)]
    if granted is not None and name not in granted:
        raise LocalProtocolError(
            "amqp:not-allowed",
            f"the source does not grant the outcome {name}; it grants {', '.join(granted)}",
            Scope.LINK,
        )


def outcome_after(error: BaseException) -> Outcome:
    """Return the outcome of a message whose work ended with an exception: failed, or released if
    the program was told to stop: `asyncio.CancelledError`, `KeyboardInterrupt`, `SystemExit`,
    `GeneratorExit`."""
    return FAILED if isinstance(error, Exception) else RELEASED


def as_granted(outcome: Outcome, granted: list[str] | None) -> Outcome | None:
    """Return an outcome that the source grants, in place of one that it may not grant: itself,
    released, or None for the default outcome of the source."""
    if granted is None or _SYMBOLS[type(outcome)] in granted:
        return outcome
    return RELEASED if RELEASED_SYMBOL in granted else None


def is_outcome(state: DeliveryState | None) -> bool:
    """Return whether the state is final for a delivery."""
    return isinstance(state, (Accepted, Rejected, Released, Modified))


def error_of(state: DeliveryState | None) -> DeliveryError | None:
    """Return the error to raise for a settled delivery, or None when it was accepted.

    A delivery that was settled without an outcome may or may not have been processed; like a
    released one, the sender may send it again.
    """
    if isinstance(state, Accepted):
        return None
    if isinstance(state, Rejected):
        error = state.error
        if error is None:
            return DeliveryRejected("the message was rejected")
        reason = error.condition
        if error.description is not None:
            reason = f"{reason}: {error.description}"
        return DeliveryRejected(f"the message was rejected: {reason}", error)
    if isinstance(state, Released):
        return DeliveryReleased("the message was released")
    if isinstance(state, Modified):
        return DeliveryModified(
            "the message was released with modifications",
            bool(state.delivery_failed),
            bool(state.undeliverable_here),
        )
    return DeliveryReleased("the delivery was settled without an outcome")
