"""Declarations of a virtual host: nodes by name or by pattern, aliases, redirects, rules."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ferrymq_broker.config.access import AccessRule
from ferrymq_broker.config.nodes import (
    Address,
    ExchangeSettings,
    QueueSettings,
    StreamSettings,
    TopicSettings,
)
from ferrymq_broker.config.section import Section, StrictSection
from ferrymq_broker.config.units import Count
from ferrymq_broker.values.bindings import MAX_KEY
from ferrymq_broker.values.names import DYNAMIC, MAX_ADDRESS_LENGTH
from ferrymq_broker.values.wildcards import ANY, ONE

Name = Annotated[str, Field(min_length=1, max_length=MAX_ADDRESS_LENGTH)]


class Policy(QueueSettings, StreamSettings, ExchangeSettings):
    """``[policies.NAME]``: settings that several nodes share; a node uses those of its kind."""

    max_subscriptions: Count = 0
    max_rules: Count = 10_000
    auto_subscribe: bool = False


class Subscription(QueueSettings):
    """``[topic.subscription]``: the queues behind the subscriptions of a topic."""

    policy: str = ""


class DeclaredNode(StrictSection):
    """A declared node by `name`, or all nodes whose names match `pattern`.

    `policy` names a table of ``[policies]``; the node's own settings override it.
    """

    name: Name | None = None
    pattern: Name | None = None
    policy: str = ""

    @property
    def address(self) -> str:
        """The name, or the pattern."""
        return self.name or self.pattern or ""

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        if (self.name is None) == (self.pattern is None):
            raise ValueError("a node has either a name or a pattern")
        wild = ANY in self.address or ONE in self.address
        if self.name is not None and wild:
            raise ValueError(f"a name has no wildcards; write pattern = {self.name!r}")
        if self.pattern is not None and not wild:
            raise ValueError(f"a pattern has a * or a ?; write name = {self.pattern!r}")
        if self.address.startswith(("$", DYNAMIC)):
            raise ValueError(f"names that begin with $ or {DYNAMIC} are reserved for the broker")
        return self


class Queue(DeclaredNode, QueueSettings):
    """``[[queue]]``: a queue that exists from the start, or queues made on first use."""


class Topic(DeclaredNode, TopicSettings):
    """``[[topic]]``: a topic, or topics made on first use."""

    subscription: Subscription = Field(default_factory=Subscription.defaults)


class SubscriptionRule(StrictSection):
    """``[[subscription.rule]]``: a rule with one filter, and an action or none."""

    name: str = Field(min_length=1, max_length=256)
    true: bool = False
    false: bool = False
    sql: str | None = None
    correlation: dict[str, str | int | dict[str, str | int | float | bool]] | None = None
    action: str = ""

    def described(self) -> dict[str, object]:
        """Return the description of the rule, without its name."""
        return {
            key: getattr(self, key)
            for key in ("true", "false", "sql", "correlation", "action")
            if getattr(self, key) not in (None, False, "") or (key == "sql" and self.sql == "")
        }


class DeclaredSubscription(StrictSection):
    """``[[subscription]]``: a subscription of a declared topic that exists from the start.

    With any `rule`, it gets only what its rules say.
    """

    topic: Name
    name: Name
    rule: list[SubscriptionRule] = Field(default=[])


class Stream(DeclaredNode, StreamSettings):
    """``[[stream]]``: a stream, or streams made on first use."""


class Binding(StrictSection):
    """``[[exchange.binding]]``: messages whose routing key matches `key` go `to` an address."""

    key: str = Field(default="", max_length=MAX_KEY)
    to: Name
    arguments: dict[str, str | int | float | bool] = Field(default={})


class Exchange(DeclaredNode, ExchangeSettings):
    """``[[exchange]]``: an exchange, or exchanges made on first use."""

    binding: list[Binding] = Field(default=[])


class Alias(StrictSection):
    """``[[alias]]``: another name for an address, for an alias, or for a part of a node."""

    name: Name
    to: Name


class Redirect(StrictSection):
    """``[[redirect]]``: an address whose node is in another container (AMQP 1.0 §2.8.18)."""

    name: Name
    host: str = Field(min_length=1, max_length=255)
    port: int = Field(default=5672, ge=1, le=65535)
    # The hostname for the client's open; `host` if empty.
    hostname: str = Field(default="", max_length=255)
    # The address of the node in that container; `name` if empty.
    address: Address = ""


class Nodes(Section):
    """``[nodes]``: the nodes that the broker makes if a link names an address that does not exist.

    With `auto_create` true it makes a queue, or a topic for links that ask for a topic. With
    ``queue`` or ``topic`` it always makes a node of that kind. With false it refuses the link.
    """

    auto_create: bool | Literal["queue", "topic"] = True
    limit: int = Field(default=100_000, ge=1)


class Tables(Section):
    """The declarations of a virtual host. Those at the top of the file are of the default virtual
    host."""

    queue: list[Queue] = Field(default=[])
    topic: list[Topic] = Field(default=[])
    subscription: list[DeclaredSubscription] = Field(default=[])
    stream: list[Stream] = Field(default=[])
    exchange: list[Exchange] = Field(default=[])
    alias: list[Alias] = Field(default=[])
    redirect: list[Redirect] = Field(default=[])
    rule: list[AccessRule] = Field(default=[])
    nodes: Nodes = Field(default_factory=Nodes.defaults)

    def declared(self) -> list[tuple[str, int, DeclaredNode]]:
        """Return all nodes and patterns: kind, index in its list, declaration."""
        lists: list[tuple[str, list[Queue] | list[Topic] | list[Stream] | list[Exchange]]] = [
            ("queue", self.queue),
            ("topic", self.topic),
            ("stream", self.stream),
            ("exchange", self.exchange),
        ]
        return [(kind, at, entry) for kind, entries in lists for at, entry in enumerate(entries)]


class VirtualHost(Tables):
    """``[[virtual-host]]``: separate nodes for clients that open with one of its hostnames.

    The name of the virtual host is one of these. Settings that ``[virtual-host.nodes]`` leaves out
    are taken from ``[nodes]``. `worker` is the number of the process that serves it; by default the
    broker chooses one.
    """

    worker: int | None = Field(default=None, ge=0)
    name: str = Field(min_length=1, max_length=255)
    hostnames: list[Annotated[str, Field(min_length=1, max_length=255)]] = Field(default=[])

    def all_hostnames(self) -> list[str]:
        """Return the hostnames that lead to this virtual host, in lower case, each once."""
        return list(dict.fromkeys(name.lower() for name in [self.name, *self.hostnames]))
