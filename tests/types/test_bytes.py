"""`to_bytes` and `from_bytes` of every generated class, and what their errors say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrymq import Message
from ferrymq.testing.strategies import composites
from ferrymq_codec.composite import Composite
from ferrymq_codec.errors import DecodeError, EncodeError
from ferrymq_types.messaging import Header, Properties, Source
from ferrymq_types.registry import DESCRIPTORS
from ferrymq_types.transport import Attach

CLASSES = sorted(DESCRIPTORS, key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@settings(max_examples=5)
@given(st.data())
def test_a_value_comes_back(cls: type[Composite], data: st.DataObject) -> None:
    value = data.draw(composites(cls))
    encoded = value.to_bytes()
    assert cls.from_bytes(encoded) == value
    assert cls.from_bytes(memoryview(bytearray(encoded))) == value


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("0053704100", "header: expected list, found boolean (0x41) (at byte 3)"),
        ("005370c00301a100", "header.durable: expected boolean, found string (0xa1) (at byte 6)"),
        ("00537145", "header: not a header (at byte 3)"),
        ("0053704540", "header: 1 bytes follow the value (at byte 4)"),
        ("", "header: truncated descriptor (at byte 0)"),
        ("41", "header: expected a described value, found boolean (0x41) (at byte 0)"),
    ],
)
def test_other_bytes_name_type_and_field(data: str, said: str) -> None:
    with pytest.raises(DecodeError) as caught:
        Header.from_bytes(bytes.fromhex(data))
    assert str(caught.value) == said


@pytest.mark.parametrize("data", [4, "abc", None, [0, 0x53, 0x70, 0x45]])
@pytest.mark.parametrize("read", [Header.from_bytes, Message.decode])
def test_what_is_no_bytes_is_refused(read: Any, data: Any) -> None:
    kind = type(data).__name__
    with pytest.raises(TypeError, match=f"not {kind}$|object expected; got {kind}$"):
        read(data)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(DecodeError, match=r"^attach\.name: mandatory field is missing"):
        Attach.from_bytes(b"\x00\x53\x12\x45")


def test_a_value_that_does_not_fit_is_named() -> None:
    with pytest.raises(EncodeError, match=r"^header\.priority: 300 is out of range for ubyte$"):
        Header(priority=300).to_bytes()


@pytest.mark.parametrize(
    ("cls", "attribute", "value", "said"),
    [
        (Header, "priority", "high", "header.priority: expected int, found str"),
        (Properties, "to", 5, "properties.to: expected str | None, found int"),
        (Source, "outcomes", 3, "source.outcomes: expected list[str] | None, found int"),
    ],
)
def test_a_value_of_another_type_is_refused(
    cls: type[Composite], attribute: str, value: object, said: str
) -> None:
    """Compiled, the attribute itself refuses it."""
    made = cls()
    try:
        setattr(made, attribute, value)
    except TypeError:
        return
    with pytest.raises(EncodeError) as caught:
        made.to_bytes()
    assert str(caught.value) == said


def test_the_base_class_reads_nothing() -> None:
    with pytest.raises(DecodeError, match="call the method of a subclass"):
        Composite.from_bytes(b"\x00\x53\x70\x45")
