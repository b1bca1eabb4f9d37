"""What the other side says, decoded just enough to be judged, by a decoder of our own."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from tests.raw.frames import (
    ATTACH,
    BEGIN,
    CLOSE,
    COORDINATOR,
    DECLARE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    SASL_CHALLENGE,
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    SASL_RESPONSE,
    SOURCE,
    TARGET,
    TRANSFER,
)

NAMES: Final = {
    OPEN: "open",
    BEGIN: "begin",
    ATTACH: "attach",
    FLOW: "flow",
    TRANSFER: "transfer",
    DISPOSITION: "disposition",
    DETACH: "detach",
    END: "end",
    CLOSE: "close",
    SASL_MECHANISMS: "sasl-mechanisms",
    SASL_CHALLENGE: "sasl-challenge",
    SASL_OUTCOME: "sasl-outcome",
    SASL_INIT: "sasl-init",
    SASL_RESPONSE: "sasl-response",
    0x1D: "error",
    0x23: "received",
    0x24: "accepted",
    0x25: "rejected",
    0x26: "released",
    0x27: "modified",
    SOURCE: "source",
    TARGET: "target",
    COORDINATOR: "coordinator",
    DECLARE: "declare",
    0x32: "discharge",
    0x33: "declared",
    0x34: "transactional-state",
}


class Composite(NamedTuple):
    """A described list out of an answer."""

    name: str
    fields: list[object]

    def field(self, at: int) -> object:
        """A field; None if it is missing."""
        return self.fields[at] if at < len(self.fields) else None


class Answer(NamedTuple):
    """A frame of the other side."""

    channel: int
    name: str
    fields: list[object]
    payload: bytes

    def field(self, at: int) -> object:
        """A field; None if it is missing."""
        return self.fields[at] if at < len(self.fields) else None

    def error(self) -> tuple[str, str] | None:
        """Condition and description of a detach, an end or a close."""
        found = self.field(2 if self.name == "detach" else 0)
        return condition_of(found)

    @property
    def condition(self) -> str | None:
        """Condition of the error of a detach, an end or a close; None without an error."""
        error = self.error()
        return None if error is None else error[0]


def condition_of(error: object) -> tuple[str, str] | None:
    """Condition and description of an error."""
    if not isinstance(error, Composite):
        return None
    return str(error.field(0)), str(error.field(1))


def read_answer(data: bytes) -> Answer:
    """Decode a whole frame."""
    _, doff, _, channel = struct.unpack_from(">IBBH", data)
    if len(data) == 4 * doff:
        return Answer(channel, "empty", [], b"")
    value, end = _decode(data, 4 * doff)
    assert isinstance(value, Composite), value
    return Answer(channel, value.name, value.fields, data[end:])


def decode(data: bytes) -> object:
    """The one value that is encoded in `data`."""
    value, end = _decode(data, 0)
    assert end == len(data), "bytes after the value"
    return value


_WIDTHS: Final = {
    0x50: "B", 0x51: "b", 0x52: "B", 0x53: "B", 0x54: "b", 0x55: "b", 0x56: "?", 0x60: "H",
    0x61: "h", 0x70: "I", 0x71: "i", 0x72: "f", 0x80: "Q", 0x81: "q", 0x82: "d", 0x83: "q",
}  # fmt: skip
_CONSTANTS: Final[dict[int, object]] = {
    0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0,
}  # fmt: skip


def _decode(data: bytes, at: int) -> tuple[object, int]:
    code = data[at]
    if code == 0:
        descriptor, at = _decode(data, at + 1)
        value, at = _decode(data, at)
        if isinstance(value, list):
            known = NAMES.get(descriptor) if isinstance(descriptor, int) else None
            return Composite(known or str(descriptor), value), at
        return value, at
    return _content(code, data, at + 1)


def _content(code: int, data: bytes, at: int) -> tuple[object, int]:
    if code in _CONSTANTS:
        return _CONSTANTS[code], at
    if code == 0x45:
        return [], at
    if code in _WIDTHS:
        form = ">" + _WIDTHS[code]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if code == 0x98:
        return data[at : at + 16], at + 16
    wide = code & 0xF0 in (0xB0, 0xD0, 0xF0)
    form = ">I" if wide else ">B"
    step = 4 if wide else 1
    size = struct.unpack_from(form, data, at)[0]
    at += step
    end = at + size
    assert end <= len(data), "an answer that is cut off"
    if code & 0xF0 in (0xA0, 0xB0):
        content = data[at:end]
        return (content if code & 0x0F == 0 else content.decode()), end
    count = struct.unpack_from(form, data, at)[0]
    at += step
    items: list[object] = []
    if code in (0xE0, 0xF0):
        element = data[at]
        at += 1
        for _ in range(count):
            item, at = _content(element, data, at)
            items.append(item)
    else:
        assert code in (0xC0, 0xC1, 0xD0, 0xD1), hex(code)
        for _ in range(count):
            item, at = _decode(data, at)
            items.append(item)
    assert at == end, "a compound that is longer or shorter than its elements"
    if code in (0xC1, 0xD1):
        return dict(zip(items[::2], items[1::2], strict=True)), end
    return items, end
