"""Described values found where any value may stand: known ones are typed, others kept."""

from __future__ import annotations

import pytest

from ferrymq_codec import DecodeError, Described, Symbol, ULong
from ferrymq_codec.reader import Reader
from ferrymq_types import registry, unions
from ferrymq_types.filters import NoLocalFilter, SelectorFilter
from ferrymq_types.messaging import (
    Accepted,
    AmqpValue,
    Data,
    DeleteOnClose,
    Header,
    Rejected,
    Source,
    Target,
)
from ferrymq_types.security import SaslInit
from ferrymq_types.transactions import Coordinator, Declared
from ferrymq_types.transport import Close, Error, Open
from tests.types.specification import encode


def reader(text: str) -> Reader:
    data = bytes.fromhex(text.replace(" ", ""))
    return Reader(data, 0, len(data))


def test_plain_value() -> None:
    assert registry.decode_any(reader("5207"), "value") == 7


@pytest.mark.parametrize(
    ("text", "descriptor"),
    [
        ("00 53ff a10161", ULong(0xFF)),
        ("00 80ffffffffffffffff a10161", ULong(2**64 - 1)),
        ("00 a30178 a10161", Symbol("x")),
        ("00 5405 a10161", 5),
        ("00 a10178 a10161", "x"),
    ],
)
def test_unknown_descriptor_is_kept(text: str, descriptor: object) -> None:
    r = reader(text)
    assert registry.decode_described(r, "value") == Described(descriptor, "a")
    assert r.remaining() == 0
    value = registry.decode_any(reader(text), "value")
    assert isinstance(value, Described)
    assert registry.typed(value) is value


def test_no_descriptor() -> None:
    with pytest.raises(DecodeError) as caught:
        registry.decode_described(reader("5207"), "value")
    assert caught.value.field == "value"


def test_typed() -> None:
    assert registry.typed(Described(ULong(0x24), [])) == Accepted()
    assert registry.typed(Described(Symbol("amqp:accepted:list"), [])) == Accepted()
    generic = Described(Symbol("apache.org:selector-filter:string"), "a = 1")
    assert registry.typed(generic) == SelectorFilter("a = 1")
    assert registry.typed(Described(ULong(0x0000468C00000003), [])) == NoLocalFilter()
    nested = Described(ULong(0x25), [Described(ULong(0x1D), [Symbol("x")])])
    assert registry.typed(nested) == Rejected(error=Error(condition="x"))


@pytest.mark.parametrize(
    "value",
    [Described(ULong(0x24), [1]), Described(ULong(0x24), "x"), Described(ULong(0x25), [[1]])],
)
def test_content_of_another_type(value: Described) -> None:
    with pytest.raises(DecodeError):
        registry.typed(value)


def test_filter_sent_typed_is_found_generic_in_the_map() -> None:
    """Values of a map are untyped; `typed` is for whoever knows what to expect there."""
    encoded = encode(Source(filter={"s": SelectorFilter("a = 1"), "n": None}))
    source = unions.decode_source(Reader(encoded, 0, len(encoded)), "source")
    assert source.filter is not None
    found = source.filter["s"]
    assert isinstance(found, Described)
    assert registry.typed(found) == SelectorFilter("a = 1")
    assert encode(source) == encoded


CAPABILITIES = [
    (unions.decode_frame, [Open(container_id="c"), Close()], SaslInit(mechanism="x")),
    (unions.decode_sasl_frame, [SaslInit(mechanism="x")], Close()),
    (unions.decode_section, [Header(), Data(b""), AmqpValue(1)], Accepted()),
    (unions.decode_outcome, [Accepted(), Declared(txn_id=b"t")], Header()),
    (unions.decode_delivery_state, [Accepted(), Declared(txn_id=b"t")], Error(condition="x")),
    (unions.decode_source, [Source()], Target()),
    (unions.decode_target, [Target(), Coordinator()], Source()),
    (unions.decode_lifetime_policy, [DeleteOnClose()], Source()),
    (unions.decode_filter, [SelectorFilter("x"), NoLocalFilter()], DeleteOnClose()),
]


@pytest.mark.parametrize(
    ("decode", "good", "bad"), CAPABILITIES, ids=lambda v: getattr(v, "__name__", "")
)
def test_capability(decode, good, bad) -> None:
    for value in good:
        data = encode(value)
        assert decode(Reader(data, 0, len(data)), "x") == value
    data = encode(bad)
    for wrong in (data, b"\x00\x53\xfe\x45", b"\x00\xa3\x01x\x45", b"\x45", b"\x00", b""):
        with pytest.raises(DecodeError) as caught:
            decode(Reader(wrong, 0, len(wrong)), "x")
        assert caught.value.field == "x"


def test_unions_of_plain_types() -> None:
    assert unions.decode_message_id(reader("5307"), "id") == 7
    assert unions.decode_message_id(reader("44"), "id") == 0
    assert unions.decode_message_id(reader("a10161"), "id") == "a"
    assert unions.decode_message_id(reader("a00161"), "id") == b"a"
    with pytest.raises(DecodeError):
        unions.decode_message_id(reader("a30161"), "id")


def test_repr_names_every_field() -> None:
    assert repr(Header(ttl=5)) == (
        "Header(durable=False, priority=4, ttl=5, first_acquirer=False, delivery_count=0)"
    )


def test_equality() -> None:
    assert Header() == Header(priority=4)
    assert Header() != Header(priority=5)
    assert Accepted() != Data(b"")
    assert Accepted() == Accepted()
    assert Header() != "Header"


def test_fields_are_all_there_is() -> None:
    header = Header()
    with pytest.raises(AttributeError):
        header.colour = "red"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        Header(colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Header(True)  # type: ignore[misc]
    with pytest.raises(TypeError):
        Open()  # type: ignore[call-arg]
