"""The features that are tried with each of Azure's SDKs, and the entities that they need.

`FEATURES` is in the order of the page. What a client does is in the modules of the clients, under
the name of the feature: `service_bus_cases` and `event_hub_cases` for Python, `service_bus.js` and
`event_hubs.js` for Node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Family = Literal["service-bus", "event-hubs"]


@dataclass(frozen=True)
class Feature:
    """A feature, which one program tries: `row` is its line on the page.

    `queue`, `topic` and `hub` are the settings of the entity that has the feature's name; None
    stands for no such entity.
    """

    name: str
    row: str
    family: Family = "service-bus"
    queue: Mapping[str, Any] | None = field(default_factory=dict)
    topic: Mapping[str, Any] | None = None
    hub: Mapping[str, Any] | None = None
    more: tuple[Mapping[str, Any], ...] = ()
    """Other queues, with their names."""

    guarded: bool = False
    """Whether the broker has TLS and keys."""

    quick: bool = False
    """Whether `make test` tries it with the SDKs for Python, which take seconds for it."""


def _topic(name: str, row: str, *subscriptions: Mapping[str, Any], **more: Any) -> Feature:
    """Return a feature with a topic and its subscriptions."""
    return Feature(name, row, queue=None, topic={"subscription": list(subscriptions)}, **more)


def _hub(name: str, row: str, hub: Mapping[str, Any] | None = None, **more: Any) -> Feature:
    """Return a feature with an event hub, by default with two partitions."""
    settings = {"partition-count": 2} if hub is None else hub
    return Feature(name, row, "event-hubs", queue=None, hub=settings, **more)


_SESSIONS: Final = {"requires-session": True}
_LOCKS: Final = {"lock-duration": "30s"}

FEATURES: Final = (
    # Sending and receiving.
    Feature("send", "send and receive a message", quick=True),
    Feature("send-list", "send a list of messages"),
    Feature("batch", "send a batch", quick=True),
    Feature("large-message", "a message of 900 KiB"),
    Feature("properties", "properties of messages", quick=True),
    Feature("property-types", "types of application properties"),
    Feature("body-types", "bodies of data, value and sequence"),
    Feature("receive-and-delete", "receive and delete"),
    Feature("iterate", "receive in a loop or by a handler"),
    Feature("peek", "peek", quick=True),
    Feature("prefetch", "prefetch"),
    Feature("partition-key", "partition key"),
    Feature("close-releases", "close gives back what was fetched in advance"),
    # Settling. The SDKs renew by their own clock, before other cases advance the broker's.
    Feature("auto-renew", "renew locks automatically", queue={"lock-duration": "8s"}),
    Feature("complete", "complete"),
    Feature("abandon", "abandon"),
    Feature("abandon-properties", "abandon with properties", quick=True),
    Feature("defer", "defer, receive the deferred message", quick=True),
    Feature("dead-letter", "dead-letter with reason and description", quick=True),
    Feature("renew-lock", "renew the lock of a message", queue=_LOCKS),
    Feature("lock-lost", "error: the lock is lost", queue=_LOCKS, quick=True),
    Feature("max-delivery-count", "too many deliveries", queue={"max-delivery-count": 2}),
    # What queues do.
    Feature("schedule", "schedule", quick=True),
    Feature("cancel-scheduled", "cancel a scheduled message"),
    Feature(
        "duplicates",
        "duplicate detection",
        queue={"requires-duplicate-detection": True},
    ),
    Feature(
        "expiry",
        "time to live, dead letter of an expired message",
        queue={"dead-lettering-on-message-expiration": True},
    ),
    Feature(
        "forward",
        "auto-forward",
        queue={"forward-to": "forward-target"},
        more=({"name": "forward-target"},),
    ),
    Feature(
        "transfer-dead-letter",
        "receiver of the transfer dead-letter queue",
        queue={"forward-to": "transfer-target"},
        more=({"name": "transfer-target", "requires-session": True},),
    ),
    # Sessions.
    Feature("session", "session by name", queue=_SESSIONS, quick=True),
    Feature("session-next", "next available session", queue=_SESSIONS),
    Feature("session-none", "error: no session is available", queue=_SESSIONS),
    Feature("session-state", "state of a session", queue=_SESSIONS),
    Feature("session-renew", "renew the lock of a session", queue={**_SESSIONS, **_LOCKS}),
    Feature("session-order", "order within sessions", queue=_SESSIONS),
    Feature("session-lost", "error: the session is lost", queue={**_SESSIONS, **_LOCKS}),
    Feature("session-locked", "error: the session is locked", queue=_SESSIONS),
    # Topics.
    _topic("topic", "topic and subscriptions", {"name": "a"}, {"name": "b"}, quick=True),
    _topic("subscription-dead-letter", "dead letters of a subscription", {"name": "a"}),
    _topic(
        "rule-sql",
        "rule with an SQL filter",
        {"name": "a", "rule": [{"name": "red", "sql": "color = 'red' AND size > 2"}]},
    ),
    _topic(
        "rule-correlation",
        "rule with a correlation filter",
        {"name": "a", "rule": [{"name": "x", "correlation": {"subject": "x"}}]},
    ),
    _topic(
        "rule-constant",
        "rules that are always true or false",
        {"name": "a", "rule": [{"name": "all", "sql": "1 = 1"}]},
        {"name": "b", "rule": [{"name": "none", "sql": "1 = 0"}]},
    ),
    _topic(
        "rule-action",
        "rule with an action",
        {
            "name": "a",
            "rule": [{"name": "mark", "sql": "1 = 1", "action": "SET sys.Label = 'marked'"}],
        },
    ),
    _topic("rule-manager", "rules over AMQP: add, list, remove", {"name": "a"}),
    # Errors.
    Feature("not-found", "error: no such entity", queue=None),
    Feature("too-large", "error: the message is too large"),
    Feature("quota", "error: the queue is full", queue={"max-size-in-megabytes": 1}),
    Feature("disabled", "error: the entity is disabled", guarded=True),
    Feature("unauthorized", "error: the key has no right", guarded=True),
    Feature("wrong-key", "error: the key is wrong", guarded=True),
    # Connections.
    Feature("tls", "TLS with keys", guarded=True),
    Feature("websocket", "WebSocket", guarded=True),
    # Administration.
    Feature("admin-queue", "administration: queues", queue=None, guarded=True),
    Feature("admin-topic", "administration: topics", queue=None, guarded=True),
    Feature("admin-subscription", "administration: subscriptions", queue=None, guarded=True),
    Feature("admin-rule", "administration: rules", queue=None, guarded=True),
    Feature("admin-runtime", "administration: runtime properties", queue=None, guarded=True),
    Feature("admin-errors", "administration: errors", queue=None, guarded=True),
    # Whole programs.
    Feature("flow-work", "program: work is shared by two receivers"),
    Feature("flow-sessions", "program: one session after the other", queue=_SESSIONS),
    Feature("flow-dead-letters", "program: dead letters are mended and sent again"),
    Feature("flow-schedule", "program: reminders, one of them cancelled"),
    _topic(
        "flow-topic",
        "program: subscriptions for high and low priority",
        {"name": "high", "rule": [{"name": "high", "sql": "priority >= 5"}]},
        {"name": "low", "rule": [{"name": "low", "sql": "priority < 5"}]},
    ),
    # Event hubs.
    _hub("event", "send and receive an event", quick=True),
    _hub("event-batch", "send a batch", quick=True),
    _hub("event-properties", "properties of events"),
    _hub("partition-id", "send to a partition", quick=True),
    _hub("event-partition-key", "partition key", quick=True),
    _hub("hub-properties", "properties of the event hub", quick=True),
    _hub("partition-properties", "properties of a partition", quick=True),
    _hub("from-start", "receive from the start"),
    _hub("from-latest", "receive from the end"),
    _hub("from-offset", "receive from an offset"),
    _hub("from-sequence-number", "receive from a sequence number"),
    _hub("from-time", "receive from a time"),
    _hub("epoch", "owner level: a higher one takes the partition", quick=True),
    _hub("consumer-groups", "consumer groups", {"consumer-groups": [{"name": "other"}]}),
    _hub("metrics", "last enqueued event in deliveries"),
    _hub("buffered", "buffered producer"),
    _hub("checkpoint", "go on behind a checkpoint"),
    _hub("balance", "two consumers share the partitions"),
    _hub("hub-not-found", "error: no such event hub"),
    _hub("hub-tls", "TLS with keys", guarded=True),
    _hub("hub-websocket", "WebSocket", guarded=True),
    _hub("flow-hub", "program: events of several devices, in their order"),
)


def entities(features: tuple[Feature, ...]) -> dict[str, Any]:
    """Return the table `[personality]` of a broker with the entities of the features."""
    queues = [{"name": each.name, **each.queue} for each in features if each.queue is not None]
    return {
        "name": "azure",
        "create-entities": False,
        "queue": queues + [dict(queue) for each in features for queue in each.more],
        "topic": [{"name": each.name, **each.topic} for each in features if each.topic],
        "hub": [{"name": each.name, **each.hub} for each in features if each.hub is not None],
    }
