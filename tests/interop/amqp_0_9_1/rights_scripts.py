"""Scripts about what a client without rights is told."""

from __future__ import annotations

from pamqp.commands import Basic, Queue

from tests.interop.amqp_0_9_1.transcript import Peer


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
