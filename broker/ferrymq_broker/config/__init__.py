"""The broker's configuration: the model of its settings, and the reader of the TOML file."""

from __future__ import annotations

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
