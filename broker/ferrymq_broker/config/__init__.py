"""The broker's configuration: what it may say, and reading it from TOML."""

from __future__ import annotations

from ferrymq_broker.config.load import load_config
from ferrymq_broker.config.model import (
    Config,
    Limits,
    Listener,
    Log,
    Nodes,
    Queue,
    Security,
)

__all__ = ["Config", "Limits", "Listener", "Log", "Nodes", "Queue", "Security", "load_config"]
