"""The base of every generated method of AMQP 0-9-1."""

from __future__ import annotations

from typing import Any, ClassVar

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from ferrymq_codec.declared import mistyped
from ferrymq_codec.errors import DecodeError, EncodeError


@mypyc_attr(allow_interpreted_subclasses=True)
class Method:
    """A method: the payload of a method frame (AMQP 0-9-1 §4.2.4). The generator writes subclasses.

    `RESPONSES` has the names of the methods that may answer a synchronous method. `TO_SERVER` and
    `TO_CLIENT` say which side may receive the method.
    """

    __slots__ = ()

    CLASS_ID: ClassVar[int] = 0
    METHOD_ID: ClassVar[int] = 0
    NAME: ClassVar[str] = ""
    SYNCHRONOUS: ClassVar[bool] = False
    HAS_CONTENT: ClassVar[bool] = False
    RESPONSES: ClassVar[tuple[str, ...]] = ()
    TO_SERVER: ClassVar[bool] = False
    TO_CLIENT: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to copy and pickle: a compiled class cannot be made without its arguments."""
        return rebuild, (type(self), fields_of(self))

    def encode(self, w: BytesWriter) -> None:
        """Append the indices and the fields to `w`; raises EncodeError if a field is illegal."""
        raise EncodeError(type(self).__name__, "has no encoding")

    def to_bytes(self) -> bytes:
        """Return the payload of the method's frame: the indices and the fields.

        Raises `EncodeError`, which names the field, if its domain cannot hold the value.
        """
        w = BytesWriter()
        try:
            self.encode(w)
        except (AttributeError, TypeError) as error:
            raise type_error(self, self.NAME) or error from None
        return w.getvalue()

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> Method:
        """Read a method of the class from all of `data`: the payload of a method frame.

        Raises `DecodeError`, which names the field, the place and what is wrong: other methods,
        fields that are cut off or illegal, and bytes that are left; TypeError for what is no bytes.
        """
        raise DecodeError(0, "method", "no method is named: call the function of a subclass")


def identify(
    cls: type[Method],
    class_id: int,
    method_id: int,
    name: str,
    *,
    synchronous: bool,
    has_content: bool,
    responses: tuple[str, ...],
    to_server: bool,
    to_client: bool,
) -> None:
    """Set the class attributes of a method.

    The class body cannot: mypyc would make fields of the dataclass out of them.
    """
    described: Any = cls
    described.CLASS_ID = class_id
    described.METHOD_ID = method_id
    described.NAME = name
    described.SYNCHRONOUS = synchronous
    described.HAS_CONTENT = has_content
    described.RESPONSES = responses
    described.TO_SERVER = to_server
    described.TO_CLIENT = to_client


def type_error(value: Any, name: str) -> EncodeError | None:
    """Return the error for the first field of the wrong type; `name` is that of the method."""
    found = mistyped(value)
    if found is None:
        return None
    return EncodeError(f"{name}.{found.field.partition('.')[2]}", found.reason)


def fields_of(value: Any) -> dict[str, object]:
    """Return the fields of a dataclass by their names."""
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}


def rebuild(cls: Any, fields: dict[str, object]) -> object:
    """Return an instance with these fields."""
    return cls(**fields)
