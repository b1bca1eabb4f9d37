"""Small text files that describe a store: a title, fields, and a checksum of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import google_crc32c

_CHECK: Final = "check"

_crc: Final[Any] = google_crc32c.value


def encode_label(title: str, fields: Mapping[str, object]) -> bytes:
    """Encode a title and fields as lines, the last of which is their CRC-32C."""
    text = f"{title}\n" + "".join(f"{key}: {value}\n" for key, value in fields.items())
    return f"{text}{_CHECK}: {_crc(text.encode()):08x}\n".encode()


def decode_label(title: str, data: bytes) -> dict[str, str] | None:
    """Decode what `encode_label` made, ignoring zeros at the end; return None for anything else."""
    data = data.rstrip(b"\0")
    first, *lines = data.decode("ascii", "replace").split("\n")
    fields = dict(line.partition(": ")[::2] for line in lines if line)
    fields.pop(_CHECK, None)
    if first != title or encode_label(title, fields) != data:
        return None
    return fields
