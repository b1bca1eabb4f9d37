"""Cases for pika: consumers, basic.get, acknowledgements."""

from __future__ import annotations

from tests.interop.amqp_0_9_1.pika_client import (
    all_came,
    channel,
    connected,
    declared,
    got,
    no_more_come,
    nothing,
    put,
    refused,
    until,
    watch,
)
from tests.interop.amqp_0_9_1.place import Place
from tests.interop.features.trial import expect


def get(at: Place) -> None:
    with channel(at) as ch:
        nothing(ch, declared(ch, at.name()))
        put(ch, at.name(), "one", "two", "three")
        method, _, body = got(ch, at.name())
        expect((body, method.redelivered, method.delivery_tag), (b"one", False, 1))
        expect(method.message_count, 2)
        expect(ch.basic_get(at.name(), auto_ack=True)[2], b"two")
        ch.basic_ack(1)
        expect(ch.basic_get(at.name())[0].message_count, 0)
        nothing(ch, at.name())


def consume(at: Place) -> None:
    with channel(at) as ch:
        declared(ch, at.name())
        came, tag = watch(ch, at.name(), consumer_tag="mine")
        expect(tag, "mine")
        _, made = watch(ch, declared(ch, at.name("other")))
        assert made, "the consumer has no tag"
        put(ch, at.name(), "one", "two")
        all_came(ch, came, 2)
        expect([each[2] for each in came], [b"one", b"two"])
        expect([each[0].consumer_tag for each in came], ["mine", "mine"])
        expect([each[0].delivery_tag for each in came], [1, 2])
        for each in came:
            ch.basic_ack(each[0].delivery_tag)
        until(
            ch,
            lambda: ch.queue_declare(at.name(), passive=True).method.message_count == 0,
            "an empty queue",
        )


def no_ack(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), *(str(number) for number in range(10)))
        came, tag = watch(ch, at.name(), auto_ack=True)
        all_came(ch, came, 10)
        ch.basic_cancel(tag)
        nothing(ch, at.name())


def prefetch(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), *(str(number) for number in range(10)))
        ch.basic_qos(prefetch_count=3)
        came, _ = watch(ch, at.name())
        all_came(ch, came, 3)
        no_more_come(ch, came, 3)
        ch.basic_ack(came[0][0].delivery_tag)
        all_came(ch, came, 4)
        no_more_come(ch, came, 4)
        ch.basic_ack(0, multiple=True)
        all_came(ch, came, 7)
        no_more_come(ch, came, 7)


def ack_multiple(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), "one", "two", "three", "four")
        tags = [got(ch, at.name())[0].delivery_tag for _ in range(4)]
        ch.basic_ack(tags[1], multiple=True)
        ch.basic_nack(tags[3], multiple=True, requeue=True)
        again = [got(ch, at.name()) for _ in range(2)]
        expect(
            [(each[2], each[0].redelivered) for each in again], [(b"three", True), (b"four", True)]
        )
        ch.basic_ack(0, multiple=True)
        nothing(ch, at.name())


def requeue(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), "one", "two")
        first = got(ch, at.name())
        ch.basic_nack(first[0].delivery_tag)
        again = got(ch, at.name())
        expect((again[2], again[0].redelivered), (b"one", True))
        ch.basic_reject(again[0].delivery_tag, requeue=True)
        expect(got(ch, at.name())[2], b"one")
        ch.basic_reject(3, requeue=False)
        expect(got(ch, at.name())[2], b"two")
        nothing(ch, at.name())


def recover(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), "one", "two")
        came, _ = watch(ch, at.name())
        all_came(ch, came, 2)
        ch.basic_recover(requeue=True)
        all_came(ch, came, 4)
        expect(
            [(each[2], each[0].redelivered) for each in came[2:]], [(b"one", True), (b"two", True)]
        )


def close_requeues(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        put(ch, declared(ch, at.name()), "one", "two", "three")
        came, _ = watch(ch, at.name())
        all_came(ch, came, 3)
        ch.basic_ack(came[1][0].delivery_tag)
        ch.close()
        ch = connection.channel()
        left = [got(ch, at.name()) for _ in range(2)]
        expect(
            [(each[2], each[0].redelivered) for each in left], [(b"one", True), (b"three", True)]
        )


def cancel(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), "one")
        came, tag = watch(ch, at.name())
        all_came(ch, came, 1)
        ch.basic_cancel(tag)
        put(ch, at.name(), "two")
        expect(got(ch, at.name())[2], b"two")
        # The delivery outlives its consumer.
        ch.basic_ack(came[0][0].delivery_tag)
        expect(len(came), 1)


def cancel_notify(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        cancelled: list[str] = []
        ch.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
        watch(ch, declared(ch, at.name()), consumer_tag="mine")
        connection.channel().queue_delete(at.name())
        until(ch, lambda: bool(cancelled), "the consumer is cancelled")
        expect(cancelled, ["mine"])


def exclusive_consumer(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        _, tag = watch(ch, declared(ch, at.name()), exclusive=True)
        second = connection.channel()
        refused(403, lambda: watch(second, at.name()))
        ch.basic_cancel(tag)
        watch(ch, at.name())
        third = connection.channel()
        refused(403, lambda: watch(third, at.name(), exclusive=True))


def single_active(at: Place) -> None:
    with connected(at) as connection:
        ch, second = connection.channel(), connection.channel()
        declared(ch, at.name(), x_single_active_consumer=True)
        first_came, tag = watch(ch, at.name(), auto_ack=True)
        second_came, _ = watch(second, at.name(), auto_ack=True)
        put(ch, at.name(), "one", "two")
        all_came(ch, first_came, 2)
        no_more_come(ch, second_came, 0)
        ch.basic_cancel(tag)
        put(ch, at.name(), "three")
        all_came(ch, second_came, 1)


def consumer_priority(at: Place) -> None:
    with connected(at) as connection:
        ch = connection.channel()
        declared(ch, at.name())
        low, _ = watch(ch, at.name(), auto_ack=True)
        high, tag = watch(ch, at.name(), auto_ack=True, arguments={"x-priority": 10})
        put(ch, at.name(), "one", "two", "three")
        all_came(ch, high, 3)
        expect(len(low), 0)
        ch.basic_cancel(tag)
        put(ch, at.name(), "four")
        all_came(ch, low, 1)
