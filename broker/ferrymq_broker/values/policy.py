"""The policies of nodes that are declared in the configuration, by management or by an address
pattern.

Times are in milliseconds, sizes in bytes; 0 means no limit, or that the feature is off. A policy is
immutable: to change the settings of a node, another policy takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# What a queue does with a message for which it has no room.
OVERFLOWS = ("reject", "drop-head", "dead-letter", "block", "reject-dead-letter")

# What the time of `auto_delete` is for.
UNUSED: Final = "unused"
UNCONSUMED: Final = "unconsumed"
AUTO_DELETES: Final = (UNUSED, UNCONSUMED)

EXCHANGE_TYPES = ("direct", "topic", "fanout", "headers")


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The policy of a queue. The defaults are those of a queue that an attach creates.

    - `priorities`: the number of priority levels, 1 to 10 (AMQP 1.0 §3.2.1).
    - `max_length`, `max_bytes`: limits for the messages that wait and that consumers hold;
      `overflow` is one of ``reject``, ``drop-head``, ``dead-letter`` (the oldest message goes to
      `dead_letter`), ``block`` (senders get no credit) and ``reject-dead-letter`` (a message that
      is rejected also goes to `dead_letter`).
    - `target_latency`: with overflow *block*, how long messages shall wait at most while producers
      are faster than consumers; 0: any time.
    - `message_ttl`: the longest time that a message may stay; a message's own ttl may be shorter.
    - `delivery_limit`: how many failed deliveries a message may have; after one more, it is
      dead-lettered. 0: any number; −1: none.
    - `dead_letter`: the address for rejected, expired and failed messages; without an address they
      are dropped and counted. `expired`: another address for expired messages. `drop_expired`:
      expired messages are dropped and counted, whatever these addresses are.
    - `return_rejected`: rejected and failed messages go to the address in their reply-to if their
      publisher may send there, otherwise to `dead_letter`.
    - `single_active`: one consumer at a time gets messages; the others wait.
    - `exclusive`: one link may consume at a time.
    - `groups`: messages of one group-id go to one consumer.
    - `sessions`: messages of one group-id are a session, which one consumer at a time owns; a
      message needs a group-id. It can only be set when the queue is made.
    - `last_value_key`: the application property (or, beginning with ``x-``, the message annotation)
      that serves as a key: only the last message of each value is kept.
    - `duplicate_window`: how long message-ids are remembered; `duplicate_limit`: how many.
    - `auto_delete`: how long the queue may be unused and without links before it is deleted; −1: it
      is never deleted. `auto_delete_when` is ``unused``, or ``unconsumed``: then only consumers use
      the queue, and it is deleted with its messages.
    - `max_consumers`: how many links may consume at a time.
    - `durable`: the queue and its durable messages survive a restart, if there is a store.
    - `persist`: all its messages survive a restart, durable or not.
    - `lock_duration`: how long a consumer holds a message that it was sent unsettled, unless it
      gives an outcome or renews the lock; then the message returns. 0: as long as the link lasts.
    - `deferral`: modified with undeliverable-here sets the message aside, for a receiver that asks
      for it by its number.
    - `unpack_batches`: a delivery of message-format 0x80013700, as Azure's clients send it, is
      split into its messages; without this setting such a delivery is rejected.
    - `sub_queues`: the names of the queues that belong to this one, at ``QUEUE/NAME``.
      `dead_letter` and `expired` name one of them with a leading slash: ``/NAME``.
    - `forward_to`: the address that each message goes on to in the step in which it comes;
      `forward_failed`: the address for messages for which that is not possible. Without it their
      senders get the reason.
    - `labels`: texts that are kept with the queue and shown, and have no effect.
    - `send_disabled`, `receive_disabled`: clients cannot send, or receive; messages stay.
    """

    priorities: int = 10
    max_length: int = 0
    max_bytes: int = 0
    overflow: str = "reject"
    target_latency: int = 0
    message_ttl: int = 0
    delivery_limit: int = 0
    dead_letter: str = ""
    expired: str = ""
    drop_expired: bool = False
    return_rejected: bool = False
    single_active: bool = False
    exclusive: bool = False
    groups: bool = False
    sessions: bool = False
    last_value_key: str = ""
    duplicate_window: int = 0
    duplicate_limit: int = 100_000
    auto_delete: int = -1
    auto_delete_when: str = UNUSED
    max_consumers: int = 0
    durable: bool = True
    persist: bool = False
    lock_duration: int = 0
    deferral: bool = False
    unpack_batches: bool = False
    sub_queues: tuple[str, ...] = ()
    forward_to: str = ""
    forward_failed: str = ""
    labels: tuple[str, ...] = ()
    send_disabled: bool = False
    receive_disabled: bool = False


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The policy of a topic; `subscription` is the policy of the queues behind its subscriptions.

    `duplicate_window` is how long the topic remembers message-ids, `duplicate_limit` how many: a
    message that came before goes to no subscription, not even to a newer one. `auto_subscribe`: a
    link to the address of a subscription that does not exist declares it. `send_disabled`: clients
    cannot send.
    """

    subscription: QueuePolicy = field(default_factory=QueuePolicy)
    max_subscriptions: int = 0
    max_rules: int = 10_000
    duplicate_window: int = 0
    duplicate_limit: int = 100_000
    auto_subscribe: bool = False
    auto_delete: int = -1
    durable: bool = True
    unpack_batches: bool = False
    labels: tuple[str, ...] = ()
    send_disabled: bool = False


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """The policy of a stream.

    Each partition keeps at least its newest records as `max_bytes`, `max_age` and `max_records`
    say; older records are dropped in whole segments of `segment_bytes`. With `capture`, records are
    also written to files, if the broker has a directory for them, and are not dropped before that.
    Readers may name one of the `consumer_groups`; without any, they may name any group. A partition
    has at most `readers_per_group` readers of one group. `partitions_on` says which partitions are
    on which broker (`ferrymq.partitioning`); without any entry all are on this one.
    """

    partitions: int = 1
    partitions_on: tuple[str, ...] = ()
    max_bytes: int = 0
    max_age: int = 0
    max_records: int = 0
    segment_bytes: int = 1024 * 1024
    durable: bool = True
    capture: bool = False
    unpack_batches: bool = False
    consumer_groups: tuple[str, ...] = ()
    readers_per_group: int = 0
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExchangePolicy:
    """The policy of an exchange: `type` is one of `EXCHANGE_TYPES`.

    `alternate` is the address of the node for messages that no binding matches. Bindings are not
    part of the policy, because they change.
    """

    type: str = "direct"
    alternate: str = ""
    auto_delete: int = -1
    durable: bool = True
    unpack_batches: bool = False
    labels: tuple[str, ...] = ()


NodePolicy = QueuePolicy | TopicPolicy | StreamPolicy | ExchangePolicy


def is_own_sub_queue(policy: QueuePolicy, address: str) -> bool:
    """Return whether an address in the settings of a queue, ``/NAME``, is one of its
    sub-queues."""
    return address.startswith("/") and address[1:] in policy.sub_queues
