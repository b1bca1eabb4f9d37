"""A default is accepted exactly when the codec can write it, and means the value it writes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq_codec import EncodeError, decimals, writer
from ferrymq_codec.reader import Reader
from ferrymq_codegen.amqp_1_0.literals import parse

WRITERS: dict[str, Any] = {
    "float": writer.write_float,
    "double": writer.write_double,
    "decimal32": decimals.write_decimal32,
    "decimal64": decimals.write_decimal64,
    "decimal128": decimals.write_decimal128,
}


def read(r: Reader, primitive: str) -> Any:
    if primitive.startswith("decimal"):
        return getattr(decimals, f"read_{primitive}")(r, "f")
    return getattr(r, f"read_{primitive}")("f")


NUMBERS = st.builds(
    lambda sign, whole, part, exponent: f"{sign}{whole}{part}{exponent}",
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**36).map(str),
    st.just("") | st.integers(0, 10**8).map(lambda n: f".{n}"),
    st.just("") | st.integers(-6300, 6300).map(lambda n: f"e{n}"),
)


@pytest.mark.parametrize("primitive", WRITERS)
@given(NUMBERS)
@example("0.1")
@example("3.4028235e38")
@example("3.4028236e38")
@example("1e-45")
@example("1e-46")
@example("1e308")
@example("1e96")
@example("1e97")
@example("9.999999e96")
@example("1e-101")
@example("1e384")
@example("1e385")
@example("1e-398")
@example("1e-399")
@example("1e6144")
@example("1e6145")
@example("1e-6176")
@example("1e-6177")
@example("0e6200")
@example("1000000000000000000e-6180")
def test_accepted_exactly_when_the_codec_can_write_it(primitive: str, text: str) -> None:
    w = BytesWriter()
    exact = Decimal(text)
    try:
        WRITERS[primitive](w, exact if "decimal" in primitive else float(text), "f")
        data = w.getvalue()
        held = read(Reader(data, 0, len(data)), primitive)
        possible = held not in (float("inf"), float("-inf")) and (held == 0) == (exact == 0)
    except EncodeError:
        possible = False
    try:
        value = parse(text, primitive)
    except ValueError as error:
        assert not possible, error
        assert text in str(error)
    else:
        assert possible
        assert value == held
