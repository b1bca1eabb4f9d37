"""Checks whether a broker with a configuration would start with a store."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ferrymq_broker.broker import Broker
from ferrymq_broker.cli.store.offline_store import opened
from ferrymq_broker.config.apply.declare import declare, make_hosts
from ferrymq_broker.config.apply.store_conflicts import contradictions
from ferrymq_broker.config.errors import ConfigMistake
from ferrymq_broker.config.model import Config
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.recovery.nodes import recover_aliases, recover_bindings, recover_nodes
from ferrymq_broker.recovery.recovered_state import RecoveredState

_INSTEAD = "check a backup of it, which `ferrymq store backup --url URL DIR` makes"


def foresee(config: Config, path: Path) -> list[ConfigMistake]:
    """Return the mistakes that would keep a broker with the store in `path` from starting.

    Nodes, bindings and aliases are read as at a start, but no messages. Raises `StoreError`,
    `OSError`.
    """
    broker = Broker(_leave, lambda due: None, time.time())
    make_hosts(config, broker)
    broker.begin_pass(0.0)
    with opened(path, _INSTEAD, quiet=True) as store:
        found = RecoveredState()
        recover_nodes(broker, store, found)
        recover_bindings(broker, store, found)
        recover_aliases(broker, store)
    mistakes = contradictions(config, broker)
    if not mistakes:
        try:
            declare(config, broker)
        except BrokerError as error:
            mistakes.append(ConfigMistake((), error.description))
    return mistakes


def _leave(call: Callable[[], None]) -> None:
    """Ignore a call for later, because there is no event loop."""
