"""The configuration of the server with which a member waits for its election."""

from __future__ import annotations

from typing import Final, TypeVar

from ferrymq_broker.config.capture import Capture
from ferrymq_broker.config.declarations import Tables
from ferrymq_broker.config.history import History
from ferrymq_broker.config.model import Config
from ferrymq_broker.config.storage import Store
from ferrymq_broker.config.url import ListenAddress, parse_listen_url

T = TypeVar("T", bound=Tables)

# The tables that make nodes.
_NODES: Final = ("queue", "topic", "subscription", "stream", "exchange", "alias", "redirect")


def standby_config(config: Config) -> Config:
    """Return a configuration with the listeners, virtual hosts, logins and rules of `config`, but
    without nodes and without a store."""
    return _emptied(config).model_copy(
        update={
            "store": Store(),
            "capture": Capture(),
            "history": History(enabled=False),
            "virtual_host": [_emptied(host) for host in config.virtual_host],
        }
    )


def _emptied(tables: T) -> T:
    return tables.model_copy(update={name: [] for name in _NODES})


def with_ports(config: Config, addresses: list[ListenAddress], http: str | None) -> Config:
    """Return the configuration with the ports that a server has got in place of port 0, so that the
    next server of the process listens on the same. `addresses` are those of the server, in the
    order of the configuration; `http` is the URL of its monitoring."""
    listeners = list(config.listener)
    if len(addresses) == len(listeners):
        for at, (listener, address) in enumerate(zip(listeners, addresses, strict=True)):
            if parse_listen_url(listener.url).port == 0:
                listeners[at] = listener.model_copy(update={"url": address.url})
    changes: dict[str, object] = {"listener": listeners}
    if http is not None:
        changes["http"] = config.http.model_copy(update={"url": http})
    return config.model_copy(update=changes)
