"""The errors of the codec, and the root of every error of the project.

    AmqpError
    └── CodecError
        ├── EncodeError   a value that the AMQP type cannot hold
        └── DecodeError   bytes that are not a legal encoding of what was expected

`ferrymq.errors` continues the tree above this layer (protocol, peer and transport errors).
"""

from __future__ import annotations


class AmqpError(Exception):
    """Root of all errors raised by this project."""


class CodecError(AmqpError):
    """A value or a run of bytes that does not fit the AMQP type system."""


class EncodeError(CodecError):
    """A value cannot be encoded as the AMQP type that its place asks for.

    `field` is the dotted path of the place in the specification's names (`transfer.delivery-id`),
    `reason` says what is wrong with the value.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


class DecodeError(CodecError):
    """Bytes are not a legal encoding of the expected type, or exceed a limit.

    `offset` counts bytes from the start of the buffer being read, `field` is the dotted path of
    the place in the specification's names, `reason` says what is wrong.
    """

    def __init__(self, offset: int, field: str, reason: str) -> None:
        super().__init__(offset, field, reason)
        self.offset = offset
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason} (at byte {self.offset})"
