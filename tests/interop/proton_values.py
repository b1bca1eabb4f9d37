"""Values and messages through Proton's codec, see `values`."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import proton
from proton import Data

from tests.interop.values import Section, Value

_INTEGERS: dict[str, type[int]] = {
    "ubyte": proton.ubyte,
    "ushort": proton.ushort,
    "uint": proton.uint,
    "ulong": proton.ulong,
    "byte": proton.byte,
    "short": proton.short,
    "int": proton.int32,
    "long": int,
    "timestamp": proton.timestamp,
}
_NAMES = {kind: name for name, kind in _INTEGERS.items()}
_ELEMENTS = {
    "uint": Data.UINT,
    "long": Data.LONG,
    "ubyte": Data.UBYTE,
    "symbol": Data.SYMBOL,
    "string": Data.STRING,
    "double": Data.DOUBLE,
    "uuid": Data.UUID,
}
_ELEMENT_NAMES = {code: name for name, code in _ELEMENTS.items()}


def to_proton(value: Value) -> Any:
    """What Proton's Python binding takes for the value."""
    kind = value[0]
    if kind == "null":
        return None
    content = value[1]
    if kind in _INTEGERS:
        return _INTEGERS[kind](int(content))
    match kind:
        case "boolean":
            return content
        case "float":
            return proton.float32(struct.unpack(">f", bytes.fromhex(content))[0])
        case "double":
            return struct.unpack(">d", bytes.fromhex(content))[0]
        case "decimal32":
            return proton.decimal32(int(content, 16))
        case "decimal64":
            return proton.decimal64(int(content, 16))
        case "decimal128":
            return proton.decimal128(bytes.fromhex(content))
        case "char":
            return proton.char(chr(content))
        case "uuid":
            return uuid.UUID(content)
        case "binary":
            return bytes.fromhex(content)
        case "string":
            return content
        case "symbol":
            return proton.symbol(content)
        case "list":
            return [to_proton(item) for item in content]
        case "map":
            return {to_proton(key): to_proton(item) for key, item in content}
        case "array":
            items = [to_proton(item) for item in value[2]]
            return proton.Array(proton.UNDESCRIBED, _ELEMENTS[content], *items)
        case "described":
            return proton.Described(to_proton(content), to_proton(value[2]))
    raise AssertionError(f"no such type: {kind}")


def from_proton(value: Any) -> Value:
    """The value Proton's Python binding gave."""
    kind = type(value)
    if value is None:
        return ["null"]
    if kind in _NAMES:
        return [_NAMES[kind], str(int(value))]
    if kind is bool:
        return ["boolean", value]
    if kind is proton.float32:
        return ["float", struct.pack(">f", value).hex()]
    if kind is float:
        return ["double", struct.pack(">d", value).hex()]
    if kind is proton.decimal32:
        return ["decimal32", f"{int(value) & 0xFFFFFFFF:08x}"]
    if kind is proton.decimal64:
        return ["decimal64", f"{int(value) & 0xFFFFFFFFFFFFFFFF:016x}"]
    if kind is proton.decimal128:
        return ["decimal128", value.hex()]
    if kind is proton.char:
        return ["char", ord(value)]
    if kind is uuid.UUID:
        return ["uuid", value.hex]
    if kind in (bytes, memoryview):
        return ["binary", bytes(value).hex()]
    if kind is str:
        return ["string", value]
    if kind is proton.symbol:
        return ["symbol", str(value)]
    if kind is list:
        return ["list", [from_proton(item) for item in value]]
    if kind is dict:
        return ["map", [[from_proton(key), from_proton(item)] for key, item in value.items()]]
    if kind is proton.Array:
        items = [from_proton(item) for item in value.elements]
        return ["array", _ELEMENT_NAMES[value.type], items]
    if kind is proton.Described:
        return ["described", from_proton(value.descriptor), from_proton(value.value)]
    raise AssertionError(f"Proton gave a {kind}")


def encode_sections(sections: list[Section]) -> bytes:
    """A message of these sections, encoded by Proton."""
    return b"".join(_encode(code, to_proton(content)) for code, content in sections)


def _encode(code: int, content: Any) -> bytes:
    data = Data(16)
    data.put_object(proton.Described(proton.ulong(code), content))
    return bytes(data.encode())


def decode_sections(encoded: bytes) -> list[Section]:
    """The sections of an encoded message, decoded by Proton."""
    sections = []
    while encoded:
        data = Data(16)
        used = data.decode(encoded)
        encoded = encoded[used:]
        data.rewind()
        assert data.next()
        section = data.get_object()
        sections.append((int(section.descriptor), from_proton(section.value)))
    return sections
