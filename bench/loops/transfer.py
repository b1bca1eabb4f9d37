"""Transfer frames in a loop, as the engine writes and reads them (AMQP 1.0 §2.3, §2.7.5).

One operation of encoding makes a `Transfer` and writes the frame header, the performative and the
payload. The output is taken once for every `BATCH` frames, as the engine takes it once per pass.
One operation of decoding finds the next frame in the input, checks its header, reads its descriptor
and performative, and cuts out the payload.
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
# All delivery-ids have their most common width on the wire, five bytes.
FIRST_ID: Final = 1000


def encode(count: int, payload: bytes) -> int:
    """Encode `count` transfer frames, and return their size in bytes."""
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
    """Return `count` consecutive transfer frames, as input for `decode`."""
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
    """Decode at least `count` transfer frames out of `data`, repeatedly, and return the bytes of
    payload. `data` holds `BATCH` whole frames.
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
