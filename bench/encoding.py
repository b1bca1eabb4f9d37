"""Messages whose body is one data section (AMQP 1.0 §3.2.6), encoded."""

from __future__ import annotations

from typing import Final

from ferrymq_codec import codes
from ferrymq_codec.compound import descriptor_bytes
from ferrymq_types import descriptors

DURABLE_HEADER: Final = descriptor_bytes(descriptors.HEADER) + bytes(
    (codes.LIST8, 2, 1, codes.TRUE)
)
"""A header section whose only field is durable, with the value true (AMQP 1.0 §3.2.1)."""


def data_head(size: int) -> bytes:
    """Return the bytes before the `size` bytes of content in a data section."""
    if size <= 255:
        length = bytes((codes.BINARY8, size))
    else:
        length = bytes((codes.BINARY32,)) + size.to_bytes(4, "big")
    return descriptor_bytes(descriptors.DATA) + length


def data_section(content: bytes) -> bytes:
    """Return a data section."""
    return data_head(len(content)) + content
