"""The base of the generated properties of contents of AMQP 0-9-1."""

from __future__ import annotations

from typing import Any, ClassVar

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from ferrymq_codec.errors import DecodeError, EncodeError
from ferrymq_codec_0_9_1.method import fields_of, rebuild, type_error


@mypyc_attr(allow_interpreted_subclasses=True)
class ContentProperties:
    """Properties in the header frame of a content (AMQP 0-9-1 §4.2.6.1).

    The generator writes the subclasses.
    """

    __slots__ = ()

    CLASS_ID: ClassVar[int] = 0

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to copy and pickle: a compiled class cannot be made without its arguments."""
        return rebuild, (type(self), fields_of(self))

    def encode(self, w: BytesWriter) -> None:
        """Append the property flags and the properties; raises EncodeError if one is illegal."""
        raise EncodeError(type(self).__name__, "has no encoding")

    def to_bytes(self) -> bytes:
        """Return the property flags and the properties.

        Raises `EncodeError`, which names the property, if its domain cannot hold the value.
        """
        w = BytesWriter()
        try:
            self.encode(w)
        except (AttributeError, TypeError) as error:
            raise type_error(self, "properties") or error from None
        return w.getvalue()

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> ContentProperties:
        """Read the property flags and the properties from all of `data`.

        Raises `DecodeError`, which names the property, the place and what is wrong; TypeError for
        what is no bytes.
        """
        raise DecodeError(0, "properties", "no class is named: call the function of a subclass")


def identify_properties(cls: type[ContentProperties], class_id: int) -> None:
    """Set the class attribute of properties: see `identify` of methods."""
    described: Any = cls
    described.CLASS_ID = class_id
