"""Scripts about connections, channels and frames."""

from __future__ import annotations

from pamqp import frame
from pamqp.body import ContentBody
from pamqp.commands import Basic, Channel, Connection, Queue
from pamqp.header import ContentHeader

from tests.interop.amqp_0_9_1.script_queues import NOBODY
from tests.interop.amqp_0_9_1.transcript import Peer


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
    p.call(Connection.Open(NOBODY), 0)


def tune_too_small(p: Peer) -> None:
    p.send_bytes(b"AMQP\x00\x00\x09\x01")
    p.wait("Connection.Start")
    p.call(p.login(), 0)
    p.send(Connection.TuneOk(2047, 100, 0), 0)
    p.call(Connection.Open("/"), 0)


def channel_twice(p: Peer) -> None:
    p.call(Channel.Open())


def channel_not_open(p: Peer) -> None:
    p.call(Queue.Declare(0, NOBODY, passive=True), 7)


def channel_again(p: Peer) -> None:
    p.call(Channel.Close(200, "", 0, 0))
    p.call(Channel.Open())
    p.call(Basic.Qos(0, 1))


def channel_after_error(p: Peer) -> None:
    p.call(Queue.Declare(0, NOBODY, passive=True))
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
    p.send(Basic.Publish(0, "", NOBODY))
    data = bytearray(frame.marshal(ContentHeader(0, 0, Basic.Properties()), 1))
    data[7:9] = b"\x00\x32"
    p.send_bytes(bytes(data))


def body_too_long(p: Peer) -> None:
    p.send(Basic.Publish(0, "", NOBODY))
    p.send(ContentHeader(0, 2, Basic.Properties()))
    p.send(ContentBody(b"three"))
