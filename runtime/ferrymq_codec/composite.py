"""The base of every generated composite and section class."""

from __future__ import annotations

from librt.strings import BytesWriter
from mypy_extensions import mypyc_attr

from ferrymq_codec.errors import EncodeError


@mypyc_attr(allow_interpreted_subclasses=True)
class Composite:
    """A described list (or other described value) with a typed class of its own.

    AMQP 1.0 §1.3. The generator writes the subclasses; interpreted ones may derive from a compiled
    base, so that an application's own types work beside compiled ones.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to copy and pickle: a compiled class cannot be made without its arguments."""
        names = getattr(type(self), "__dataclass_fields__", {})
        return _rebuild, (type(self), {name: getattr(self, name) for name in names})

    def encode(self, w: BytesWriter) -> None:
        """Append the value with its descriptor to `w`; raises EncodeError if a field is illegal."""
        raise EncodeError(type(self).__name__, "has no encoding")


def _rebuild(cls: type[Composite], fields: dict[str, object]) -> Composite:
    return cls(**fields)
