"""AMQP 0-9-1 on the wire: fields of methods, field tables, frames.

Theory of operation. A `FieldReader` walks over the payload of a frame with one method for each
elementary domain (AMQP 0-9-1 §4.2.5); functions of `writer` append to a
`librt.strings.BytesWriter`. The generated methods of `ferrymq_types_0_9_1` call those directly.
`tables` has field tables, with the types that RabbitMQ and its clients use; `frames` has the frame
around a payload.

Errors are those of `ferrymq_codec`: `DecodeError` and `EncodeError`. The modules run interpreted or
compiled by mypyc, with the same behaviour.
"""

from __future__ import annotations

from ferrymq_codec_0_9_1.method import Method
from ferrymq_codec_0_9_1.timestamps import EpochSeconds
from ferrymq_codec_0_9_1.unknown_method import UnknownMethod

__all__ = ["EpochSeconds", "Method", "UnknownMethod"]
