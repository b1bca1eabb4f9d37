"""Delivery modes as link properties: how often a message may arrive.

``delivery-mode`` is a condition: if the mode cannot be kept, the link is refused.
``opt-delivery-mode`` is a wish: if the mode cannot be kept, it is left out of the answer. The
values are ``at-most-once``, ``at-least-once`` and ``exactly-once``. The answer names what is in
force, and the settle modes follow from it. A client consumes exactly once if its source outlives a
lost link (`durable_links/source.py`).

| mode | the client publishes | the client consumes |
|---|---|---|
| at-most-once | pre-settled, or as it likes | everything is sent settled |
| at-least-once | unsettled; the broker settles at once | nothing is sent settled |
| exactly-once | unsettled; what is resent is known by its tag | unsettled; it settles second |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.errors import BrokerError
from ferrymq_codec.scalars import Symbol
from ferrymq_types.messaging import Accepted
from ferrymq_types.transport import ReceiverSettleMode, SenderSettleMode

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq_types.unions import Outcome

REQUIRED: Final = "delivery-mode"
OPTIONAL: Final = "opt-delivery-mode"

AT_MOST_ONCE: Final = "at-most-once"
AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
_MODES: Final = (AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)


def agree(
    link: Link,
    properties: dict[str, object],
    default_outcome: Outcome | None,
    granted: dict[str, object],
    lasting: bool,
) -> str:
    """Agree on the delivery mode of a link and return it; empty if none was asked for, or if it
    cannot be kept.

    Call this before the link is accepted, because the mode decides on its settle modes; `granted`
    has the properties of the answer. `lasting` is whether the broker's terminus outlives a lost
    link with its deliveries. Raises `BrokerError` if a condition cannot be met.
    """
    required = properties.get(REQUIRED)
    optional = properties.get(OPTIONAL)
    mode = ""
    if isinstance(required, str) and required in _MODES:
        problem = _problem(link, required, default_outcome, lasting)
        if problem:
            raise BrokerError(
                "amqp:not-implemented", f"delivery-mode {required} is not possible: {problem}"
            )
        mode = required
        granted[REQUIRED] = Symbol(required)
    elif required is not None:
        raise BrokerError(
            "amqp:invalid-field", f"the delivery-mode must be one of {', '.join(_MODES)}"
        )
    if (
        isinstance(optional, str)
        and optional in _MODES
        and mode in ("", optional, _beneath(optional))
        and not _problem(link, optional, default_outcome, lasting)
    ):
        mode = optional
        granted[OPTIONAL] = Symbol(optional)
    _settle_by(link, mode)
    return mode


def agree_control(link: Link, properties: dict[str, object], granted: dict[str, object]) -> None:
    """Agree on the delivery mode of a control link, which can have at-least-once only.

    Messages to a coordinator are sent unsettled (AMQP 1.0 §4.2), and their tags are not remembered.
    Raises `BrokerError` if a condition cannot be met.
    """
    for name in (REQUIRED, OPTIONAL):
        mode = properties.get(name)
        fits = mode == AT_LEAST_ONCE and not _problem(link, AT_LEAST_ONCE, None, False)
        if fits:
            granted[name] = Symbol(AT_LEAST_ONCE)
        elif name == REQUIRED and mode is not None:
            raise BrokerError(
                "amqp:not-implemented",
                f"a control link can only have the delivery-mode {AT_LEAST_ONCE}, because its "
                "messages are unsettled",
            )


def _beneath(mode: str) -> str:
    """Return the weaker mode that is kept along with this one: exactly once includes at least
    once."""
    return AT_LEAST_ONCE if mode == EXACTLY_ONCE else mode


def _problem(link: Link, mode: str, default_outcome: Outcome | None, lasting: bool) -> str:
    """Return why the mode cannot be kept on the link; empty if it can."""
    snd = link.snd_settle_mode
    if not link.is_sender:
        if mode == AT_MOST_ONCE:
            if snd is SenderSettleMode.UNSETTLED:
                return "the link's sender-settle-mode is unsettled"
        elif snd is SenderSettleMode.SETTLED:
            return "the link's sender-settle-mode is settled"
        return ""
    if mode == EXACTLY_ONCE:
        if not lasting:
            return "the link has no terminus that outlives a lost link with its deliveries"
        if link.rcv_settle_mode is not ReceiverSettleMode.SECOND:
            return "the receiver-settle-mode is first; with it an outcome could get lost"
    if mode != AT_MOST_ONCE:
        return "the requested sender-settle-mode is settled" if link.always_settled else ""
    if snd is SenderSettleMode.UNSETTLED:
        return "the requested sender-settle-mode is unsettled"
    if default_outcome is not None and not isinstance(default_outcome, Accepted):
        return "deliveries sent settled count as accepted, but the default-outcome is another one"
    return ""


def _settle_by(link: Link, mode: str) -> None:
    snd = link.snd_settle_mode
    rcv = link.rcv_settle_mode
    if link.is_sender:
        if mode == AT_MOST_ONCE:
            link.agree_settle_modes(SenderSettleMode.SETTLED, rcv)
        elif mode:
            link.agree_settle_modes(SenderSettleMode.UNSETTLED, rcv)
    elif mode == AT_LEAST_ONCE:
        # The broker does not ask the client to confirm an outcome.
        link.agree_settle_modes(snd, ReceiverSettleMode.FIRST)
