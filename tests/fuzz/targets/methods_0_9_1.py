"""Methods of AMQP 0-9-1: the payload of a method frame.

Only `DecodeError` may leave the decoder. What it gives can be encoded, and that means the same:
decoded again it is equal, and encoded once more it is the same bytes.
"""

from __future__ import annotations

from random import Random

from ferrymq_codec.errors import DecodeError
from ferrymq_types_0_9_1 import registry
from tests.fuzz.mutation.octets import mutate_octets

_ARGUMENTS: dict[str, object] = {"k": 1, "list": ["a", None, {"b": True}]}


def one(data: bytes) -> None:
    """Decode; if that works, encode and decode again."""
    try:
        method = registry.decode_method(data)
    except DecodeError as error:
        assert 0 <= error.offset <= len(data), error
        assert error.field
        return
    first = method.to_bytes()
    again = registry.decode_method(first)
    assert type(again) is type(method)
    assert again.to_bytes() == first
    assert len(repr(method)) >= 0


def seeds() -> list[bytes]:
    """Every method with its defaults, and with a table where it has one."""
    found = [cls().to_bytes() for cls in registry.NAMES.values()]
    for cls in registry.NAMES.values():
        if "arguments" in cls.__annotations__:
            found.append(cls(arguments=_ARGUMENTS).to_bytes())  # type: ignore[call-arg]
    return found


def mutate(random: Random, data: bytes) -> bytes:
    """Other octets."""
    return mutate_octets(random, data)
