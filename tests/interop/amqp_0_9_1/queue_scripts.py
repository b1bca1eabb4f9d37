"""Scripts about queues and bindings: declare, delete, purge, bind, unbind."""

from __future__ import annotations

from pamqp.commands import Basic, Confirm, Queue

from tests.interop.amqp_0_9_1.script_queues import NOBODY, declared_queue
from tests.interop.amqp_0_9_1.transcript import Peer


def queue_declared_again(p: Peer) -> None:
    declared_queue(p, "queue-declared-again")
    declared_queue(p, "queue-declared-again")
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
    declared_queue(p, "queue-argument-unknown", x_mine=1)


def queue_kind_unknown(p: Peer) -> None:
    p.call(Queue.Declare(0, "queue-kind-unknown", durable=True, arguments={"x-queue-type": "new"}))


def queue_kind_exclusive_quorum(p: Peer) -> None:
    arguments = {"x-queue-type": "quorum"}
    p.call(Queue.Declare(0, "quorum", durable=True, exclusive=True, arguments=arguments))


def queue_kind_transient_stream(p: Peer) -> None:
    p.call(Queue.Declare(0, "transient", arguments={"x-queue-type": "stream"}))


def queue_arguments_differ(p: Peer) -> None:
    declared_queue(p, "queue-arguments-differ", x_max_length=3)
    declared_queue(p, "queue-arguments-differ", x_max_length=4)


def queue_no_wait(p: Peer) -> None:
    p.send(Queue.Declare(0, "queue-no-wait", exclusive=True, nowait=True))
    p.send(Queue.Bind(0, "queue-no-wait", "amq.direct", "key", nowait=True))
    p.call(Queue.Declare(0, "queue-no-wait", passive=True))
    p.send(Queue.Delete(0, "queue-no-wait", nowait=True))
    p.call(Basic.Qos(0, 1))


def queue_delete_missing(p: Peer) -> None:
    p.call(Queue.Delete(0, NOBODY))


def queue_delete_not_empty(p: Peer) -> None:
    declared_queue(p, "queue-delete-not-empty")
    p.publish("queue-delete-not-empty")
    p.call(Queue.Delete(0, "queue-delete-not-empty", if_empty=True))


def queue_delete_in_use(p: Peer) -> None:
    declared_queue(p, "queue-delete-in-use")
    p.call(Basic.Consume(0, "queue-delete-in-use", "tag"))
    p.call(Queue.Delete(0, "queue-delete-in-use", if_unused=True))


def queue_purge(p: Peer) -> None:
    declared_queue(p, "queue-purge")
    p.call(Confirm.Select())
    p.publish("queue-purge")
    p.wait("Basic.Ack")
    p.publish("queue-purge")
    p.wait("Basic.Ack")
    p.call(Basic.Get(0, "queue-purge"))
    p.call(Queue.Purge(0, "queue-purge"))
    p.call(Queue.Delete(0, "queue-purge"))


def bind_missing_queue(p: Peer) -> None:
    p.call(Queue.Bind(0, NOBODY, "amq.direct", "key"))


def bind_missing_exchange(p: Peer) -> None:
    declared_queue(p, "bind-missing-exchange")
    p.call(Queue.Bind(0, "bind-missing-exchange", NOBODY, "key"))


def bind_default_exchange(p: Peer) -> None:
    declared_queue(p, "bind-default-exchange")
    p.call(Queue.Bind(0, "bind-default-exchange", "", "key"))


def bind_last_queue(p: Peer) -> None:
    declared_queue(p, "bind-last-queue")
    # With no queue and no key, the key is the name of the last queue.
    p.call(Queue.Bind(0, "", "amq.direct", ""))
    p.publish("bind-last-queue", exchange="amq.direct")
    p.publish("", exchange="amq.direct", mandatory=True)
    p.wait("Basic.Return")
    p.call(Basic.Get(0, "bind-last-queue", True))


def bind_twice(p: Peer) -> None:
    declared_queue(p, "bind-twice")
    for _ in range(2):
        p.call(Queue.Bind(0, "bind-twice", "amq.fanout", "key"))
    p.call(Queue.Bind(0, "bind-twice", "amq.fanout", "other"))
    p.publish("any", exchange="amq.fanout")
    p.call(Basic.Get(0, "bind-twice", True))
    p.call(Basic.Get(0, "bind-twice", True))


def unbind_missing(p: Peer) -> None:
    declared_queue(p, "unbind-missing")
    p.call(Queue.Unbind(0, "unbind-missing", "amq.direct", "key"))
    p.call(Queue.Unbind(0, "unbind-missing", NOBODY, "key"))


def bind_headers_match_wrong(p: Peer) -> None:
    declared_queue(p, "bind-headers-match-wrong")
    arguments = {"x-match": "some"}
    p.call(Queue.Bind(0, "bind-headers-match-wrong", "amq.headers", "", arguments=arguments))
