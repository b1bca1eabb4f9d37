"""Damaged encodings of every type give a value or `DecodeError`, never anything else."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrymq.testing.strategies import composites
from ferrymq_codec import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_types import registry, unions
from tests.types.specification import described_types, encode, python


def decode(data: bytes) -> object:
    """A value or None; any other exception than DecodeError passes through."""
    try:
        return registry.decode_any(Reader(data, 0, len(data)), "value")
    except DecodeError as error:
        assert 0 <= error.offset <= len(data)
        assert error.field
        return None


@pytest.mark.parametrize("name", described_types())
@settings(max_examples=10)
@given(st.data())
def test_truncation_at_every_byte(name: str, data: st.DataObject) -> None:
    encoded = encode(data.draw(composites(python(name))))
    for end in range(len(encoded)):
        with pytest.raises(DecodeError) as caught:
            registry.decode_any(Reader(encoded[:end], 0, end), "value")
        assert 0 <= caught.value.offset <= end
        # The bytes behind `end` exist, and still must not be looked at.
        with pytest.raises(DecodeError):
            registry.decode_any(Reader(encoded, 0, end), "value")


@pytest.mark.parametrize("name", described_types())
@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_corruption_of_every_byte(name: str, data: st.DataObject) -> None:
    encoded = encode(data.draw(composites(python(name))))
    step = max(1, len(encoded) // 64)
    for position in range(0, len(encoded), step):
        for value in (0, 1, 0x40, 0x45, 0x53, 0x7F, 0xA0, 0xB1, 0xC0, 0xD0, 0xE0, 0xF0, 0xFF):
            decode(encoded[:position] + bytes([value]) + encoded[position + 1 :])


@settings(max_examples=300)
@given(st.sampled_from(described_types()), st.binary(max_size=40))
def test_noise_behind_a_descriptor(name: str, noise: bytes) -> None:
    code = registry.DESCRIPTORS[type_of(name)][1]
    head = b"\x00\x53" + bytes([code]) if code < 256 else b"\x00\x80" + code.to_bytes(8, "big")
    decode(head + noise)
    for function in (unions.decode_frame, unions.decode_section, unions.decode_target):
        try:
            function(Reader(head + noise, 0, len(head) + len(noise)), "value")
        except DecodeError:
            pass


def type_of(name: str) -> type:
    module, attribute = registry.TYPES[name]
    return next(
        cls
        for cls in registry.DESCRIPTORS
        if cls.__name__ == attribute and cls.__module__.endswith(module)
    )
