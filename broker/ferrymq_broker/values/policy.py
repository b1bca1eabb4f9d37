"""How the nodes behave that somebody declared: in the configuration, by management, by pattern.

Times are in milliseconds, sizes in bytes; 0 means that there is no limit, or that the feature is
off. Every policy is immutable: a change of a node's policy is another policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# What happens to a message for which a queue has no room.
OVERFLOWS = ("reject", "drop-head", "dead-letter", "block")

EXCHANGE_TYPES = ("direct", "topic", "fanout", "headers")


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The policy of a queue. The defaults are those of a queue made on attach.

    - `priorities`: how many levels of priority it tells apart, 1 to 10 (AMQP 1.0 §3.2.1).
    - `max_length`, `max_bytes`: of what waits and what consumers hold; `overflow` is one of
      ``reject``, ``drop-head``, ``dead-letter`` (the oldest goes to `dead_letter`) and ``block``
      (senders get no credit).
    - `message_ttl`: the longest a message may stay, whatever it says itself.
    - `delivery_limit`: how many failed deliveries a message may have; with one more it is
      dead-lettered.
    - `dead_letter`: the address rejected, expired and failed messages go to; without one they are
      dropped and counted. `expired`: the address for expired ones, if it is another.
    - `return_rejected`: rejected and failed messages go to the address in their reply-to first, if
      their publisher may send there; else to `dead_letter`.
    - `single_active`: one consumer at a time gets messages, the others stand by.
    - `exclusive`: one link may consume at a time.
    - `groups`: messages of one group-id go to one consumer.
    - `last_value_key`: the application property (or, beginning with ``x-``, the message annotation)
      of which only the last message of each value is kept.
    - `duplicate_window`: how long message-ids are remembered; `duplicate_limit`: how many.
    - `auto_delete`: how long the queue stays unused and without links before it goes; −1 never.
    - `max_consumers`: how many links may consume at a time.
    - `durable`: it and its durable messages outlive the process, where there is a store.
    - `persist`: all its messages do, whatever they say themselves.
    - `unpack_batches`: a delivery of message-format 0x80013700, as Azure's clients send, is taken
      apart into its messages; without it such a delivery is rejected.
    """

    priorities: int = 10
    max_length: int = 0
    max_bytes: int = 0
    overflow: str = "reject"
    message_ttl: int = 0
    delivery_limit: int = 0
    dead_letter: str = ""
    expired: str = ""
    return_rejected: bool = False
    single_active: bool = False
    exclusive: bool = False
    groups: bool = False
    last_value_key: str = ""
    duplicate_window: int = 0
    duplicate_limit: int = 100_000
    auto_delete: int = -1
    max_consumers: int = 0
    durable: bool = True
    persist: bool = False
    unpack_batches: bool = False


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The policy of a topic; `subscription` is the policy of the queues behind its
    subscriptions."""

    subscription: QueuePolicy = field(default_factory=QueuePolicy)
    max_subscriptions: int = 0
    auto_delete: int = -1
    durable: bool = True
    unpack_batches: bool = False


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """The policy of a stream.

    `max_bytes`, `max_age` and `max_records` say what each partition keeps at least the newest of;
    what is older goes by whole segments of `segment_bytes`. With `capture` it is also written to
    files, where the broker is told of a directory for them, and goes no earlier.
    """

    partitions: int = 1
    max_bytes: int = 0
    max_age: int = 0
    max_records: int = 0
    segment_bytes: int = 1024 * 1024
    durable: bool = True
    capture: bool = False
    unpack_batches: bool = False


@dataclass(frozen=True, slots=True)
class ExchangePolicy:
    """The policy of an exchange: `type` is one of `EXCHANGE_TYPES`.

    `alternate` is the address of the node for what no binding matches. Bindings are not part of the
    policy: they come and go.
    """

    type: str = "direct"
    alternate: str = ""
    auto_delete: int = -1
    durable: bool = True
    unpack_batches: bool = False


NodePolicy = QueuePolicy | TopicPolicy | StreamPolicy | ExchangePolicy
