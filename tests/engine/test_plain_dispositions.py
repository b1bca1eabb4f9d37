"""Dispositions of the usual shape, which accept deliveries, have code of their own: nothing may
differ from other dispositions (AMQP 1.0 §2.7.6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.engine.plain_disposition import PlainDisposition
from ferrymq.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_types.messaging import Accepted, Received, Released
from ferrymq_types.transport import Disposition, Role, decode_disposition
from tests.support.scenes import MAX32
from tests.support.script import encode


def same_as_decoded(data: bytes) -> bool:
    """Whether the disposition is read as a plain one; if so, what is read must be what the decoder
    reads."""
    read = PlainDisposition()
    if not read.read(data, 3, len(data)):
        return False
    reader = Reader(data, 3, len(data))
    whole = decode_disposition(reader)
    assert reader.pos == len(data)
    assert whole.role is Role.RECEIVER
    assert whole.first == read.first
    assert (whole.first if whole.last is None else whole.last) == read.last
    assert whole.settled == read.settled
    assert whole.state == Accepted()
    return True


_IDS = st.sampled_from([0, 1, 255, 256, 0x7FFFFFFF, 0x80000000, MAX32]) | st.integers(0, MAX32)


@given(
    role=st.sampled_from(Role),
    first=_IDS,
    last=st.none() | _IDS,
    settled=st.booleans(),
    state=st.sampled_from(
        [None, Accepted(), Released(), Received(section_number=0, section_offset=0)]
    ),
    batchable=st.booleans(),
)
def test_what_is_read_is_what_the_decoder_reads(**fields):
    same_as_decoded(encode(Disposition(**fields)))


@pytest.mark.parametrize("batchable", [False, True])
@pytest.mark.parametrize("last", [None, 2, MAX32])
@pytest.mark.parametrize("first", [1, MAX32])
def test_bytes_that_differ_from_a_disposition(first, last, batchable):
    data = encode(
        Disposition(
            role=Role.RECEIVER,
            first=first,
            last=last,
            settled=True,
            state=Accepted(),
            batchable=batchable,
        )
    )
    assert same_as_decoded(data)
    for size in range(3, len(data)):
        same_as_decoded(data[:size])
    for at in range(3, len(data)):
        for value in range(256):
            changed = data[:at] + bytes([value]) + data[at + 1 :]
            try:
                same_as_decoded(changed)
            except DecodeError as error:
                raise AssertionError(f"byte {at} = {value}: taken, but {error}") from None


def test_the_form_that_other_clients_send():
    """Numbers of any width, `last` and `batchable` present or not."""
    for first in (b"\x52\x07", b"\x70\0\0\0\x07"):
        for last in (b"\x40", b"\x52\x09", b"\x70\0\0\0\x09"):
            for flag in (b"\x40", b"\x41", b"\x42"):
                for end in (b"", b"\x40", b"\x41", b"\x42"):
                    fields = b"\x41" + first + last + flag + b"\0\x53\x24\x45" + end
                    head = bytes([0xC0, len(fields) + 1, 6 if end else 5])
                    assert same_as_decoded(b"\0\x53\x15" + head + fields)
