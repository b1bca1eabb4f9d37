"""Values and messages through ferrymq's own client, see `values`."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

from ferrymq import Message
from ferrymq_codec import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Described,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from ferrymq_types.messaging import AmqpSequence, AmqpValue, Data
from tests.interop.values import (
    APPLICATION_PROPERTIES,
    DATA,
    SEQUENCE,
    VALUE,
    Section,
    Value,
)

_INTEGERS: dict[str, type[int]] = {
    "ubyte": UByte,
    "ushort": UShort,
    "uint": UInt,
    "ulong": ULong,
    "byte": Byte,
    "short": Short,
    "int": Int,
    "long": int,
    "timestamp": Timestamp,
}
_NAMES = {kind: name for name, kind in _INTEGERS.items()}

# Of each decimal: its class, its bits, its bits of coefficient, the bias of its exponent.
_DECIMALS: dict[str, tuple[type[Decimal], int, int, int]] = {
    "decimal32": (Decimal32, 32, 23, 101),
    "decimal64": (Decimal64, 64, 53, 398),
    "decimal128": (Decimal, 128, 113, 6176),
}
_DECIMAL_NAMES = {kind: name for name, (kind, *_) in _DECIMALS.items()}


def _decimal(name: str, digits: str) -> Decimal:
    kind, bits, coefficient_bits, bias = _DECIMALS[name]
    number = int(digits, 16)
    sign = number >> (bits - 1)
    magnitude = number & ((1 << (bits - 1)) - 1)
    if magnitude == 0x78 << (bits - 8):
        return kind("-Infinity" if sign else "Infinity")
    coefficient = magnitude & ((1 << coefficient_bits) - 1)
    exponent = (magnitude >> coefficient_bits) - bias
    return kind((sign, tuple(int(digit) for digit in str(coefficient)), exponent))


def _digits(value: Decimal) -> str:
    _, bits, coefficient_bits, bias = _DECIMALS[_DECIMAL_NAMES[type(value)]]
    sign, digits, exponent = value.as_tuple()
    if exponent == "F":
        magnitude = 0x78 << (bits - 8)
    else:
        coefficient = int("".join(map(str, digits)))
        magnitude = (int(exponent) + bias) << coefficient_bits | coefficient
    return f"{sign << (bits - 1) | magnitude:0{bits // 4}x}"


def to_ferrymq(value: Value) -> Any:
    """The value as ferrymq's client takes it."""
    kind = value[0]
    if kind == "null":
        return None
    content = value[1]
    if kind in _INTEGERS:
        return _INTEGERS[kind](int(content))
    if kind in _DECIMALS:
        return _decimal(kind, content)
    match kind:
        case "boolean":
            return content
        case "float":
            return Float32(struct.unpack(">f", bytes.fromhex(content))[0])
        case "double":
            return struct.unpack(">d", bytes.fromhex(content))[0]
        case "char":
            return Char(chr(content))
        case "uuid":
            return UUID(content)
        case "binary":
            return bytes.fromhex(content)
        case "string":
            return content
        case "symbol":
            return Symbol(content)
        case "list":
            return [to_ferrymq(item) for item in content]
        case "map":
            return {to_ferrymq(key): to_ferrymq(item) for key, item in content}
        case "array":
            return Array(content, [to_ferrymq(item) for item in value[2]])
        case "described":
            return Described(to_ferrymq(content), to_ferrymq(value[2]))
    raise AssertionError(f"no such type: {kind}")


def from_ferrymq(value: Any) -> Value:
    """The value ferrymq's client gave."""
    kind = type(value)
    if value is None:
        return ["null"]
    if kind in _NAMES:
        return [_NAMES[kind], str(int(value))]
    if kind in _DECIMAL_NAMES:
        return [_DECIMAL_NAMES[kind], _digits(value)]
    if kind is bool:
        return ["boolean", value]
    if kind is Float32:
        return ["float", struct.pack(">f", value).hex()]
    if kind is float:
        return ["double", struct.pack(">d", value).hex()]
    if kind is Char:
        return ["char", ord(value)]
    if kind is UUID:
        return ["uuid", value.hex]
    if kind is bytes:
        return ["binary", value.hex()]
    if kind is str:
        return ["string", value]
    if kind is Symbol:
        return ["symbol", str(value)]
    if kind is list:
        return ["list", [from_ferrymq(item) for item in value]]
    if kind is dict:
        return ["map", [[from_ferrymq(key), from_ferrymq(item)] for key, item in value.items()]]
    if kind is Array:
        items = [from_ferrymq(item) for item in value]
        return ["array", items[0][0], items]
    if kind is Described:
        return ["described", from_ferrymq(value.descriptor), from_ferrymq(value.value)]
    raise AssertionError(f"ferrymq gave a {kind}")


def to_message(sections: list[Section]) -> Message:
    """A message of these sections: application properties, and a body of any kind."""
    properties: dict[str, object] | None = None
    body: Any = None
    for code, content in sections:
        value = to_ferrymq(content)
        if code == APPLICATION_PROPERTIES:
            properties = value
        elif code == VALUE:
            body = AmqpValue(value)
        else:
            section = Data(value) if code == DATA else AmqpSequence(value)
            body = [section] if body is None else [*body, section]
    return Message(body, application_properties=properties)


def from_message(message: Message) -> list[Section]:
    """The sections of a message, other than those that only ever say the defaults."""
    sections: list[Section] = []
    if message.application_properties:
        sections.append((APPLICATION_PROPERTIES, from_ferrymq(message.application_properties)))
    codes = {Data: DATA, AmqpSequence: SEQUENCE, AmqpValue: VALUE}
    for section in message.body_sections:
        sections.append((codes[type(section)], from_ferrymq(section.value)))
    return sections
