"""What the configuration may say. Every key is written with dashes: ``max-message-size``.

Sizes are in bytes, times in seconds, credit and windows in messages and frames; sizes and times may
be text with a unit as well (`units`).
"""

from __future__ import annotations

import socket
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from ferrymq_broker.broker import DEFAULT_SPACE, VHOST
from ferrymq_broker.config.checks import check_tables
from ferrymq_broker.config.declarations import (
    Alias,
    Binding,
    Exchange,
    Nodes,
    Policy,
    Queue,
    Redirect,
    Stream,
    Subscription,
    Tables,
    Topic,
    VirtualHost,
)
from ferrymq_broker.config.memory import available_memory
from ferrymq_broker.config.mistakes import Location, Mistake, Mistakes
from ferrymq_broker.config.section import Section
from ferrymq_broker.config.storage import Store
from ferrymq_broker.config.units import Bytes, Seconds, Share, format_size, share_of
from ferrymq_broker.config.url import ListenAddress, check_http_url, parse_listen_url

MIB = 1024 * 1024
# The virtual host of the tables at the top of the file.
DEFAULT_HOST = DEFAULT_SPACE
# The broker counts the bytes of a message in 32 bits, with the annotations that it may add.
MAX_MESSAGE_BYTES = 2047 * MIB


def _check_message_size(size: int) -> int:
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"a message has at most {format_size(MAX_MESSAGE_BYTES)}, not {format_size(size)}"
        )
    return size


def _check_url(url: str) -> str:
    parse_listen_url(url)
    return url


class Listener(Section):
    """``[[listener]]``: an address clients connect to."""

    url: Annotated[str, AfterValidator(_check_url)]

    @property
    def address(self) -> ListenAddress:
        """The URL taken apart."""
        return parse_listen_url(self.url)


class Limits(Section):
    """``[limits]``: what one client may make the broker do."""

    max_frame_size: Annotated[Bytes, Field(ge=512, le=16 * MIB)] = 65536
    max_message_size: Annotated[Bytes, Field(ge=1), AfterValidator(_check_message_size)] = 100 * MIB
    # Sessions of a connection and links of a session, less one (AMQP 1.0 §2.7.1–2).
    channel_max: int = Field(default=2047, ge=0, le=65535)
    handle_max: int = Field(default=1023, ge=0, le=0xFFFFFFFF)
    # Transfer frames a client may send on a session before it hears from the broker.
    incoming_window: int = Field(default=2048, ge=1, le=0x7FFFFFFF)
    # Messages a producer may send before it hears from the broker.
    credit: int = Field(default=1000, ge=1, le=1_000_000)
    # Messages all producers together may send before they hear from the broker; 0 is no limit.
    total_credit: int = Field(default=10_000_000, ge=0, le=2**62)
    # Transactions a connection may have open, and how long one may take; 0 lets it take for ever.
    transactions: int = Field(default=100, ge=1, le=1_000_000)
    transaction_timeout: Annotated[Seconds, Field(ge=0)] = 300.0
    # Messages and deliveries one transaction may have, and what its messages may add up to.
    transaction_work: int = Field(default=100_000, ge=1, le=2**31)
    transaction_bytes: Annotated[Bytes, Field(ge=1, le=2**62)] = 100 * MIB
    # A client that is silent this long is disconnected; 0 lets it be silent for ever.
    idle_time_out: Annotated[Seconds, Field(ge=0)] = 60.0
    handshake_timeout: Annotated[Seconds, Field(gt=0)] = 10.0
    # How long a client may take to answer a close; how long the broker waits at its end.
    close_timeout: Annotated[Seconds, Field(gt=0)] = 5.0


class Alarms(Section):
    """``[alarms]``: when producers must wait because the broker is full.

    `memory` is how many bytes of messages there may be, or the part of the memory there is;
    0 is no alarm. It ends when there are no more than `low_water`, bytes or a part of the alarm.
    """

    memory: Share = "40%"
    low_water: Share = "80%"

    def memory_bytes(self) -> int:
        """Above so many bytes of messages there is an alarm; 0 never."""
        if isinstance(self.memory, int):
            return self.memory
        return share_of(self.memory, available_memory())

    def low_water_bytes(self) -> int:
        """At so many bytes of messages it ends."""
        return share_of(self.low_water, self.memory_bytes())


class Http(Section):
    """``[http]``: where monitoring may ask, ``http://HOST:PORT``; nowhere by default."""

    url: Annotated[str, AfterValidator(check_http_url)] | None = None


class Shutdown(Section):
    """``[shutdown]``: how long clients may settle what they hold when the broker is told to end."""

    drain_timeout: Annotated[Seconds, Field(ge=0)] = 5.0


class Security(Section):
    """``[security]``: who may connect.

    Without users every name and password is good on loopback listeners, and so is giving none:
    beyond loopback, one of the two must be stated. With users only they get in, unless
    `anonymous` lets in clients that give no name as well.
    """

    anonymous: bool | None = None
    users: dict[str, SecretStr] = Field(default_factory=dict)

    @field_validator("users")
    @classmethod
    def _check_users(cls, users: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, password in users.items():
            if not name or "\0" in name or "\0" in password.get_secret_value():
                raise ValueError("a user name is not empty, and neither it nor a password has NUL")
        return users


class Log(Section):
    """``[log]``: what goes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class Config(Tables):
    """The whole file. Without one, everything is at its default: a friendly local broker."""

    container_id: str = Field(default_factory=lambda: f"ferrymq@{socket.gethostname()}")
    listener: list[Listener] = Field(
        default_factory=lambda: [Listener(url="amqp://127.0.0.1:5672")], min_length=1
    )
    limits: Limits = Field(default_factory=Limits)
    alarms: Alarms = Field(default_factory=Alarms)
    store: Store = Field(default_factory=Store)
    policies: dict[str, Policy] = Field(default_factory=dict)
    virtual_host: list[VirtualHost] = Field(default_factory=list)
    # Where clients go that open with a hostname nobody answers to.
    unknown_hostname: Literal["default", "refuse"] = "default"
    security: Security = Field(default_factory=Security)
    http: Http = Field(default_factory=Http)
    shutdown: Shutdown = Field(default_factory=Shutdown)
    log: Log = Field(default_factory=Log)

    @field_validator("container_id")
    @classmethod
    def _check_container_id(cls, name: str) -> str:
        # Every open carries it, and an open has 512 bytes (AMQP 1.0 §2.4.1).
        if len(name.encode()) > 300:
            raise ValueError("at most 300 bytes of UTF-8")
        return name

    @model_validator(mode="after")
    def _check(self) -> Config:
        mistakes = self._access() + self._alarms() + self._store() + self._hosts()
        mistakes += check_tables(self, self.nodes, self.policies, ())
        for at, host in enumerate(self.virtual_host):
            mistakes += check_tables(host, self.nodes_of(host), self.policies, ("virtual-host", at))
        if mistakes:
            raise Mistakes(mistakes)
        return self

    def nodes_of(self, host: VirtualHost) -> Nodes:
        """The ``[nodes]`` of a virtual host, with those of the file for what it does not say."""
        said = {name: getattr(host.nodes, name) for name in host.nodes.model_fields_set}
        return self.nodes.model_copy(update=said)

    def _access(self) -> list[Mistake]:
        security = self.security
        if security.users or security.anonymous:
            return []
        return [
            Mistake(
                ("listener", at, "url"),
                f"{listener.url} is open to other machines, but [security] names no users; "
                "to let everybody in, say anonymous = true there",
            )
            for at, listener in enumerate(self.listener)
            if not listener.address.is_loopback
        ]

    def _alarms(self) -> list[Mistake]:
        if 0 < self.alarms.memory_bytes() < self.alarms.low_water_bytes():
            return [Mistake(("alarms", "low-water"), "an alarm ends below where it begins")]
        return []

    def page_out_bytes(self) -> int:
        """Above so many bytes of messages in memory queues page them out; 0 never.

        A part is of what raises the memory alarm; without that alarm, of the memory.
        """
        whole = self.alarms.memory_bytes()
        if whole == 0 and isinstance(self.store.page_out, str):
            whole = available_memory()
        return share_of(self.store.page_out, whole)

    def _store(self) -> list[Mistake]:
        store = self.store
        mistakes: list[Mistake] = []
        if 0 < store.max_bytes < store.least_bytes():
            reason = (
                f"the journal alone takes {format_size(store.least_bytes())}; "
                "allow more, or make segment-bytes smaller"
            )
            mistakes.append(Mistake(("store", "max-bytes"), reason))
        if 0 < self.alarms.memory_bytes() < self.page_out_bytes():
            reason = "the memory alarm would stop producers before anything is paged out"
            mistakes.append(Mistake(("store", "page-out"), reason))
        return mistakes

    def _hosts(self) -> list[Mistake]:
        mistakes: list[Mistake] = []
        known: dict[str, Location] = {}
        for at, host in enumerate(self.virtual_host):
            if host.name == DEFAULT_HOST:
                reason = "the default virtual host is declared at the top of the file"
                mistakes.append(Mistake(("virtual-host", at, "name"), reason))
            for name in host.all_hostnames():
                if name.startswith(VHOST):
                    reason = f"{VHOST} goes before the name of a virtual host in an open, not here"
                    mistakes.append(Mistake(("virtual-host", at), reason))
                if name in known:
                    reason = f"two virtual hosts answer to {name!r}"
                    mistakes.append(Mistake(("virtual-host", at), reason, known[name]))
                known.setdefault(name, ("virtual-host", at))
        return mistakes


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
]
