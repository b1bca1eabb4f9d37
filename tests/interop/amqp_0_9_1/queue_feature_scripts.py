"""Scripts about dead letters, priorities, delivery limits and streams."""

from __future__ import annotations

from pamqp.commands import Basic, Channel, Confirm, Queue

from tests.interop.amqp_0_9_1.script_queues import declared_queue, with_dead_letters
from tests.interop.amqp_0_9_1.transcript import Peer


def dead_letter_rejected(p: Peer) -> None:
    with_dead_letters(p, "rejected")
    p.publish("letter-rejected", content_type="text/plain", headers={"a": 1})
    p.call(Basic.Get(0, "letter-rejected"))
    p.quiet()
    p.send(Basic.Reject(1, False))
    p.call(Basic.Qos(0, 1))
    p.quiet()
    p.call(Basic.Get(0, "dead-rejected", True))


def dead_letter_expired(p: Peer) -> None:
    with_dead_letters(p, "expired")
    p.call(Basic.Consume(0, "dead-expired", "tag", no_ack=True))
    p.publish("letter-expired", expiration="20")
    p.wait("Basic.Deliver")


def dead_letter_max_length(p: Peer) -> None:
    with_dead_letters(p, "maxlen", x_max_length=1)
    p.call(Basic.Consume(0, "dead-maxlen", "tag", no_ack=True))
    p.publish("letter-maxlen", b"1")
    p.publish("letter-maxlen", b"2")
    p.wait("Basic.Deliver")


def dead_letter_key_kept(p: Peer) -> None:
    declared_queue(p, "dead-kept")
    p.call(Queue.Bind(0, "dead-kept", "amq.direct", "letter-kept"))
    declared_queue(p, "letter-kept", x_dead_letter_exchange="amq.direct")
    p.call(Basic.Consume(0, "dead-kept", "tag", no_ack=True))
    p.publish("letter-kept")
    p.call(Basic.Get(0, "letter-kept"))
    p.quiet()
    p.send(Basic.Reject(1, False))
    p.wait("Basic.Deliver")


def dead_letter_key_alone(p: Peer) -> None:
    arguments = {"x-dead-letter-routing-key": "key"}
    p.call(Queue.Declare(0, "dead-letter-key-alone", exclusive=True, arguments=arguments))


def delivery_limit(p: Peer) -> None:
    declared_queue(p, "limit-dead")
    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "limit-dead",
    }
    p.call(Queue.Declare(0, "limit", durable=True, arguments=arguments))
    p.call(Basic.Consume(0, "limit-dead", "tag", no_ack=True))
    p.call(Confirm.Select())
    p.publish("limit")
    p.wait("Basic.Ack")
    for tag in (1, 2):
        p.call(Basic.Get(0, "limit"))
        p.quiet()
        p.send(Basic.Nack(tag, False, True))
    p.wait("Basic.Deliver")
    p.quiet()
    p.call(Queue.Delete(0, "limit"))


def priorities(p: Peer) -> None:
    declared_queue(p, "priorities", x_max_priority=5)
    for level in (1, 7, 5, 0):
        p.publish("priorities", b"%d" % level, priority=level)
    p.publish("priorities", b"none")
    p.call(Basic.Consume(0, "priorities", "tag", no_ack=True))
    p.wait("Basic.Deliver", 5)


def stream_without_prefetch(p: Peer) -> None:
    p.call(Queue.Declare(0, "no-prefetch", durable=True, arguments={"x-queue-type": "stream"}))
    p.call(Channel.Open(), 2)
    p.call(Basic.Consume(0, "no-prefetch", "tag"), 2)
    p.call(Queue.Delete(0, "no-prefetch"))


def stream_get(p: Peer) -> None:
    p.call(Queue.Declare(0, "stream-get", durable=True, arguments={"x-queue-type": "stream"}))
    p.call(Channel.Open(), 2)
    p.call(Basic.Get(0, "stream-get"), 2)
    p.quiet()


def stream_offset(p: Peer) -> None:
    p.call(Queue.Declare(0, "stream-offset", durable=True, arguments={"x-queue-type": "stream"}))
    p.call(Confirm.Select())
    for body in (b"0", b"1", b"2"):
        p.publish("stream-offset", body, headers={"a": 1})
        p.wait("Basic.Ack")
    p.call(Channel.Open(), 2)
    p.call(Basic.Qos(0, 10), 2)
    p.call(Basic.Consume(0, "stream-offset", "tag", arguments={"x-stream-offset": 1}), 2)
    p.wait("Basic.Deliver", 2)
    p.quiet()
    p.send(Basic.Ack(0, True), 2)
    p.call(Channel.Close(200, "", 0, 0), 2)
    p.call(Queue.Delete(0, "stream-offset"))
