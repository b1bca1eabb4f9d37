"""Cases for pika: publishing, properties and confirms."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

from pika.exceptions import (
    NackError,
    UnroutableError,
)

from tests.interop.amqp_0_9_1.pika_client import (
    Properties,
    bodies,
    channel,
    declared,
    got,
    put,
    refused,
    take,
    until,
)
from tests.interop.amqp_0_9_1.place import Place
from tests.interop.features.trial import expect

PROPERTIES = {
    "content_type": "application/json",
    "content_encoding": "utf-8",
    "headers": {"color": "red"},
    "delivery_mode": 2,
    "priority": 5,
    "correlation_id": "c-1",
    "reply_to": "replies",
    "expiration": "600000",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "order",
    "app_id": "shop",
}


def properties(at: Place) -> None:
    with channel(at) as ch:
        declared(ch, at.name())
        given = {**PROPERTIES, "user_id": at.user}
        put(ch, at.name(), "one", **given)
        put(ch, at.name(), "two")
        method, props, body = got(ch, at.name())
        expect((body, method.exchange, method.routing_key), (b"one", "", at.name()))
        expect({name: getattr(props, name) for name in given}, given)
        _, props, _ = got(ch, at.name())
        expect({name: value for name in given if (value := getattr(props, name)) is not None}, {})
        ch.basic_publish("", at.name(), b"", Properties(user_id="mallory"))
        refused(406, lambda: ch.queue_declare(at.name(), passive=True))


HEADERS: dict[str, Any] = {
    "true": True,
    "false": False,
    "small": 7,
    "negative": -7,
    "int": 2**31 - 1,
    "long": 2**40,
    "text": "žluťoučký",
    "empty": "",
    "bytes": b"\0\xff",
    "none": None,
    "decimal": Decimal("1.25"),
    "time": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    "list": [1, "two", [3, None], {"four": 4}],
    "table": {"inner": {"deep": [True]}, "empty": {}},
    "x-own": "kept",
}


def header_types(at: Place) -> None:
    with channel(at) as ch:
        declared(ch, at.name())
        put(ch, at.name(), "one", headers=HEADERS)
        came = got(ch, at.name())[1].headers
        for name, value in HEADERS.items():
            expect((name, came.get(name, "nothing")), (name, value))
        expect(set(came), set(HEADERS))
        # A double: pika encodes none, so 0.5 comes from other clients only.


def empty(at: Place) -> None:
    with channel(at) as ch:
        put(ch, declared(ch, at.name()), "", "one", "")
        expect(bodies(ch, at.name(), 3), ["", "one", ""])


def large(at: Place) -> None:
    body = bytes(range(256)) * 4096
    with channel(at, frame_max=8192) as ch:
        declared(ch, at.name())
        ch.confirm_delivery()
        ch.basic_publish("", at.name(), body)
        assert got(ch, at.name())[2] == body, "another body came"
    with channel(at) as ch:
        declared(ch, at.name("second"))
        ch.basic_publish("", at.name("second"), body)
        assert take(ch, at.name("second"))[0][2] == body, "another body came"


def mandatory(at: Place) -> None:
    with channel(at) as ch:
        returned: list[Any] = []
        ch.add_on_return_callback(lambda *args: returned.append(args[1:]))
        ch.basic_publish("amq.direct", at.name(), b"one", mandatory=True)
        until(ch, lambda: bool(returned), "the message is returned")
        method, _, body = returned[0]
        expect((method.reply_code, method.exchange), (312, "amq.direct"))
        expect((method.routing_key, body), (at.name(), b"one"))
        ch.basic_publish("amq.direct", at.name(), b"dropped")
        ch.basic_publish("missing", at.name(), b"two")
        refused(404, lambda: ch.queue_declare("", exclusive=True))


def confirms(at: Place) -> None:
    with channel(at) as ch:
        ch.confirm_delivery()
        declared(ch, at.name())
        for number in range(50):
            ch.basic_publish("", at.name(), b"%d" % number, Properties(delivery_mode=2))
        expect(bodies(ch, at.name(), 50), [str(number) for number in range(50)])
        try:
            ch.basic_publish("", "missing", b"", mandatory=True)
        except UnroutableError as error:
            expect(error.messages[0].method.reply_code, 312)
        else:
            raise AssertionError("the message was not returned")
        ch.basic_publish("", "missing", b"")


def confirm_nack(at: Place) -> None:
    with channel(at) as ch:
        declared(ch, at.name(), x_max_length=2, x_overflow="reject-publish")
        ch.confirm_delivery()
        sent = 0
        try:
            while sent < 10:
                ch.basic_publish("", at.name(), b"%d" % sent)
                sent += 1
        except NackError:
            expect(sent, 2)
        else:
            raise AssertionError("no message was refused")
        expect(bodies(ch, at.name(), 2), ["0", "1"])
        ch.basic_publish("", at.name(), b"again")
