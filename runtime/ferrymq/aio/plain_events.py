"""Events of usual messages: most of those that come, handled in few calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from mypy_extensions import i64

from ferrymq.aio.arrivals import Arrivals
from ferrymq.aio.in_flight import InFlight
from ferrymq.engine.delivery import IncomingDelivery, OutgoingDelivery

if TYPE_CHECKING:
    from ferrymq.engine.events import BareEvent
    from ferrymq.engine.link import Link


def handle_plain(events: list[BareEvent], first: i64) -> i64:
    """Handle the events from the number `first` on, up to one that is not usual; return the number
    of that one.

    Usual are a message of a plain receiver, and an accepted one of a plain sender.
    """
    count = len(events)
    at = first
    # The link of the event before, and what belongs to it.
    link: Link | None = None
    receiver: Any = None
    arrivals: Arrivals | None = None
    in_flight: InFlight | None = None
    while at < count:
        event = events[at]
        if isinstance(event, IncomingDelivery):
            if event.link is not link:
                if arrivals is not None:
                    arrivals.wake()
                link = event.link
                receiver = _owner_of(link)
                arrivals = _arrivals_of(receiver)
                in_flight = None
            if arrivals is None or not arrivals.plain or arrivals.over:
                break
            delivery = receiver.delivery_type(receiver, event)
            event.context = ref(delivery)
            arrivals.add(delivery)
        elif isinstance(event, OutgoingDelivery):
            if event.link is not link:
                if arrivals is not None:
                    arrivals.wake()
                link = event.link
                in_flight = _in_flight_of(_owner_of(link))
                arrivals = None
            if in_flight is None or not in_flight.end_accepted(event):
                break
        else:
            break
        at += 1
    if arrivals is not None:
        arrivals.wake()
    return at


def _owner_of(link: Link) -> object:
    """Return the client's link; None if it no longer exists."""
    context = link.context
    return context() if isinstance(context, ref) else context


def _arrivals_of(owner: object) -> Arrivals | None:
    found = getattr(owner, "_arrivals", None)
    return found if isinstance(found, Arrivals) else None


def _in_flight_of(owner: object) -> InFlight | None:
    found = getattr(owner, "_in_flight", None)
    return found if isinstance(found, InFlight) else None
