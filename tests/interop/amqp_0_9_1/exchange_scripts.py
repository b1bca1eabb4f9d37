"""Scripts about exchanges: declare, delete, bind."""

from __future__ import annotations

from pamqp.commands import Basic, Channel, Exchange, Queue

from tests.interop.amqp_0_9_1.script_queues import NOBODY, declared_queue
from tests.interop.amqp_0_9_1.transcript import Peer


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
    p.call(Exchange.Declare(0, NOBODY, passive=True))


def exchange_in_use(p: Peer) -> None:
    p.call(Exchange.Declare(0, "exchange-in-use", "direct", auto_delete=True))
    declared_queue(p, "exchange-in-use")
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
    p.call(Exchange.Bind(0, NOBODY, "amq.direct", "key"))


def exchange_no_wait(p: Peer) -> None:
    p.send(Exchange.Declare(0, "exchange-no-wait", "direct", auto_delete=True, nowait=True))
    p.call(Exchange.Declare(0, "exchange-no-wait", passive=True))
    p.send(Exchange.Delete(0, "exchange-no-wait", nowait=True))
    p.call(Basic.Qos(0, 1))
