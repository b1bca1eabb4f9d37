"""Scripts about basic.get, basic.consume, acknowledgements and basic.qos."""

from __future__ import annotations

from pamqp.commands import Basic, Channel, Queue

from tests.interop.amqp_0_9_1.script_queues import NOBODY, declared_queue
from tests.interop.amqp_0_9_1.transcript import Peer


def get(p: Peer) -> None:
    declared_queue(p, "get")
    p.call(Basic.Get(0, "get"))
    p.publish("get", b"one", delivery_mode=1)
    p.publish("get", b"two", message_id="m", timestamp=None)
    p.call(Basic.Get(0, "get"))
    p.call(Basic.Get(0, "get"))
    p.quiet()
    p.send(Basic.Nack(0, True, True))
    p.call(Basic.Get(0, "get"))
    p.quiet()
    p.send(Basic.Ack(3))
    p.call(Basic.Get(0, "get", True))
    p.quiet()
    p.call(Basic.Get(0, "get"))


def get_missing(p: Peer) -> None:
    p.call(Basic.Get(0, NOBODY))


def consume(p: Peer) -> None:
    declared_queue(p, "consume")
    p.call(Basic.Consume(0, "consume", "tag"))
    p.publish("consume", b"one")
    p.wait("Basic.Deliver")
    p.quiet()
    p.publish("consume", b"two", headers={"a": "b"}, priority=3)
    p.wait("Basic.Deliver")
    p.call(Basic.Cancel("tag"))
    p.call(Queue.Declare(0, "consume", passive=True))


def consume_order(p: Peer) -> None:
    declared_queue(p, "consume-order")
    for body in (b"one", b"two", b"three"):
        p.publish("consume-order", body)
    # The consumer is confirmed before its first delivery.
    p.call(Basic.Consume(0, "consume-order", "tag", no_ack=True))
    p.wait("Basic.Deliver", 3)


def consume_made_tag(p: Peer) -> None:
    declared_queue(p, "consume-made-tag")
    p.call(Basic.Consume(0, "consume-made-tag"))


def consume_tag_twice(p: Peer) -> None:
    declared_queue(p, "consume-tag-twice")
    p.call(Basic.Consume(0, "consume-tag-twice", "tag"))
    p.call(Basic.Consume(0, "consume-tag-twice", "tag"))


def consume_missing(p: Peer) -> None:
    p.call(Basic.Consume(0, NOBODY, "tag"))


def consume_exclusive_twice(p: Peer) -> None:
    declared_queue(p, "consume-exclusive-twice")
    p.call(Basic.Consume(0, "consume-exclusive-twice", "one", exclusive=True))
    p.call(Basic.Consume(0, "consume-exclusive-twice", "two"))


def consume_no_wait(p: Peer) -> None:
    declared_queue(p, "consume-no-wait")
    p.send(Basic.Consume(0, "consume-no-wait", "tag", nowait=True))
    p.publish("consume-no-wait")
    p.wait("Basic.Deliver")
    p.send(Basic.Cancel("tag", True))
    p.call(Queue.Declare(0, "consume-no-wait", passive=True))


def consume_priority_wrong(p: Peer) -> None:
    declared_queue(p, "consume-priority-wrong")
    arguments = {"x-priority": "high"}
    p.call(Basic.Consume(0, "consume-priority-wrong", "tag", arguments=arguments))


def consume_no_local(p: Peer) -> None:
    declared_queue(p, "consume-no-local")
    # RabbitMQ ignores it.
    p.call(Basic.Consume(0, "consume-no-local", "tag", no_local=True))
    p.publish("consume-no-local")
    p.wait("Basic.Deliver")


def cancel_unknown(p: Peer) -> None:
    p.call(Basic.Cancel(NOBODY))


def cancel_by_broker(p: Peer) -> None:
    declared_queue(p, "cancel-by-broker")
    p.call(Basic.Consume(0, "cancel-by-broker", "tag"))
    p.call(Queue.Delete(0, "cancel-by-broker"))
    p.quiet()


def qos(p: Peer) -> None:
    declared_queue(p, "qos")
    p.call(Basic.Qos(0, 2))
    for body in (b"1", b"2", b"3", b"4", b"5"):
        p.publish("qos", body)
    p.call(Basic.Consume(0, "qos", "tag"))
    p.wait("Basic.Deliver", 2)
    p.quiet()
    p.send(Basic.Ack(1))
    p.wait("Basic.Deliver")
    p.quiet()
    p.send(Basic.Ack(0, True))
    p.wait("Basic.Deliver", 2)


def qos_of_channel(p: Peer) -> None:
    declared_queue(p, "qos-of-channel")
    p.call(Basic.Qos(0, 1, True))
    for body in (b"1", b"2"):
        p.publish("qos-of-channel", body)
    p.call(Basic.Consume(0, "qos-of-channel", "one"))
    p.wait("Basic.Deliver")
    p.call(Basic.Consume(0, "qos-of-channel", "two"))
    p.quiet()


def qos_size(p: Peer) -> None:
    p.call(Basic.Qos(1000, 1))


def qos_get(p: Peer) -> None:
    declared_queue(p, "qos-get")
    p.call(Basic.Qos(0, 1))
    p.publish("qos-get")
    p.publish("qos-get")
    p.call(Basic.Get(0, "qos-get"))
    p.quiet()
    # What was got does not count for the prefetch of a consumer.
    p.call(Basic.Consume(0, "qos-get", "tag"))
    p.wait("Basic.Deliver")


def ack_unknown(p: Peer) -> None:
    p.send(Basic.Ack(1))
    p.wait("Channel.Close")


def ack_twice(p: Peer) -> None:
    declared_queue(p, "ack-twice")
    p.publish("ack-twice")
    p.call(Basic.Get(0, "ack-twice"))
    p.quiet()
    p.send(Basic.Ack(1))
    p.send(Basic.Ack(1))
    p.wait("Channel.Close")


def ack_all_of_none(p: Peer) -> None:
    p.send(Basic.Ack(0, True))
    p.call(Basic.Qos(0, 1))


def ack_zero(p: Peer) -> None:
    p.send(Basic.Ack(0))
    p.wait("Channel.Close")


def ack_of_another_channel(p: Peer) -> None:
    declared_queue(p, "ack-of-another-channel")
    p.call(Channel.Open(), 2)
    p.publish("ack-of-another-channel")
    p.call(Basic.Get(0, "ack-of-another-channel"))
    p.quiet()
    p.send(Basic.Ack(1), 2)
    p.wait("Channel.Close")


def nack_multiple(p: Peer) -> None:
    declared_queue(p, "nack-multiple")
    for body in (b"1", b"2", b"3"):
        p.publish("nack-multiple", body)
    for _ in range(3):
        p.call(Basic.Get(0, "nack-multiple"))
        p.quiet()
    p.send(Basic.Nack(2, True, True))
    p.call(Basic.Get(0, "nack-multiple"))
    p.quiet()
    p.call(Basic.Get(0, "nack-multiple"))
    p.quiet()
    p.call(Basic.Get(0, "nack-multiple"))


def reject_to_consumer(p: Peer) -> None:
    declared_queue(p, "reject-to-consumer")
    p.call(Basic.Consume(0, "reject-to-consumer", "tag"))
    p.publish("reject-to-consumer")
    p.wait("Basic.Deliver")
    p.quiet()
    p.send(Basic.Reject(1, True))
    p.wait("Basic.Deliver")
    p.quiet()
    p.send(Basic.Reject(2, False))


def recover(p: Peer) -> None:
    declared_queue(p, "recover")
    p.call(Basic.Consume(0, "recover", "tag"))
    p.publish("recover")
    p.wait("Basic.Deliver")
    p.quiet()
    p.call(Basic.Recover(True))
    p.wait("Basic.Deliver")


def recover_without_requeue(p: Peer) -> None:
    p.call(Basic.Recover(False))


def recover_async(p: Peer) -> None:
    declared_queue(p, "recover-async")
    p.call(Basic.Consume(0, "recover-async", "tag"))
    p.publish("recover-async")
    p.wait("Basic.Deliver")
    p.quiet()
    p.send(Basic.RecoverAsync(True))
    p.wait("Basic.Deliver")


def channel_close_requeues(p: Peer) -> None:
    declared_queue(p, "channel-close-requeues")
    p.call(Channel.Open(), 2)
    p.publish("channel-close-requeues", b"1")
    p.publish("channel-close-requeues", b"2")
    p.call(Basic.Consume(0, "channel-close-requeues", "tag"), 2)
    p.wait("Basic.Deliver", 2)
    p.quiet()
    p.call(Channel.Close(200, "", 0, 0), 2)
    p.call(Basic.Get(0, "channel-close-requeues"))
    p.quiet()
    p.call(Basic.Get(0, "channel-close-requeues"))
