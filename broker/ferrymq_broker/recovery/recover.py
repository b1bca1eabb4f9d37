"""From the records of a store to the broker that wrote them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

from ferrymq_broker.broker import Broker
from ferrymq_broker.recovery.durable_links import recover_termini
from ferrymq_broker.recovery.entries import recover_entries
from ferrymq_broker.recovery.fences import recover_fences
from ferrymq_broker.recovery.nodes import recover_aliases, recover_bindings, recover_nodes
from ferrymq_broker.recovery.read_ahead import ReadAhead
from ferrymq_broker.recovery.recovered_state import RecoveredState
from ferrymq_broker.recovery.streams import recover_streams
from ferrymq_broker.recovery.subscriptions import recover_subscriptions
from ferrymq_broker.store.store import Store

# What is told as it goes: what is being done, how much of it is done, and of how much, 0 if that is
# not known.
Progress = Callable[[str, int, int], None]

_WHAT: Final = "recovering messages"


def recover(
    broker: Broker,
    store: Store,
    progress: Progress | None = None,
    unmap: Callable[[], object] | None = None,
) -> RecoveredState:
    """Fill a new broker with all that is in the store, and give it the store.

    To be called in a pass, once the virtual hosts are there and before anything is declared in
    them (`make_hosts` and `declare` of `config.apply.declare`). What has to be tidied up is in the
    batch when this returns, and nothing else; what has become due meanwhile is done in the first
    passes after, as if it were due then. `unmap` gives back what is mapped of the store's file; it
    is called after every few MiB that were read. Raises `StoreDamaged`.
    """

    # There are other records than those of messages, but few.
    total = store.count()

    def told(count: int) -> None:
        if progress is not None:
            progress(_WHAT, count, total)

    broker.keep(store)
    found = RecoveredState()
    reading = ReadAhead(unmap)
    # Nothing of what is made here is garbage, and there may be millions of it.
    collecting = gc.isenabled()
    gc.disable()
    try:
        recover_nodes(broker, store, found)
        recover_subscriptions(broker, store, found)
        recover_bindings(broker, store, found)
        recover_aliases(broker, store)
        recover_entries(broker, store, found, reading, told)
        recover_streams(broker, store, found, reading)
        recover_termini(broker, store, found)
        recover_fences(broker, store)
        reading.end()
    finally:
        if collecting:
            gc.enable()
    return found
