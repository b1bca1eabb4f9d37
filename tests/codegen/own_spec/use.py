"""What an application does with types of its own; run with the generated package on the path."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

from librt.strings import BytesWriter
from shop_types import registry, unions
from shop_types.messaging import Note
from shop_types.shop import (
    GREETING,
    MAX_ITEMS,
    Currency,
    Item,
    Level,
    LevelChoice,
    Order,
    OrderState,
    Paid,
    Ping,
    ShopFilter,
    Tag,
    decode_order,
    encode_order,
)

from ferrymq_codec.containers import Array
from ferrymq_codec.errors import DecodeError, EncodeError
from ferrymq_codec.reader import Reader
from ferrymq_codec.scalars import Described, Symbol, ULong
from ferrymq_types.filters import SelectorFilter
from ferrymq_types.messaging import (
    Accepted,
    Properties,
    Released,
    Source,
    StdDistMode,
    Target,
    TerminusExpiryPolicy,
)
from ferrymq_types.transport import AmqpErrorCondition, Error, Role

FIRST = Error(condition=AmqpErrorCondition.NOT_FOUND)
ID = UUID(int=7)


def encoded(value: Order | Item | Ping | Level) -> bytes:
    w = BytesWriter()
    value.encode(w)
    return w.getvalue()


def round_trip(value: Order) -> Order:
    w = BytesWriter()
    encode_order(w, value)
    data = w.getvalue()
    r = Reader(data, 0, len(data))
    assert r.read_descriptor("order") == 0x0000ACDC00000001
    result = decode_order(r)
    assert r.remaining() == 0
    assert result == value, (result, value)
    return result


def refused(order: Order) -> str:
    try:
        encoded(order)
    except EncodeError as error:
        return error.field
    raise AssertionError(order)


assert MAX_ITEMS == 64
assert GREETING == 'say "hello"'

small = Order(id=ID, items=[Item(name="a")], first=FIRST, must=1)
again = round_trip(small)
assert (again.currency, again.state, again.paid) == (Currency.EUR, OrderState.OPEN, Paid.NO)
assert again.expiry is TerminusExpiryPolicy.NEVER
assert again.distribution == StdDistMode.COPY
assert again.items[0].price == Decimal("9.99")
assert (again.items[0].int_, again.items[0].w, again.items[0].value) == (-5, "x", 0.5)

full = Order(
    id=ID,
    items=[Item(name="a", tags=[Tag("x"), Tag("y")]), Item(name="b" * 300, encode_=b"raw")],
    currency=Currency.USD,
    state=OrderState.CANCELLED,
    history=[OrderState.OPEN, OrderState.SENT],
    payment=Level(LevelChoice.GOLD),
    error=Error(condition="shop:broke", info={"till": 3}),
    first=FIRST,
    expiry=TerminusExpiryPolicy.LINK_DETACH,
    placed=-1,
    from_="here",
    extra={"any": [1, "thing"]},
    must=[None],
    codes=[1, 65535],
    ids=[b"a", b"b"],
    sums=Array("uint", [1, 2]),
    lines=[True, None],
    paid=Paid.YES,
    either=b"transaction",
    distribution="scatter",
    causes=[Error(condition="a"), Error(condition="b", description="second")],
    roles=[Role.SENDER, Role.RECEIVER],
    outcome=Accepted(),
    filter=SelectorFilter("a = 1"),
    place=Target(address="here"),
    note=Note(text="soon", about=Properties(subject="s")),
)
round_trip(full)
for payment in (Tag("t"), 5, -5, True, False, Decimal("1.5")):
    assert type(round_trip(Order(id=ID, items=[Item(name="a")], first=FIRST, must=1,
                                 payment=payment)).payment) is type(payment)  # fmt: skip

# Unions have types of both packages; others are those of ferrymq_types.
for change in (Released(), Accepted()):
    assert round_trip(Order(id=ID, items=[Item(name="a")], first=FIRST, must=1,
                            outcome=change)).outcome == change  # fmt: skip
for filter_ in (ShopFilter("s"), SelectorFilter("b = 2")):
    assert round_trip(Order(id=ID, items=[Item(name="a")], first=FIRST, must=1,
                            filter=filter_, place=Source())).filter == filter_  # fmt: skip
symbolic = b"\x00\xa3\x1eapache.org:selector-filter:string\xa1\x01x"
symbolic = symbolic.replace(b"\x1e", bytes([len("apache.org:selector-filter:string")]), 1)
assert unions.decode_filter(Reader(symbolic, 0, len(symbolic)), "f") == SelectorFilter("x")

# Registered by code, symbol and class, under its capability, and found in untyped places.
assert registry.CODES["shop:order:list"] == 0x0000ACDC00000001
assert registry.CLASSES[0x0000ACDC00000002] is Item
assert registry.DESCRIPTORS[Tag] == ("shop:tag:symbol", 0x0000ACDC00000003)
assert registry.TYPES["order-state"] == ("shop", "OrderState")
data = encoded(full)
assert registry.decode_any(Reader(data, 0, len(data)), "x") == full
assert unions.decode_shop_event(Reader(data, 0, len(data)), "event") == full
symbolic = b"\x00\xa3\x0eshop:item:list\xc0\x04\x01\xa1\x01a"
assert registry.decode_any(Reader(symbolic, 0, len(symbolic)), "x") == Item(name="a")
error = b"\x00\x53\x1d\xc0\x04\x01\xa3\x01x"
assert registry.decode_any(Reader(error, 0, len(error)), "x") == Error(condition="x")
assert registry.typed(Described(ULong(0x1D), [Symbol("x")])) == Error(condition="x")
generic = Described(ULong(0x0000ACDC00000002), ["a"])
assert registry.typed(generic) == Item(name="a")
assert encoded(Ping()) == b"\x00\x80\x00\x00\xac\xdc\x00\x00\x00\x05\x45"

# What the XML demands is enforced, naming the field.
assert refused(Order(id=ID, items=[], first=FIRST, must=1)) == "order.items"
assert refused(Order(id=ID, items=[Item(name="a")], first=FIRST, must=None)) == "order.must"
for bad, field in (
    (b"\x00\x80\x00\x00\xac\xdc\x00\x00\x00\x02\x45", "item.name"),
    (b"\x00\x80\x00\x00\xac\xdc\x00\x00\x00\x04\x50\x03", "level"),
    (b"\x00\x80\x00\x00\xac\xdc\x00\x00\x00\x02\xc0\x05\x01\xa1\x01a\x40", "item"),
):
    try:
        registry.decode_any(Reader(bad, 0, len(bad)), "x")
    except DecodeError as error:
        assert error.field == field, error
    else:
        raise AssertionError(bad)
assert Order.__doc__ is not None and "What a customer wants." in Order.__doc__
print("used")
