"""The broker's configuration: the model of its settings, and the reader of the TOML file."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrymq_broker.config.load import load_config
    from ferrymq_broker.config.model import (
        Alarms,
        Alias,
        Binding,
        Config,
        Exchange,
        Http,
        Limits,
        Listener,
        Log,
        Nodes,
        Policy,
        Queue,
        Redirect,
        Security,
        Shutdown,
        Store,
        Stream,
        Subscription,
        Topic,
        VirtualHost,
    )

__all__ = [
    "Alarms",
    "Alias",
    "Binding",
    "Config",
    "Exchange",
    "Http",
    "Limits",
    "Listener",
    "Log",
    "Nodes",
    "Policy",
    "Queue",
    "Redirect",
    "Security",
    "Shutdown",
    "Store",
    "Stream",
    "Subscription",
    "Topic",
    "VirtualHost",
    "load_config",
]


def __getattr__(name: str) -> object:
    """Import a public name at its first use, because some modules need only the errors."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "load" if name == "load_config" else "model"
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
