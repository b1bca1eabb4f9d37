"""Lists and maps opened and closed in a writer and in a reader (AMQP 1.0 §1.6.22, §1.6.23)."""

from __future__ import annotations

import pytest
from librt.strings import BytesWriter

from ferrymq_codec import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_codec.writer import (
    begin_composite,
    begin_list,
    begin_map,
    end_list,
    end_map,
    write_binary,
    write_descriptor,
    write_empty_composite,
    write_null,
)

pytestmark = pytest.mark.spec("1.6.22")


def test_a_composite_is_a_described_list() -> None:
    w = BytesWriter()
    mark = begin_composite(w, 0x14)
    write_null(w)
    end_list(w, mark, 1)
    assert w.getvalue() == bytes.fromhex("00 53 14 c0 02 01 40")


def test_large_descriptor_codes_take_eight_bytes() -> None:
    w = BytesWriter()
    write_empty_composite(w, 0x468C00000004)
    write_descriptor(w, 256)
    mark = begin_composite(w, 0x468C00000004)
    end_list(w, mark, 0)
    assert w.getvalue() == bytes.fromhex(
        "00 80 0000468c00000004 45 00 80 0000000000000100 00 80 0000468c00000004 45"
    )


def test_an_empty_composite_and_an_empty_list() -> None:
    w = BytesWriter()
    write_empty_composite(w, 0x24)
    end_list(w, begin_composite(w, 0x24), 0)
    end_list(w, begin_list(w), 0)
    assert w.getvalue() == bytes.fromhex("00 53 24 45 00 53 24 45 45")


@pytest.mark.parametrize("before", [0, 1, 100_000])
@pytest.mark.parametrize("size", [0, 251, 252, 253, 254, 255, 256, 5_000, 70_000])
def test_the_header_grows_with_the_content(size: int, before: int) -> None:
    # `before` bytes in front decide between the two ways of making room for a wide header.
    w = BytesWriter()
    w.write(b"\x40" * before)
    content = bytes(range(256)) * (size // 256 + 1)
    for begin, end, code in ((begin_list, end_list, 0xC0), (begin_map, end_map, 0xC1)):
        start = len(w)
        mark = begin(w)
        write_binary(w, content[:size], "field")
        write_null(w)
        end(w, mark, 2)
        data = w.getvalue()
        assert data[:before] == b"\x40" * before
        body = size + (2 if size < 256 else 5) + 1
        if body + 1 < 256:
            assert data[start : start + 3] == bytes([code, body + 1, 2])
        else:
            assert data[start] == code + 0x10
            assert data[start + 1 : start + 5] == (body + 4).to_bytes(4, "big")
            assert data[start + 5 : start + 9] == (2).to_bytes(4, "big")
        r = Reader(data, start)
        outer = r.end
        assert (r.enter_list if code == 0xC0 else r.enter_map)("field") == 2
        assert r.read_binary("field") == content[:size]
        assert r.take_null()
        r.leave(outer, "field")
        assert r.remaining() == 0


def test_more_than_255_elements_take_a_wide_header() -> None:
    w = BytesWriter()
    mark = begin_list(w)
    w.write(b"\x40" * 255)
    end_list(w, mark, 255)
    assert w.getvalue()[:9] == bytes.fromhex("d0 00000103 000000ff")


def test_reading_stays_inside_the_list() -> None:
    r = Reader(bytes.fromhex("c0 02 01 52 05"))
    r.enter_list("outer")
    with pytest.raises(DecodeError):
        r.read_uint("outer.field")


def test_all_of_a_list_must_be_read() -> None:
    r = Reader(bytes.fromhex("c0 03 02 40 40"))
    outer = r.end
    assert r.enter_list("outer") == 2
    assert r.depth == 1
    assert r.take_null()
    with pytest.raises(DecodeError, match="1 bytes are left"):
        r.leave(outer, "outer")
    assert r.take_null()
    r.leave(outer, "outer")
    assert (r.depth, r.end) == (0, outer)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "c0",
        "c0 01",
        "c0 00 00",
        "c0 02 00",
        "c0 01 01",
        "c0 03 03 40 40",
        "d0 00000003 000000",
        "d0 00000004 00000001",
        "d0 00000005 00000000",
        "d0 00000004 0000",
        "d0 7fffffff 00000001 40",
        "d0 80000000 00000001 40",
        "d0 ffffffff 00000001 40",
        "d0 00000005 ffffffff 40",
        "d0 00000005 80000000 40",
        "c1 01 00",
        "e0 02 00 40",
        "40",
    ],
)
def test_headers_that_do_not_add_up_are_refused(data: str) -> None:
    with pytest.raises(DecodeError):
        Reader(bytes.fromhex(data)).enter_list("field")


@pytest.mark.spec("1.6.23")
@pytest.mark.parametrize(
    "data",
    ["c1 02 01 40", "d1 00000005 00000001 40", "c1 04 03 40 40 40", "c1 00 00", "45", "c0 01 00"],
)
def test_a_map_has_as_many_keys_as_values(data: str) -> None:
    with pytest.raises(DecodeError):
        Reader(bytes.fromhex(data)).enter_map("field")


@pytest.mark.spec("1.2")
@pytest.mark.parametrize(
    ("data", "code", "symbol"),
    [
        ("00 53 14", 0x14, ""),
        ("00 44", 0, ""),
        ("00 80 0000000000000014", 0x14, ""),
        ("00 80 7fffffffffffffff", 2**63 - 1, ""),
        ("00 80 8000000000000000", -2, ""),
        ("00 80 ffffffffffffffff", -2, ""),
        ("00 a3 03 612d62", -1, "a-b"),
        ("00 b3 00000003 612d62", -1, "a-b"),
        ("00 a1 03 612d62", -2, ""),
        ("00 00 53 01 40", -2, ""),
    ],
)
def test_descriptors(data: str, code: int, symbol: str) -> None:
    r = Reader(bytes.fromhex(data))
    assert r.read_descriptor("field") == code
    assert r.symbol == symbol
    assert r.remaining() == 0


@pytest.mark.parametrize(
    "data",
    ["", "00", "00 53", "00 80 00000000000000", "00 a3 03 6161", "00 a3 01 ff", "53 14", "40"],
)
def test_what_is_no_descriptor_is_refused(data: str) -> None:
    with pytest.raises(DecodeError):
        Reader(bytes.fromhex(data)).read_descriptor("field")
