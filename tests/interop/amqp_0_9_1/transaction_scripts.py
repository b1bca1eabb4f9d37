"""Scripts about tx and direct replies."""

from __future__ import annotations

from pamqp.commands import Basic, Channel, Queue, Tx

from tests.interop.amqp_0_9_1.script_queues import NOBODY, declared_queue
from tests.interop.amqp_0_9_1.transcript import Peer


def tx(p: Peer) -> None:
    declared_queue(p, "tx")
    p.call(Tx.Select())
    p.publish("tx", b"1")
    p.publish(NOBODY, b"2", mandatory=True)
    p.quiet()
    p.call(Basic.Get(0, "tx"))
    p.call(Tx.Commit())
    p.quiet()
    p.call(Basic.Get(0, "tx"))
    p.quiet()
    p.send(Basic.Ack(1))
    p.call(Tx.Rollback())
    p.send(Basic.Ack(1))
    p.call(Tx.Commit())
    p.call(Tx.Select())


def tx_not_selected(p: Peer) -> None:
    p.call(Tx.Commit())


def tx_missing_exchange(p: Peer) -> None:
    p.call(Tx.Select())
    p.publish("key", exchange=NOBODY)
    p.wait("Channel.Close")


def tx_full(p: Peer) -> None:
    declared_queue(p, "tx-full", x_max_length=1, x_overflow="reject-publish")
    declared_queue(p, "tx-room")
    p.call(Tx.Select())
    for queue in ("tx-room", "tx-full", "tx-full"):
        p.publish(queue)
    p.call(Tx.Commit())
    p.send(Channel.CloseOk())
    p.call(Channel.Open(), 2)
    for queue in ("tx-full", "tx-room"):
        p.call(Queue.Declare(0, queue, passive=True), 2)


def reply_to(p: Peer) -> None:
    declared_queue(p, "reply-to")
    p.call(Basic.Consume(0, "amq.rabbitmq.reply-to", "tag", no_ack=True))
    p.publish("reply-to", reply_to="amq.rabbitmq.reply-to", correlation_id="1")
    p.call(Basic.Get(0, "reply-to", True))


def reply_to_with_acks(p: Peer) -> None:
    p.call(Basic.Consume(0, "amq.rabbitmq.reply-to", "tag"))


def reply_to_twice(p: Peer) -> None:
    p.call(Basic.Consume(0, "amq.rabbitmq.reply-to", "one", no_ack=True))
    p.call(Basic.Consume(0, "amq.rabbitmq.reply-to", "two", no_ack=True))


def reply_to_without_consumer(p: Peer) -> None:
    p.publish(NOBODY, reply_to="amq.rabbitmq.reply-to")
    p.wait("Channel.Close")


def reply_to_declared(p: Peer) -> None:
    p.call(Queue.Declare(0, "amq.rabbitmq.reply-to", passive=True))
