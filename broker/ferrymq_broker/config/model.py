"""What the configuration may say. Every key is written with dashes: ``max-message-size``.

Sizes are in bytes, times in seconds, credit and windows in messages and frames.
"""

from __future__ import annotations

import socket
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from ferrymq_broker.config.url import ListenAddress, parse_listen_url

MIB = 1024 * 1024


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class Section(BaseModel):
    """A table of the file: unknown keys are errors, nothing changes once it is read."""

    model_config = ConfigDict(
        alias_generator=_kebab, populate_by_name=True, extra="forbid", frozen=True
    )


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

    max_frame_size: int = Field(default=65536, ge=512, le=16 * MIB)
    max_message_size: int = Field(default=100 * MIB, ge=1)
    # Sessions of a connection and links of a session, less one (AMQP 1.0 §2.7.1–2).
    channel_max: int = Field(default=2047, ge=0, le=65535)
    handle_max: int = Field(default=1023, ge=0, le=0xFFFFFFFF)
    # Transfer frames a client may send on a session before it hears from the broker.
    incoming_window: int = Field(default=2048, ge=1, le=0x7FFFFFFF)
    # Messages a producer may send before it hears from the broker.
    credit: int = Field(default=1000, ge=1, le=1_000_000)
    # A client that is silent this long is disconnected; 0 lets it be silent for ever.
    idle_time_out: float = Field(default=60.0, ge=0)
    handshake_timeout: float = Field(default=10.0, gt=0)
    # How long a client may take to answer a close; how long the broker waits at its end.
    close_timeout: float = Field(default=5.0, gt=0)


class Nodes(Section):
    """``[nodes]``: what happens when a link names an address that is not there."""

    auto_create: bool = True
    limit: int = Field(default=100_000, ge=1)


class Queue(Section):
    """``[[queue]]``: a queue that is there from the start."""

    name: str = Field(min_length=1, max_length=1024)


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


class Config(Section):
    """The whole file. Without one, everything is at its default: a friendly local broker."""

    container_id: str = Field(default_factory=lambda: f"ferrymq@{socket.gethostname()}")
    listener: list[Listener] = Field(
        default_factory=lambda: [Listener(url="amqp://127.0.0.1:5672")], min_length=1
    )
    limits: Limits = Field(default_factory=Limits)
    nodes: Nodes = Field(default_factory=Nodes)
    queue: list[Queue] = Field(default_factory=list)
    security: Security = Field(default_factory=Security)
    log: Log = Field(default_factory=Log)

    @field_validator("container_id")
    @classmethod
    def _check_container_id(cls, name: str) -> str:
        # Every open carries it, and an open has 512 bytes (AMQP 1.0 §2.4.1).
        if len(name.encode()) > 300:
            raise ValueError("at most 300 bytes of UTF-8")
        return name

    @model_validator(mode="after")
    def _check_access(self) -> Config:
        security = self.security
        if security.users or security.anonymous:
            return self
        for listener in self.listener:
            if not listener.address.is_loopback:
                raise ValueError(
                    f"{listener.url} is open to other machines, but [security] names no users; "
                    "to let everybody in, say anonymous = true there"
                )
        return self

    @model_validator(mode="after")
    def _check_queues(self) -> Config:
        names = [queue.name for queue in self.queue]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"queue {name!r} is declared twice")
        return self
