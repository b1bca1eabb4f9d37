"""Scripts about basic.publish and confirms."""

from __future__ import annotations

from pamqp.commands import Basic, Confirm, Tx

from tests.interop.amqp_0_9_1.script_queues import NOBODY, declared_queue
from tests.interop.amqp_0_9_1.transcript import Peer


def publish_missing_exchange(p: Peer) -> None:
    p.publish("key", exchange=NOBODY)
    p.wait("Channel.Close")


def publish_mandatory(p: Peer) -> None:
    p.publish(NOBODY, mandatory=True, content_type="text/plain", headers={"a": 1})
    p.wait("Basic.Return")
    p.publish(NOBODY)
    p.call(Basic.Qos(0, 1))


def publish_immediate(p: Peer) -> None:
    declared_queue(p, "publish-immediate")
    p.publish("publish-immediate", immediate=True)


def publish_empty(p: Peer) -> None:
    declared_queue(p, "publish-empty")
    p.publish("publish-empty", b"")
    p.call(Basic.Get(0, "publish-empty", True))


def publish_user_id_wrong(p: Peer) -> None:
    p.publish(NOBODY, user_id="mallory")
    p.wait("Channel.Close")


def publish_expiration_wrong(p: Peer) -> None:
    declared_queue(p, "publish-expiration-wrong")
    p.publish("publish-expiration-wrong", expiration="soon")
    p.wait("Channel.Close")


def publish_expiration_zero(p: Peer) -> None:
    declared_queue(p, "publish-expiration-zero")
    p.publish("publish-expiration-zero", expiration="0")
    p.call(Basic.Qos(0, 1))
    p.call(Basic.Get(0, "publish-expiration-zero", True))


def publish_carbon_copy(p: Peer) -> None:
    declared_queue(p, "copy-1")
    declared_queue(p, "copy-2")
    declared_queue(p, "copy-3")
    p.publish("copy-1", headers={"CC": ["copy-2"], "BCC": ["copy-3"], "own": 1})
    for name in ("copy-1", "copy-2", "copy-3"):
        p.call(Basic.Get(0, name, True))


def confirm(p: Peer) -> None:
    declared_queue(p, "confirm")
    p.call(Confirm.Select())
    p.publish("confirm")
    p.wait("Basic.Ack")
    p.publish(NOBODY)
    p.wait("Basic.Ack")
    # The return comes before the confirmation.
    p.publish(NOBODY, mandatory=True)
    p.wait("Basic.Ack")
    p.call(Confirm.Select())


def confirm_nack(p: Peer) -> None:
    declared_queue(p, "confirm-nack", x_max_length=1, x_overflow="reject-publish")
    p.call(Confirm.Select())
    p.publish("confirm-nack")
    p.wait("Basic.Ack")
    p.publish("confirm-nack")
    p.wait("Basic.Nack")


def confirm_no_wait(p: Peer) -> None:
    p.send(Confirm.Select(True))
    p.publish(NOBODY)
    p.wait("Basic.Ack")


def confirm_after_tx(p: Peer) -> None:
    p.call(Tx.Select())
    p.call(Confirm.Select())


def tx_after_confirm(p: Peer) -> None:
    p.call(Confirm.Select())
    p.call(Tx.Select())
