"""Transfer frames in a loop, as the engine writes and reads them (AMQP 1.0 §2.3, §2.7.5).

One operation of encoding: make a `Transfer`, write the frame header, the performative and the
payload. The output is taken once for every `BATCH` frames, as the engine takes it once for every
pass. One operation of decoding: find the next frame in the input, check its header, read its
descriptor and performative, cut the payload out.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq.engine.frames import begin_frame, end_frame
from ferrymq.engine.input import FrameInput
from ferrymq_types import descriptors
from ferrymq_types.transport import Transfer, decode_transfer, encode_transfer

BATCH: Final = 64
TAG: Final = b"\x00\x00\x00\x07"
MAX_FRAME_SIZE: Final = 65536
# Delivery-ids have their most common width on the wire, five bytes, throughout.
FIRST_ID: Final = 1000


def encode(count: int, payload: bytes) -> int:
    """Encode `count` transfer frames; how many bytes they were."""
    done: i64 = 0
    total: i64 = 0
    wanted: i64 = count
    w = BytesWriter()
    while done < wanted:
        mark = begin_frame(w, 0)
        transfer = Transfer(
            handle=0,
            delivery_id=FIRST_ID + done,
            delivery_tag=TAG,
            message_format=0,
            settled=False,
        )
        encode_transfer(w, transfer)
        w.write(payload)
        end_frame(w, mark)
        done += 1
        if done % BATCH == 0:
            total += len(w.getvalue())
            w = BytesWriter()
    return total + len(w.getvalue())


def frames(count: int, payload: bytes) -> bytes:
    """`count` transfer frames, one after the other: input for `decode`."""
    w = BytesWriter()
    i: i64 = 0
    while i < count:
        mark = begin_frame(w, 0)
        transfer = Transfer(
            handle=0, delivery_id=FIRST_ID + i, delivery_tag=TAG, message_format=0, settled=False
        )
        encode_transfer(w, transfer)
        w.write(payload)
        end_frame(w, mark)
        i += 1
    return w.getvalue()


def decode(count: int, data: bytes) -> int:
    """Decode at least `count` transfer frames out of `data`, again and again; how many bytes of
    payload they had. `data` holds `BATCH` whole frames.
    """
    done: i64 = 0
    total: i64 = 0
    wanted: i64 = count
    while done < wanted:
        frames = FrameInput()
        frames.feed(data)
        while frames.next_frame(MAX_FRAME_SIZE, 0):
            reader = frames.reader
            end = reader.end
            if reader.read_descriptor("frame") != descriptors.TRANSFER:
                reader.fail("frame", "no transfer")
            transfer = decode_transfer(reader)
            payload = data[reader.pos : end]
            if transfer.handle == 0:
                total += len(payload)
            done += 1
    return total
