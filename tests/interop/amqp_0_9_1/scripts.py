"""The scripts whose transcripts are compared: methods of AMQP 0-9-1, and what comes back.

Each uses names of its own, and leaves nothing that another one meets. One module because the
transcripts are compared one by one.
"""

from __future__ import annotations

from typing import Any, Final

from pamqp import frame
from pamqp.body import ContentBody
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx
from pamqp.header import ContentHeader

from tests.interop.amqp_0_9_1.transcript import Peer, Script

_NOBODY: Final = "missing"


def _queue(p: Peer, name: str, channel: int = 1, **arguments: Any) -> str:
    """Declare an exclusive queue; `x_max_length=3` is an argument."""
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    p.call(Queue.Declare(0, name, exclusive=True, arguments=table), channel)
    return name


def _with_dead_letters(p: Peer, name: str, **arguments: Any) -> None:
    """Declare the queue `letter-NAME`, whose dead letters go to `dead-NAME`."""
    dead = f"dead-{name}"
    _queue(p, dead)
    to_dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": dead}
    _queue(p, f"letter-{name}", **arguments, **to_dead)


# ── Connections ──────────────────────────────────────────────────────────────────────────────────


def another_protocol(p: Peer) -> None:
    p.send_bytes(b"AMQP\x00\x00\x0a\x00")


def start_and_close(p: Peer) -> None:
    p.send_bytes(b"AMQP\x00\x00\x09\x01")
    p.wait("Connection.Start")
    p.call(p.login(), 0)
    p.send(Connection.TuneOk(2047, 32_768, 0), 0)
    p.call(Connection.Open("/"), 0)
    p.call(Connection.Close(200, "bye", 0, 0), 0)


def login_wrong(p: Peer) -> None:
    p.send_bytes(b"AMQP\x00\x00\x09\x01")
    p.wait("Connection.Start")
    p.call(p.login(password="wrong"), 0)


def login_unknown_mechanism(p: Peer) -> None:
    p.send_bytes(b"AMQP\x00\x00\x09\x01")
    p.wait("Connection.Start")
    p.call(p.login(mechanism="NONE"), 0)


def host_missing(p: Peer) -> None:
    p.send_bytes(b"AMQP\x00\x00\x09\x01")
    p.wait("Connection.Start")
    p.call(p.login(), 0)
    p.send(Connection.TuneOk(2047, 32_768, 0), 0)
    p.call(Connection.Open(_NOBODY), 0)


def tune_too_small(p: Peer) -> None:
    p.send_bytes(b"AMQP\x00\x00\x09\x01")
    p.wait("Connection.Start")
    p.call(p.login(), 0)
    p.send(Connection.TuneOk(2047, 100, 0), 0)
    p.call(Connection.Open("/"), 0)


def channel_twice(p: Peer) -> None:
    p.call(Channel.Open())


def channel_not_open(p: Peer) -> None:
    p.call(Queue.Declare(0, _NOBODY, passive=True), 7)


def channel_again(p: Peer) -> None:
    p.call(Channel.Close(200, "", 0, 0))
    p.call(Channel.Open())
    p.call(Basic.Qos(0, 1))


def channel_after_error(p: Peer) -> None:
    p.call(Queue.Declare(0, _NOBODY, passive=True))
    # What follows on the channel is ignored until the close is answered.
    p.send(Queue.Declare(0, "channel-after-error", exclusive=True))
    p.send(Channel.CloseOk())
    p.call(Channel.Open())
    p.call(Queue.Declare(0, "channel-after-error", passive=True))


def channel_flow(p: Peer) -> None:
    p.call(Channel.Flow(True))
    p.call(Channel.Flow(False))


def frame_end_wrong(p: Peer) -> None:
    p.send_bytes(frame.marshal(Basic.Qos(0, 1), 1)[:-1] + b"\0")


def frame_type_wrong(p: Peer) -> None:
    p.send_bytes(b"\x09\0\x01\0\0\0\0\xce")


def method_unknown(p: Peer) -> None:
    p.send_bytes(b"\x01\0\x01\0\0\0\x04\0\x3c\0\xc8\xce")


def method_on_channel_0(p: Peer) -> None:
    p.call(Basic.Qos(0, 1), 0)


def body_without_method(p: Peer) -> None:
    p.send_bytes(frame.marshal(ContentBody(b"one"), 1))


def header_of_another_class(p: Peer) -> None:
    p.send(Basic.Publish(0, "", _NOBODY))
    data = bytearray(frame.marshal(ContentHeader(0, 0, Basic.Properties()), 1))
    data[7:9] = b"\x00\x32"
    p.send_bytes(bytes(data))


def body_too_long(p: Peer) -> None:
    p.send(Basic.Publish(0, "", _NOBODY))
    p.send(ContentHeader(0, 2, Basic.Properties()))
    p.send(ContentBody(b"three"))


# ── Queues ───────────────────────────────────────────────────────────────────────────────────────


def queue_declared_again(p: Peer) -> None:
    _queue(p, "queue-declared-again")
    _queue(p, "queue-declared-again")
    p.call(Queue.Declare(0, "queue-declared-again", passive=True))
    p.call(Queue.Declare(0, "queue-declared-again", exclusive=True, auto_delete=True))


def queue_named_by_server(p: Peer) -> None:
    p.call(Queue.Declare(0, "", exclusive=True))
    p.call(Queue.Purge(0, ""))
    p.call(Queue.Delete(0, ""))


def queue_passive_without_name(p: Peer) -> None:
    p.call(Queue.Declare(0, "", exclusive=True))
    p.call(Queue.Declare(0, "", passive=True))


def queue_without_a_last_one(p: Peer) -> None:
    p.call(Queue.Purge(0, ""))


def queue_reserved(p: Peer) -> None:
    p.call(Queue.Declare(0, "amq.queue", exclusive=True))


def queue_argument_wrong(p: Peer) -> None:
    p.call(Queue.Declare(0, "queue-argument-wrong", arguments={"x-message-ttl": "soon"}))


def queue_argument_negative(p: Peer) -> None:
    p.call(Queue.Declare(0, "queue-argument-negative", arguments={"x-max-length": -1}))


def queue_argument_unknown(p: Peer) -> None:
    _queue(p, "queue-argument-unknown", x_mine=1)


def queue_kind_unknown(p: Peer) -> None:
    p.call(Queue.Declare(0, "queue-kind-unknown", durable=True, arguments={"x-queue-type": "new"}))


def queue_kind_exclusive_quorum(p: Peer) -> None:
    arguments = {"x-queue-type": "quorum"}
    p.call(Queue.Declare(0, "quorum", durable=True, exclusive=True, arguments=arguments))


def queue_kind_transient_stream(p: Peer) -> None:
    p.call(Queue.Declare(0, "transient", arguments={"x-queue-type": "stream"}))


def queue_arguments_differ(p: Peer) -> None:
    _queue(p, "queue-arguments-differ", x_max_length=3)
    _queue(p, "queue-arguments-differ", x_max_length=4)


def queue_no_wait(p: Peer) -> None:
    p.send(Queue.Declare(0, "queue-no-wait", exclusive=True, nowait=True))
    p.send(Queue.Bind(0, "queue-no-wait", "amq.direct", "key", nowait=True))
    p.call(Queue.Declare(0, "queue-no-wait", passive=True))
    p.send(Queue.Delete(0, "queue-no-wait", nowait=True))
    p.call(Basic.Qos(0, 1))


def queue_delete_missing(p: Peer) -> None:
    p.call(Queue.Delete(0, _NOBODY))


def queue_delete_not_empty(p: Peer) -> None:
    _queue(p, "queue-delete-not-empty")
    p.publish("queue-delete-not-empty")
    p.call(Queue.Delete(0, "queue-delete-not-empty", if_empty=True))


def queue_delete_in_use(p: Peer) -> None:
    _queue(p, "queue-delete-in-use")
    p.call(Basic.Consume(0, "queue-delete-in-use", "tag"))
    p.call(Queue.Delete(0, "queue-delete-in-use", if_unused=True))


def queue_purge(p: Peer) -> None:
    _queue(p, "queue-purge")
    p.call(Confirm.Select())
    p.publish("queue-purge")
    p.wait("Basic.Ack")
    p.publish("queue-purge")
    p.wait("Basic.Ack")
    p.call(Basic.Get(0, "queue-purge"))
    p.call(Queue.Purge(0, "queue-purge"))
    p.call(Queue.Delete(0, "queue-purge"))


def bind_missing_queue(p: Peer) -> None:
    p.call(Queue.Bind(0, _NOBODY, "amq.direct", "key"))


def bind_missing_exchange(p: Peer) -> None:
    _queue(p, "bind-missing-exchange")
    p.call(Queue.Bind(0, "bind-missing-exchange", _NOBODY, "key"))


def bind_default_exchange(p: Peer) -> None:
    _queue(p, "bind-default-exchange")
    p.call(Queue.Bind(0, "bind-default-exchange", "", "key"))


def bind_last_queue(p: Peer) -> None:
    _queue(p, "bind-last-queue")
    # With no queue and no key, the key is the name of the last queue.
    p.call(Queue.Bind(0, "", "amq.direct", ""))
    p.publish("bind-last-queue", exchange="amq.direct")
    p.publish("", exchange="amq.direct", mandatory=True)
    p.wait("Basic.Return")
    p.call(Basic.Get(0, "bind-last-queue", True))


def bind_twice(p: Peer) -> None:
    _queue(p, "bind-twice")
    for _ in range(2):
        p.call(Queue.Bind(0, "bind-twice", "amq.fanout", "key"))
    p.call(Queue.Bind(0, "bind-twice", "amq.fanout", "other"))
    p.publish("any", exchange="amq.fanout")
    p.call(Basic.Get(0, "bind-twice", True))
    p.call(Basic.Get(0, "bind-twice", True))


def unbind_missing(p: Peer) -> None:
    _queue(p, "unbind-missing")
    p.call(Queue.Unbind(0, "unbind-missing", "amq.direct", "key"))
    p.call(Queue.Unbind(0, "unbind-missing", _NOBODY, "key"))


def bind_headers_match_wrong(p: Peer) -> None:
    _queue(p, "bind-headers-match-wrong")
    arguments = {"x-match": "some"}
    p.call(Queue.Bind(0, "bind-headers-match-wrong", "amq.headers", "", arguments=arguments))


# ── Exchanges ────────────────────────────────────────────────────────────────────────────────────


def exchange_declared(p: Peer) -> None:
    for _ in range(2):
        p.call(Exchange.Declare(0, "exchange-declared", "topic"))
    p.call(Exchange.Declare(0, "exchange-declared", passive=True))
    p.call(Exchange.Delete(0, "exchange-declared"))
    p.call(Exchange.Delete(0, "exchange-declared"))


def exchange_kind_differs(p: Peer) -> None:
    p.call(Exchange.Declare(0, "amq.topic", "direct", durable=True))


def exchange_kind_unknown(p: Peer) -> None:
    p.call(Exchange.Declare(0, "exchange-kind-unknown", "new"))


def exchange_reserved(p: Peer) -> None:
    p.call(Exchange.Declare(0, "amq.mine", "direct"))


def exchange_predeclared_delete(p: Peer) -> None:
    p.call(Exchange.Delete(0, "amq.direct"))


def exchange_default_declare(p: Peer) -> None:
    p.call(Exchange.Declare(0, "", "direct", passive=True))


def exchange_default_delete(p: Peer) -> None:
    p.call(Exchange.Delete(0, ""))


def exchange_missing_passive(p: Peer) -> None:
    p.call(Exchange.Declare(0, _NOBODY, passive=True))


def exchange_in_use(p: Peer) -> None:
    p.call(Exchange.Declare(0, "exchange-in-use", "direct", auto_delete=True))
    _queue(p, "exchange-in-use")
    p.call(Queue.Bind(0, "exchange-in-use", "exchange-in-use", "key"))
    p.call(Exchange.Delete(0, "exchange-in-use", if_unused=True))


def exchange_internal(p: Peer) -> None:
    p.call(Exchange.Declare(0, "exchange-internal", "fanout", auto_delete=True, internal=True))
    p.call(Exchange.Bind(0, "exchange-internal", "amq.fanout", ""))
    p.publish("key", exchange="exchange-internal")
    p.wait("Channel.Close")
    p.send(Channel.CloseOk())
    p.call(Channel.Open())
    p.call(Exchange.Delete(0, "exchange-internal"))


def exchange_bind_missing(p: Peer) -> None:
    p.call(Exchange.Bind(0, _NOBODY, "amq.direct", "key"))


def exchange_no_wait(p: Peer) -> None:
    p.send(Exchange.Declare(0, "exchange-no-wait", "direct", auto_delete=True, nowait=True))
    p.call(Exchange.Declare(0, "exchange-no-wait", passive=True))
    p.send(Exchange.Delete(0, "exchange-no-wait", nowait=True))
    p.call(Basic.Qos(0, 1))


# ── Publishing ───────────────────────────────────────────────────────────────────────────────────


def publish_missing_exchange(p: Peer) -> None:
    p.publish("key", exchange=_NOBODY)
    p.wait("Channel.Close")


def publish_mandatory(p: Peer) -> None:
    p.publish(_NOBODY, mandatory=True, content_type="text/plain", headers={"a": 1})
    p.wait("Basic.Return")
    p.publish(_NOBODY)
    p.call(Basic.Qos(0, 1))


def publish_immediate(p: Peer) -> None:
    _queue(p, "publish-immediate")
    p.publish("publish-immediate", immediate=True)


def publish_empty(p: Peer) -> None:
    _queue(p, "publish-empty")
    p.publish("publish-empty", b"")
    p.call(Basic.Get(0, "publish-empty", True))


def publish_user_id_wrong(p: Peer) -> None:
    p.publish(_NOBODY, user_id="mallory")
    p.wait("Channel.Close")


def publish_expiration_wrong(p: Peer) -> None:
    _queue(p, "publish-expiration-wrong")
    p.publish("publish-expiration-wrong", expiration="soon")
    p.wait("Channel.Close")


def publish_expiration_zero(p: Peer) -> None:
    _queue(p, "publish-expiration-zero")
    p.publish("publish-expiration-zero", expiration="0")
    p.call(Basic.Qos(0, 1))
    p.call(Basic.Get(0, "publish-expiration-zero", True))


def publish_carbon_copy(p: Peer) -> None:
    _queue(p, "copy-1")
    _queue(p, "copy-2")
    _queue(p, "copy-3")
    p.publish("copy-1", headers={"CC": ["copy-2"], "BCC": ["copy-3"], "own": 1})
    for name in ("copy-1", "copy-2", "copy-3"):
        p.call(Basic.Get(0, name, True))


def confirm(p: Peer) -> None:
    _queue(p, "confirm")
    p.call(Confirm.Select())
    p.publish("confirm")
    p.wait("Basic.Ack")
    p.publish(_NOBODY)
    p.wait("Basic.Ack")
    # The return comes before the confirmation.
    p.publish(_NOBODY, mandatory=True)
    p.wait("Basic.Ack")
    p.call(Confirm.Select())


def confirm_nack(p: Peer) -> None:
    _queue(p, "confirm-nack", x_max_length=1, x_overflow="reject-publish")
    p.call(Confirm.Select())
    p.publish("confirm-nack")
    p.wait("Basic.Ack")
    p.publish("confirm-nack")
    p.wait("Basic.Nack")


def confirm_no_wait(p: Peer) -> None:
    p.send(Confirm.Select(True))
    p.publish(_NOBODY)
    p.wait("Basic.Ack")


def confirm_after_tx(p: Peer) -> None:
    p.call(Tx.Select())
    p.call(Confirm.Select())


def tx_after_confirm(p: Peer) -> None:
    p.call(Confirm.Select())
    p.call(Tx.Select())


# ── Consuming ────────────────────────────────────────────────────────────────────────────────────


def get(p: Peer) -> None:
    _queue(p, "get")
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
    p.call(Basic.Get(0, _NOBODY))


def consume(p: Peer) -> None:
    _queue(p, "consume")
    p.call(Basic.Consume(0, "consume", "tag"))
    p.publish("consume", b"one")
    p.wait("Basic.Deliver")
    p.quiet()
    p.publish("consume", b"two", headers={"a": "b"}, priority=3)
    p.wait("Basic.Deliver")
    p.call(Basic.Cancel("tag"))
    p.call(Queue.Declare(0, "consume", passive=True))


def consume_order(p: Peer) -> None:
    _queue(p, "consume-order")
    for body in (b"one", b"two", b"three"):
        p.publish("consume-order", body)
    # The consumer is confirmed before its first delivery.
    p.call(Basic.Consume(0, "consume-order", "tag", no_ack=True))
    p.wait("Basic.Deliver", 3)


def consume_made_tag(p: Peer) -> None:
    _queue(p, "consume-made-tag")
    p.call(Basic.Consume(0, "consume-made-tag"))


def consume_tag_twice(p: Peer) -> None:
    _queue(p, "consume-tag-twice")
    p.call(Basic.Consume(0, "consume-tag-twice", "tag"))
    p.call(Basic.Consume(0, "consume-tag-twice", "tag"))


def consume_missing(p: Peer) -> None:
    p.call(Basic.Consume(0, _NOBODY, "tag"))


def consume_exclusive_twice(p: Peer) -> None:
    _queue(p, "consume-exclusive-twice")
    p.call(Basic.Consume(0, "consume-exclusive-twice", "one", exclusive=True))
    p.call(Basic.Consume(0, "consume-exclusive-twice", "two"))


def consume_no_wait(p: Peer) -> None:
    _queue(p, "consume-no-wait")
    p.send(Basic.Consume(0, "consume-no-wait", "tag", nowait=True))
    p.publish("consume-no-wait")
    p.wait("Basic.Deliver")
    p.send(Basic.Cancel("tag", True))
    p.call(Queue.Declare(0, "consume-no-wait", passive=True))


def consume_priority_wrong(p: Peer) -> None:
    _queue(p, "consume-priority-wrong")
    arguments = {"x-priority": "high"}
    p.call(Basic.Consume(0, "consume-priority-wrong", "tag", arguments=arguments))


def consume_no_local(p: Peer) -> None:
    _queue(p, "consume-no-local")
    # RabbitMQ ignores it.
    p.call(Basic.Consume(0, "consume-no-local", "tag", no_local=True))
    p.publish("consume-no-local")
    p.wait("Basic.Deliver")


def cancel_unknown(p: Peer) -> None:
    p.call(Basic.Cancel(_NOBODY))


def cancel_by_broker(p: Peer) -> None:
    _queue(p, "cancel-by-broker")
    p.call(Basic.Consume(0, "cancel-by-broker", "tag"))
    p.call(Queue.Delete(0, "cancel-by-broker"))
    p.quiet()


def qos(p: Peer) -> None:
    _queue(p, "qos")
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
    _queue(p, "qos-of-channel")
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
    _queue(p, "qos-get")
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
    _queue(p, "ack-twice")
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
    _queue(p, "ack-of-another-channel")
    p.call(Channel.Open(), 2)
    p.publish("ack-of-another-channel")
    p.call(Basic.Get(0, "ack-of-another-channel"))
    p.quiet()
    p.send(Basic.Ack(1), 2)
    p.wait("Channel.Close")


def nack_multiple(p: Peer) -> None:
    _queue(p, "nack-multiple")
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
    _queue(p, "reject-to-consumer")
    p.call(Basic.Consume(0, "reject-to-consumer", "tag"))
    p.publish("reject-to-consumer")
    p.wait("Basic.Deliver")
    p.quiet()
    p.send(Basic.Reject(1, True))
    p.wait("Basic.Deliver")
    p.quiet()
    p.send(Basic.Reject(2, False))


def recover(p: Peer) -> None:
    _queue(p, "recover")
    p.call(Basic.Consume(0, "recover", "tag"))
    p.publish("recover")
    p.wait("Basic.Deliver")
    p.quiet()
    p.call(Basic.Recover(True))
    p.wait("Basic.Deliver")


def recover_without_requeue(p: Peer) -> None:
    p.call(Basic.Recover(False))


def recover_async(p: Peer) -> None:
    _queue(p, "recover-async")
    p.call(Basic.Consume(0, "recover-async", "tag"))
    p.publish("recover-async")
    p.wait("Basic.Deliver")
    p.quiet()
    p.send(Basic.RecoverAsync(True))
    p.wait("Basic.Deliver")


def channel_close_requeues(p: Peer) -> None:
    _queue(p, "channel-close-requeues")
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


# ── What queues do ───────────────────────────────────────────────────────────────────────────────


def dead_letter_rejected(p: Peer) -> None:
    _with_dead_letters(p, "rejected")
    p.publish("letter-rejected", content_type="text/plain", headers={"a": 1})
    p.call(Basic.Get(0, "letter-rejected"))
    p.quiet()
    p.send(Basic.Reject(1, False))
    p.call(Basic.Qos(0, 1))
    p.quiet()
    p.call(Basic.Get(0, "dead-rejected", True))


def dead_letter_expired(p: Peer) -> None:
    _with_dead_letters(p, "expired")
    p.call(Basic.Consume(0, "dead-expired", "tag", no_ack=True))
    p.publish("letter-expired", expiration="20")
    p.wait("Basic.Deliver")


def dead_letter_max_length(p: Peer) -> None:
    _with_dead_letters(p, "maxlen", x_max_length=1)
    p.call(Basic.Consume(0, "dead-maxlen", "tag", no_ack=True))
    p.publish("letter-maxlen", b"1")
    p.publish("letter-maxlen", b"2")
    p.wait("Basic.Deliver")


def dead_letter_key_kept(p: Peer) -> None:
    _queue(p, "dead-kept")
    p.call(Queue.Bind(0, "dead-kept", "amq.direct", "letter-kept"))
    _queue(p, "letter-kept", x_dead_letter_exchange="amq.direct")
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
    _queue(p, "limit-dead")
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
    _queue(p, "priorities", x_max_priority=5)
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


# ── Transactions and replies ─────────────────────────────────────────────────────────────────────


def tx(p: Peer) -> None:
    _queue(p, "tx")
    p.call(Tx.Select())
    p.publish("tx", b"1")
    p.publish(_NOBODY, b"2", mandatory=True)
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
    p.publish("key", exchange=_NOBODY)
    p.wait("Channel.Close")


def reply_to(p: Peer) -> None:
    _queue(p, "reply-to")
    p.call(Basic.Consume(0, "amq.rabbitmq.reply-to", "tag", no_ack=True))
    p.publish("reply-to", reply_to="amq.rabbitmq.reply-to", correlation_id="1")
    p.call(Basic.Get(0, "reply-to", True))


def reply_to_with_acks(p: Peer) -> None:
    p.call(Basic.Consume(0, "amq.rabbitmq.reply-to", "tag"))


def reply_to_twice(p: Peer) -> None:
    p.call(Basic.Consume(0, "amq.rabbitmq.reply-to", "one", no_ack=True))
    p.call(Basic.Consume(0, "amq.rabbitmq.reply-to", "two", no_ack=True))


def reply_to_without_consumer(p: Peer) -> None:
    p.publish(_NOBODY, reply_to="amq.rabbitmq.reply-to")
    p.wait("Channel.Close")


def reply_to_declared(p: Peer) -> None:
    p.call(Queue.Declare(0, "amq.rabbitmq.reply-to", passive=True))


# ── Rights ───────────────────────────────────────────────────────────────────────────────────────


def guest_declares(p: Peer) -> None:
    p.call(Queue.Declare(0, "guest-declares", exclusive=True))


def guest_declares_passively(p: Peer) -> None:
    p.call(Queue.Declare(0, "open", passive=True))


def guest_publishes(p: Peer) -> None:
    p.publish("key", exchange="amq.direct")
    p.wait("Channel.Close")


def guest_consumes(p: Peer) -> None:
    p.call(Basic.Consume(0, "open", "tag"))
    p.publish("open")
    p.wait("Basic.Deliver")
    p.quiet()
    p.send(Basic.Ack(1))


_RAW: Final = (
    another_protocol,
    start_and_close,
    login_wrong,
    login_unknown_mechanism,
    host_missing,
    tune_too_small,
)
_GUEST: Final = (guest_declares, guest_declares_passively, guest_publishes, guest_consumes)
_PLAIN: Final = (
    channel_twice,
    channel_not_open,
    channel_again,
    channel_after_error,
    channel_flow,
    frame_end_wrong,
    frame_type_wrong,
    method_unknown,
    method_on_channel_0,
    body_without_method,
    header_of_another_class,
    body_too_long,
    queue_declared_again,
    queue_named_by_server,
    queue_passive_without_name,
    queue_without_a_last_one,
    queue_reserved,
    queue_argument_wrong,
    queue_argument_negative,
    queue_argument_unknown,
    queue_kind_unknown,
    queue_kind_exclusive_quorum,
    queue_kind_transient_stream,
    queue_arguments_differ,
    queue_no_wait,
    queue_delete_missing,
    queue_delete_not_empty,
    queue_delete_in_use,
    queue_purge,
    bind_missing_queue,
    bind_missing_exchange,
    bind_default_exchange,
    bind_last_queue,
    bind_twice,
    unbind_missing,
    bind_headers_match_wrong,
    exchange_declared,
    exchange_kind_differs,
    exchange_kind_unknown,
    exchange_reserved,
    exchange_predeclared_delete,
    exchange_default_declare,
    exchange_default_delete,
    exchange_missing_passive,
    exchange_in_use,
    exchange_internal,
    exchange_bind_missing,
    exchange_no_wait,
    publish_missing_exchange,
    publish_mandatory,
    publish_immediate,
    publish_empty,
    publish_user_id_wrong,
    publish_expiration_wrong,
    publish_expiration_zero,
    publish_carbon_copy,
    confirm,
    confirm_nack,
    confirm_no_wait,
    confirm_after_tx,
    tx_after_confirm,
    get,
    get_missing,
    consume,
    consume_order,
    consume_made_tag,
    consume_tag_twice,
    consume_missing,
    consume_exclusive_twice,
    consume_no_wait,
    consume_priority_wrong,
    consume_no_local,
    cancel_unknown,
    cancel_by_broker,
    qos,
    qos_of_channel,
    qos_size,
    qos_get,
    ack_unknown,
    ack_twice,
    ack_all_of_none,
    ack_zero,
    ack_of_another_channel,
    nack_multiple,
    reject_to_consumer,
    recover,
    recover_without_requeue,
    recover_async,
    channel_close_requeues,
    dead_letter_rejected,
    dead_letter_expired,
    dead_letter_max_length,
    dead_letter_key_kept,
    dead_letter_key_alone,
    delivery_limit,
    priorities,
    stream_without_prefetch,
    stream_get,
    stream_offset,
    tx,
    tx_not_selected,
    tx_missing_exchange,
    reply_to,
    reply_to_with_acks,
    reply_to_twice,
    reply_to_without_consumer,
    reply_to_declared,
)

SCRIPTS: Final = (
    *(Script(play, raw=True) for play in _RAW),
    *(Script(play) for play in _PLAIN),
    *(Script(play, user="bob") for play in _GUEST),
)
