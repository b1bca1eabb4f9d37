"""The features of AMQP 0-9-1 that are tried with each client, in the order of the page.

What a client does is in the module of its cases, under the name of the feature. No client needs
each feature: a module without a case leaves its cell empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Family = Literal["clients", "celery"]


@dataclass(frozen=True)
class Feature:
    """A feature, which one program tries: `row` is its line on the page."""

    name: str
    row: str
    family: Family = "clients"
    alarm: bool = False
    """Whether the broker is one whose alarm a case can set."""

    restarts: bool = False
    """Whether the case ends the broker and starts it again."""

    slow: bool = False
    """Whether `make test` does without it, because it takes seconds."""


FEATURES: Final = (
    # Declaring.
    Feature("queue-declare", "declare, count, purge and delete a queue"),
    Feature("queue-arguments", "arguments of queues"),
    Feature("server-named", "names that the broker makes"),
    Feature("passive", "declare passively"),
    Feature("exclusive", "exclusive queues"),
    Feature("auto-delete", "auto-delete of queues and exchanges"),
    Feature("delete-conditions", "delete if unused, if empty"),
    Feature("default-exchange", "default exchange"),
    Feature("direct", "direct exchange"),
    Feature("fanout", "fanout exchange"),
    Feature("topic", "topic exchange"),
    Feature("headers", "headers exchange"),
    Feature("exchange-bindings", "bindings between exchanges"),
    Feature("alternate-exchange", "alternate exchange"),
    # Publishing.
    Feature("properties", "properties of messages"),
    Feature("header-types", "types of headers"),
    Feature("empty", "empty message"),
    Feature("large", "message of 1 MiB"),
    Feature("mandatory", "mandatory: the message is returned"),
    Feature("confirms", "publisher confirms"),
    Feature("confirm-nack", "publisher confirms: a full queue refuses"),
    # Consuming.
    Feature("get", "get"),
    Feature("consume", "consume"),
    Feature("no-ack", "consume without acknowledgement"),
    Feature("prefetch", "prefetch"),
    Feature("ack-multiple", "acknowledge several at once"),
    Feature("requeue", "nack and reject with requeue"),
    Feature("recover", "recover"),
    Feature("close-requeues", "close gives messages back"),
    Feature("cancel", "cancel a consumer"),
    Feature("cancel-notify", "the broker cancels a consumer"),
    Feature("exclusive-consumer", "exclusive consumer"),
    Feature("single-active", "single active consumer"),
    Feature("consumer-priority", "priority of consumers"),
    # What queues do.
    Feature("dead-letter", "dead letters with x-death"),
    Feature("message-ttl", "time to live of messages"),
    Feature("expires", "unused queues expire"),
    Feature("max-length", "max-length: the oldest is dropped"),
    Feature("priority", "priority of messages"),
    Feature("delivery-limit", "quorum queue: delivery limit"),
    Feature("stream", "stream from an offset"),
    # Transactions and patterns.
    Feature("tx-commit", "transaction: commit"),
    Feature("tx-rollback", "transaction: rollback"),
    Feature("rpc", "request and reply over a queue"),
    Feature("direct-reply-to", "direct reply-to"),
    Feature("two-protocols", "messages cross from and to AMQP 1.0"),
    # Errors.
    Feature("not-found", "error: not found"),
    Feature("precondition", "error: precondition failed"),
    Feature("access-refused", "error: access refused"),
    Feature("unknown-tag", "error: unknown delivery tag"),
    Feature("wrong-password", "error: wrong password"),
    Feature("wrong-host", "error: no such virtual host"),
    # Connections.
    Feature("tls", "TLS"),
    Feature("virtual-host", "virtual host"),
    Feature("channels", "several channels"),
    Feature("heartbeat", "heartbeats", slow=True),
    Feature("restart", "the broker is killed: durable messages stay", restarts=True, slow=True),
    Feature("blocked", "the broker blocks publishers", alarm=True),
    # Celery.
    Feature("task", "task and its result", "celery"),
    Feature("retry", "retry", "celery", slow=True),
    Feature("countdown", "countdown", "celery", slow=True),
    Feature("eta", "ETA", "celery", slow=True),
    Feature("chain", "chain", "celery"),
    Feature("chord", "chord, results in SQLite", "celery"),
    Feature("task-priority", "priority of tasks", "celery"),
    Feature("acks-late", "acks_late: a killed worker's task runs again", "celery", slow=True),
    Feature("remote-control", "remote control: ping", "celery"),
)  # fmt: skip
