"""Recovery of a broker from the records of its store."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

from ferrymq_broker.broker import Broker
from ferrymq_broker.recovery.durable_links import recover_termini
from ferrymq_broker.recovery.entries import recover_entries
from ferrymq_broker.recovery.fences import recover_fences
from ferrymq_broker.recovery.nodes import (
    recover_aliases,
    recover_bindings,
    recover_nodes,
    recover_sub_queues,
)
from ferrymq_broker.recovery.read_ahead import ReadAhead
from ferrymq_broker.recovery.recovered_state import RecoveredState
from ferrymq_broker.recovery.streams import recover_streams
from ferrymq_broker.recovery.subscriptions import recover_subscriptions
from ferrymq_broker.store.store import Store

# A callback that gets the name of the work, how much of it is done, and the total, 0 if it is
# unknown.
Progress = Callable[[str, int, int], None]

_WHAT: Final = "recovering messages"


def recover(
    broker: Broker,
    store: Store,
    progress: Progress | None = None,
    unmap: Callable[[], object] | None = None,
) -> RecoveredState:
    """Restore the state of a new broker from the store, which the broker uses from now on.

    Call it in a pass, when the virtual hosts exist and before anything is declared in them
    (`config.apply.make_hosts`, `config.apply.declare`). When it returns, the current batch has only
    the records to be cleaned up. Timers that expired while the broker was stopped fire in the first
    passes after that. `unmap` gives back the mapping of the store's file; it is called after every
    few MiB read. Raises `StoreDamaged`.
    """

    # The total also counts records that are not messages, but these are few.
    total = store.count()

    def told(count: int) -> None:
        if progress is not None:
            progress(_WHAT, count, total)

    broker.keep(store)
    found = RecoveredState()
    reading = ReadAhead(unmap)
    # Recovery makes no garbage, but possibly millions of objects.
    collecting = gc.isenabled()
    gc.disable()
    try:
        recover_nodes(broker, store, found)
        recover_subscriptions(broker, store, found)
        recover_sub_queues(broker, found)
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
