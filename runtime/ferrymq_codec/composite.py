"""The base of every generated composite and section class."""

from __future__ import annotations

from typing import Any

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from ferrymq_codec.declared import mistyped, pydantic_schema
from ferrymq_codec.errors import DecodeError, EncodeError


@mypyc_attr(allow_interpreted_subclasses=True)
class Composite:
    """A described list (or other described value) with a typed class of its own.

    AMQP 1.0 §1.3. The generator writes the subclasses; interpreted ones may derive from a compiled
    base, so that an application's own types work beside compiled ones.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to copy and pickle: a compiled class cannot be made without its arguments."""
        return _rebuild, (type(self), _fields(self))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> Any:
        """Return the schema by which pydantic checks and serializes values of the class."""
        return pydantic_schema(cls, handler, _fields)

    def encode(self, w: BytesWriter) -> None:
        """Append the value with its descriptor to `w`; raises EncodeError if a field is illegal."""
        raise EncodeError(type(self).__name__, "has no encoding")

    def to_bytes(self) -> bytes:
        """Return the value with its descriptor as bytes.

        Raises `EncodeError`, which names the field, if the type of a field cannot hold its value,
        or if a mandatory field is missing.
        """
        w = BytesWriter()
        try:
            self.encode(w)
        except (AttributeError, TypeError) as error:
            raise mistyped(self) or error from None
        return w.getvalue()

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> Composite:
        """Read a value of the class from all of `data`, which starts with the descriptor.

        Raises `DecodeError`, which names the type or the field, the place and what is wrong: other
        types, missing mandatory fields, and bytes that are left; TypeError for what is no bytes.
        """
        raise DecodeError(0, "described", "no type is named: call the method of a subclass")


def as_bytes(data: object) -> bytes:
    """Return bytes, a bytearray or a memoryview as bytes; raises TypeError for anything else."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray):
        return bytes(data)
    if isinstance(data, memoryview):
        return data.tobytes()
    # `bytes` would make as many zeros of an integer.
    kind = type(data).__name__
    raise TypeError(f"expected bytes, a bytearray or a memoryview, not {kind}")


def _fields(value: Any) -> dict[str, object]:
    """Return the fields of a composite by their names."""
    names = getattr(type(value), "__dataclass_fields__", {})
    return {name: getattr(value, name) for name in names}


def _rebuild(cls: type[Composite], fields: dict[str, object]) -> Composite:
    return cls(**fields)
