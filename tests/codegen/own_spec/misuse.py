"""Every marked line is a type error."""

from __future__ import annotations

from uuid import UUID

from shop_types.shop import Currency, Item, Order, OrderState, Tag

from ferrymq_types.transport import Error

ERROR = Error(condition="x")
Order(items=[], first=ERROR, must=1)  # misuse: id is missing
Order(id=UUID(int=1), items=[Tag("x")], first=ERROR, must=1)  # misuse: not items
Order(id=UUID(int=1), items=[], first=ERROR, must=1, currency="eur")  # misuse: not a Currency
Order(id=UUID(int=1), items=[], first=ERROR, must=1, payment="cash")  # misuse: provides nothing
Order(id=UUID(int=1), items=[], first=ERROR, must=1, outcome=ERROR)  # misuse: no outcome
Item("a")  # misuse: fields are given by name
Item(name="a", prize=1)  # misuse: no such field
Item(name=b"a")  # misuse: not a str
state: int = OrderState.OPEN
currency: OrderState = Currency.EUR  # misuse: another enum
Item(name="a").count.upper()  # misuse: an int
