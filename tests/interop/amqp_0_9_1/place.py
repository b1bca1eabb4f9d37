"""The place of a case of AMQP 0-9-1: the broker, the users, and names that no other case has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.interop.features.trial import ask

# Seconds. A message that is there comes sooner.
PATIENCE = 15.0
# Seconds that a queue is watched for one message too many.
WATCH = 0.2


@dataclass(frozen=True)
class Place:
    """The broker as its question describes it; `entity` begins all names that the case makes."""

    entity: str
    host: str
    port: int
    tls_port: int
    authority: str
    """File with the certificate of the broker's authority."""

    user: str
    password: str
    guest: str
    """User who may only use the queue ``open``, with the same password."""

    other_host: str
    """A second virtual host, in which `user` may do everything."""

    amqp_1_0: str
    """URL of the broker for AMQP 1.0."""

    address: str
    """Address of the queue `{}` in AMQP 1.0."""

    case: str = field(default="", repr=False)

    def name(self, suffix: str = "") -> str:
        """Return a name that no other case uses."""
        return f"{self.entity}.{suffix}" if suffix else self.entity

    def url(self, host: str = "%2F", *, user: str = "", password: str = "") -> str:
        """Return the URL for a virtual host, percent-encoded."""
        login = f"{user or self.user}:{password or self.password}"
        return f"amqp://{login}@{self.host}:{self.port}/{host}"

    def restart(self) -> None:
        """Kill the broker, and start it again."""
        ask({"restart": True})

    def block(self) -> None:
        """Set the broker's alarm."""
        ask({"alarm": True})

    def unblock(self) -> None:
        """End the broker's alarm."""
        ask({"alarm": False})


def place(asked: dict[str, Any]) -> Place:
    """Return the place that a question describes."""
    return Place(**asked)
