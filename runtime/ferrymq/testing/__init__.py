"""Help for the tests of programs that use ferrymq.

    from ferrymq.testing import LocalBroker

    with LocalBroker(queues=["orders"]) as broker:
        ...  # connect to broker.url

`LocalBroker` is a broker in the test's own process, with a clock that the test advances, and with
faults. It needs `ferrymq[broker]`. The plugin of pytest has fixtures of it. `strategies` has those
for Hypothesis. The names below are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ferrymq.testing.broker_clock import BrokerClock
    from ferrymq.testing.faults import Faults, InjectedFault
    from ferrymq.testing.local_broker import LocalBroker, LocalHost
    from ferrymq.testing.queue_contents import QueueContents, QueuedMessage

__all__ = [
    "LocalBroker",
    "LocalHost",
    "BrokerClock",
    "InjectedFault",
    "Faults",
    "QueuedMessage",
    "QueueContents",
]

_MODULES: Final = {
    "LocalBroker": "local_broker",
    "LocalHost": "local_broker",
    "BrokerClock": "broker_clock",
    "InjectedFault": "faults",
    "Faults": "faults",
    "QueuedMessage": "queue_contents",
    "QueueContents": "queue_contents",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
