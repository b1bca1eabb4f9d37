"""Changes of an encoded message in the sections before the bare message.

Properties, application properties and body stay unchanged byte for byte (AMQP 1.0 §3.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from librt.strings import BytesWriter

from ferrymq_codec.reader import Reader
from ferrymq_types.messaging import (
    DeliveryAnnotations,
    Header,
    MessageAnnotations,
    encode_header,
    encode_message_annotations,
)
from ferrymq_types.unions import decode_section


@dataclass(slots=True)
class Sections:
    """The header, the message annotations, and the encoded bare message.

    Delivery annotations are only for the next hop: they are not kept.
    """

    header: Header | None = None
    annotations: dict[str | int, object] = field(default_factory=dict)
    bare: bytes = b""

    @classmethod
    def split(cls, raw: bytes) -> Sections:
        """Split a message into sections. Raises `DecodeError` for invalid bytes."""
        found = cls()
        reader = Reader(raw)
        while reader.pos < reader.end:
            start = reader.pos
            section = decode_section(reader, "message")
            if isinstance(section, Header):
                found.header = section
            elif isinstance(section, MessageAnnotations):
                found.annotations = dict(section.value)
            elif not isinstance(section, DeliveryAnnotations):
                found.bare = raw[start:]
                break
        return found

    def join(self) -> bytes:
        """Return the encoded message. Raises `EncodeError` for an annotation without encoding."""
        writer = BytesWriter()
        if self.header is not None:
            encode_header(writer, self.header)
        if self.annotations:
            encode_message_annotations(writer, MessageAnnotations(self.annotations))
        return writer.getvalue() + self.bare


def annotated(raw: bytes, annotations: Mapping[str, object]) -> bytes:
    """Return the message with these additional annotations. Raises `DecodeError`."""
    sections = Sections.split(raw)
    sections.annotations.update(annotations)
    return sections.join()
