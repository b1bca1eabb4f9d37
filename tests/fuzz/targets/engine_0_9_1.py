"""The engine of AMQP 0-9-1: what a client sends never raises, and every connection ends.

The first byte says how the stream is cut and how much time goes by, the second is the seed of both.
However the bytes are cut, the same happens. The output is whole frames, and nothing happens after
the end.
"""

from __future__ import annotations

from random import Random

from ferrymq_codec_0_9_1.frames import PROTOCOL_HEADER
from ferrymq_rabbitmq.amqp_0_9_1.engine.engine_events import (
    ChannelClosed,
    ConnectionEnded,
    ContentReceived,
)
from ferrymq_types_0_9_1.basic import BasicConsume, BasicDeliver, BasicGet, BasicQos
from ferrymq_types_0_9_1.channel import ChannelClose, ChannelCloseOk, ChannelOpen
from ferrymq_types_0_9_1.connection import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUpdateSecret,
)
from tests.fuzz.mutation.octets import mutate_octets
from tests.rabbitmq.engine_0_9_1.client import (
    HEARTBEAT,
    EngineClient,
    body,
    frame,
    header,
    pipelined,
    publication,
)

# A body that begins with this makes the user close the channel.
_REFUSED = b"no"
_FRAMES = [
    HEARTBEAT,
    publication(1, b"message"),
    publication(1, b""),
    publication(1, _REFUSED),
    publication(1, bytes(3000)),
    publication(1, bytes(200), key="k")[:-100],
    publication(2, b"x" * 900),
    header(1, 3),
    header(1, 1 << 62),
    body(1, b"abc"),
    frame(1, BasicQos()),
    frame(1, BasicGet(queue="q")),
    frame(1, BasicConsume(queue="q", arguments={"x-priority": 1})),
    frame(1, BasicDeliver(consumer_tag="t")),
    frame(1, ChannelOpen()),
    frame(2, ChannelOpen()),
    frame(1, ChannelClose(reply_code=200)),
    frame(1, ChannelCloseOk()),
    frame(0, ConnectionUpdateSecret(new_secret=b"s", reason="r")),
    frame(0, ConnectionClose(reply_code=200)),
    frame(0, ConnectionCloseOk()),
]


def one(data: bytes) -> None:
    """Give the engine the stream whole and in pieces, then let the time pass."""
    if len(data) < 2:
        return
    stream = data[2:]
    whole = _User()
    whole.give(stream)
    pieces = _User()
    random = Random(data[1])
    at = 0
    while at < len(stream):
        size = random.choice((1, 2, 7, 8, 20, 300))
        if data[0] & 1:
            pieces.wait(random.choice((0.0, 0.5)))
        pieces.give(stream[at : at + size])
        at += size
    if not data[0] & 1:
        assert pieces.story() == whole.story()
    for user in (whole, pieces):
        if data[0] & 2:
            user.engine.receive_eof(user.now)
            user.take()
            assert user.engine.finished or user.names()[-1:] == ["ConnectionEnded"]
        user.end()


class _User(EngineClient):
    """A user who accepts everything except messages that it refuses."""

    def __init__(self) -> None:
        super().__init__(max_message_size=2000, max_unfinished=1500, heartbeat=1)
        self.refused = 0

    def take(self) -> _User:
        seen = len(self.events)
        super().take()
        for event in self.events[seen:]:
            if isinstance(event, ContentReceived) and event.body.startswith(_REFUSED):
                self.refused += 1
                self.engine.close_channel(event.channel, 404, "refused", event.method)
            elif isinstance(event, ContentReceived):
                self.engine.send_content(event.channel, BasicDeliver(), b"\0\0", event.body)
        if len(self.events) > seen:
            super().take()
        return self

    def wait(self, seconds: float) -> None:
        """Let time pass; the engine is called when it has asked for it."""
        end = self.now + seconds
        while (due := self.engine.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.engine.handle_timeout(self.now)
            self.take()
        self.now = end

    def story(self) -> list[object]:
        """Return what has happened, without what depends on when the user was asked."""
        found: list[object] = []
        for event in self.events:
            if isinstance(event, ContentReceived):
                found.append((event.channel, event.properties, event.body))
            elif self.refused and not isinstance(event, ConnectionEnded):
                continue
            else:
                found.append(type(event).__name__)
        return [] if self.refused else found

    def end(self) -> None:
        """Check the connection, and that a silent client does not keep it."""
        ended = False
        for event in self.events:
            assert not ended or isinstance(event, ChannelClosed), self.names()
            ended = ended or isinstance(event, ConnectionEnded)
        opened = self.engine.opened and self.engine.heartbeat == 0
        self.wait(1e6)
        if not opened:
            assert self.engine.finished, self.engine.state
        assert self.engine.finished is (self.engine.next_deadline() is None) or opened
        output = self.output
        if output.startswith(PROTOCOL_HEADER):
            output = output[8:]
        self.output = output
        self.methods()
        if self.engine.finished:
            self.give(b"".join(_FRAMES))
            assert self.output == b"" and self.names().count("ConnectionEnded") == 1


def seeds() -> list[bytes]:
    """An orderly life; and one frame each after the beginning of it."""
    begun = pipelined()
    life = begun + b"".join(_FRAMES[:3]) + frame(1, ChannelClose()) + frame(1, ChannelOpen())
    life += publication(1, b"last") + frame(0, ConnectionClose(reply_code=200))
    found = [bytes((how, 5)) + life for how in range(4)]
    found += [b"\0\1" + pipelined(heartbeat=1) + piece for piece in _FRAMES]
    return found


def mutate(random: Random, data: bytes) -> bytes:
    """Other frames, or other octets."""
    if len(data) < 2:
        data = b"\0\0" + pipelined()
    kind = random.random()
    if kind < 0.1:
        return random.randbytes(2) + data[2:]
    if kind < 0.5:
        return data + b"".join(random.choice(_FRAMES) for _ in range(random.randrange(1, 6)))
    return data[:2] + mutate_octets(random, data[2:])
