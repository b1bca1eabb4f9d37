"""A scripted peer: a test reads like the transcript of a connection.

    play = script()                                   # the engine under test, a server
    play >> AMQP_HEADER << AMQP_HEADER                # sent to the engine, expected from it
    play >> Open(container_id="peer")
    play.engine.open()
    play << like(Open, channel_max=2047)
    play >> on(3, Begin(...)) << on(0, Begin)

``>>`` feeds the engine; ``<<`` takes the next thing out of its output and compares. Nothing the
engine writes goes unread: a frame that the script does not expect fails the test, at the next
``>>`` or at the end of the test.
"""

from __future__ import annotations

import struct
from dataclasses import fields
from typing import Any, TypeVar

from librt.strings import BytesWriter

from ferrymq.engine import Connection, ConnectionSettings
from ferrymq.engine.events import Event
from ferrymq_codec.composite import Composite
from ferrymq_codec.reader import Reader
from ferrymq_types.transport import Close, Error, Flow
from ferrymq_types.unions import decode_frame, decode_sasl_frame

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
TLS_HEADER = b"AMQP\x02\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

E = TypeVar("E", bound=Event)


class On:
    """A performative, or the type of one, on a channel, with what follows it in the frame.

    `payload` None stands for any when it is expected, for none when it is sent.
    """

    def __init__(self, channel: int, body: object, payload: bytes | None = None) -> None:
        self.channel = channel
        self.body = body
        self.payload = payload

    def __repr__(self) -> str:
        payload = "" if not self.payload else f" + {len(self.payload)} bytes"
        return f"[{self.channel}] {self.body!r}{payload}"


class Like:
    """Expects a performative of a type with some of its fields; the others may be anything."""

    def __init__(self, kind: type[Composite], wanted: dict[str, object]) -> None:
        self.kind = kind
        self.wanted = wanted
        unknown = wanted.keys() - {f.name for f in fields(kind)}  # type: ignore[arg-type]
        assert not unknown, f"{kind.__name__} has no field {unknown}"

    def __repr__(self) -> str:
        return f"{self.kind.__name__} with {self.wanted}"


class Raw:
    """Bytes that the engine wrote and that are no frame of a performative."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __repr__(self) -> str:
        return repr(self.data)


def on(channel: int, body: object, payload: bytes | None = None) -> On:
    """`body` on `channel`; a script without it means channel 0."""
    return On(channel, body, payload)


def like(kind: type[Composite], **wanted: object) -> Like:
    """A performative of which only these fields matter."""
    return Like(kind, wanted)


def condition(symbol: str) -> _Condition:
    """Expected in place of an `Error`: one with this condition, whatever its description."""
    return _Condition(symbol)


class _Condition:
    def __init__(self, symbol: str) -> None:
        self.symbol = symbol

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Error) and other.condition == self.symbol

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Error({self.symbol})"


def frame(
    body: bytes, *, channel: int = 0, type: int = 0, doff: int = 2, size: int | None = None
) -> bytes:
    """The bytes of one frame, of which anything may be wrong."""
    real = 8 + len(body) if size is None else size
    return struct.pack(">IBBH", real, doff, type, channel) + body


def encode(performative: Composite) -> bytes:
    """The bytes of a performative with its descriptor."""
    w = BytesWriter()
    performative.encode(w)
    return w.getvalue()


def encoded(item: object) -> bytes:
    """What a script item is on the wire."""
    if isinstance(item, bytes):
        return item
    channel, payload = 0, b""
    if isinstance(item, On):
        channel, payload, item = item.channel, item.payload or b"", item.body
    assert isinstance(item, Composite)
    sasl = type(item).__name__.startswith("Sasl")
    return frame(encode(item) + payload, channel=channel, type=1 if sasl else 0)


def parse(data: bytes) -> list[On | Raw]:
    """The headers and frames in the engine's output, read by the test's own reading of §2.3."""
    found: list[On | Raw] = []
    at = 0
    while at < len(data):
        if data.startswith(b"AMQP", at):
            found.append(Raw(data[at : at + 8]))
            at += 8
            continue
        size, doff, kind, channel = struct.unpack_from(">IBBH", data, at)
        end = at + size
        assert size >= 8 and end <= len(data) and doff == 2 and kind in (0, 1), data[at:]
        if size == 8:
            found.append(Raw(data[at:end]))
        else:
            reader = Reader(data, at + 8, end)
            decode = decode_sasl_frame if kind else decode_frame
            body = decode(reader, "frame")
            found.append(On(channel, body, data[reader.pos : end]))
        at = end
    return found


def matches(got: On | Raw, wanted: object) -> bool:
    """Whether an item of output is the one that a script expects."""
    if isinstance(wanted, bytes):
        return isinstance(got, Raw) and got.data == wanted
    if isinstance(got, Raw):
        return False
    if not isinstance(wanted, On):
        wanted = On(0, wanted)
    if got.channel != wanted.channel:
        return False
    if wanted.payload is not None and got.payload != wanted.payload:
        return False
    body = wanted.body
    if isinstance(body, Like):
        return isinstance(got.body, body.kind) and all(
            value == getattr(got.body, name) for name, value in body.wanted.items()
        )
    if isinstance(body, type):
        return isinstance(got.body, body)
    return got.body == body


class Script:
    """One engine and the script played against it. `now` is the clock of both, in seconds."""

    def __init__(self, **settings: Any) -> None:
        given: dict[str, Any] = {"container_id": "engine", "initiator": False, **settings}
        self.now = 1000.0
        self.engine = Connection(ConnectionSettings(**given), self.now)
        self._unread: list[On | Raw] = []
        self._events: list[Event] = []

    # -- frames --------------------------------------------------------------

    def __rshift__(self, item: object) -> Script:
        """Send the engine a performative, an `on`, or bytes as they are."""
        assert not self._unread, f"not expected: {self._unread}"
        self.engine.receive_data(encoded(item), self.now)
        return self

    def __lshift__(self, wanted: object) -> Script:
        """Expect the engine's next output: a performative or its type, `like`, `on` or bytes."""
        self._fetch()
        assert self._unread, f"expected {wanted}, but there is no output"
        got = self._unread.pop(0)
        assert matches(got, wanted), f"expected {wanted}\n  but got {got}"
        return self

    def send(self, *items: object) -> Script:
        """Several items in one read of the transport."""
        return self >> b"".join(encoded(item) for item in items)

    def eof(self) -> Script:
        """The transport ends. A close that is said to that is no part of a script."""
        self.engine.receive_eof(self.now)
        self._fetch()
        if self._unread and isinstance(self._unread[-1], On):
            if isinstance(self._unread[-1].body, Close):
                del self._unread[-1]
        return self

    def take(self) -> list[On | Raw]:
        """All of the output, for tests that look into it themselves."""
        self._fetch()
        unread, self._unread = self._unread, []
        return unread

    def quiet(self) -> Script:
        """Expect no output."""
        self._fetch()
        assert not self._unread, f"not expected: {self._unread}"
        return self

    def _fetch(self) -> None:
        # Flows with which the engine asks for the window of the peer are no part of a script.
        self._unread += [
            item for item in parse(self.engine.data_to_send()) if not asks_for_window(item)
        ]

    # -- time ----------------------------------------------------------------

    def tick(self, seconds: float) -> Script:
        """Let time pass; the engine is called when it asked to be, and at no other time."""
        end = self.now + seconds
        while (due := self.engine.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.engine.handle_timeout(self.now)
        self.now = end
        return self

    # -- events --------------------------------------------------------------

    def event(self, kind: type[E]) -> E:
        """The next event, which must be of this type."""
        self._events += self.engine.take_events()
        assert self._events, f"expected {kind.__name__}, but nothing happened"
        event = self._events.pop(0)
        assert isinstance(event, kind), f"expected {kind.__name__}, but got {event!r}"
        return event

    def find(self, kind: type[E]) -> E:
        """The next event of this type; those before it are dropped."""
        self._events += self.engine.take_events()
        while self._events:
            event = self._events.pop(0)
            if isinstance(event, kind):
                return event
        raise AssertionError(f"no {kind.__name__} happened")

    def events(self) -> list[Event]:
        """All events not taken yet."""
        events = self._events + self.engine.take_events()
        self._events = []
        return events

    def names(self) -> list[str]:
        """The types of all events not taken yet."""
        return [type(event).__name__ for event in self.events()]


def asks_for_window(item: On | Raw) -> bool:
    """Tell whether a frame is a flow of a session that asks for an answer."""
    body = item.body if isinstance(item, On) else None
    return isinstance(body, Flow) and body.handle is None and body.echo is True
