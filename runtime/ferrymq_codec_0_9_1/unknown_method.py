"""The error for a method that the definitions do not have."""

from __future__ import annotations

from ferrymq_codec.errors import DecodeError


class UnknownMethod(DecodeError):
    """No known method has these indices.

    `class_id` and `method_id` are the indices that were read.
    """

    def __init__(self, offset: int, class_id: int, method_id: int) -> None:
        super().__init__(offset, "method", f"no method has the indices {class_id}, {method_id}")
        self.class_id = class_id
        self.method_id = method_id

    def __reduce__(self) -> tuple[object, ...]:
        return UnknownMethod, (self.offset, self.class_id, self.method_id)
