"""Arrays, and maps that a dict cannot hold, as Python values (AMQP 1.0 §1.6.23, §1.6.24)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import final

from ferrymq_codec import codes
from ferrymq_codec.scalars import Symbol, ULong, equal_values


@final
class Repeated:
    """The same value repeated `count` times, in constant memory: elements that take no bytes.

    An array of zero-width elements has a few bytes on the wire, whatever its count.
    """

    __slots__ = ("count", "value")

    def __init__(self, value: object, count: int) -> None:
        if count < 0:
            raise ValueError("a count must not be negative")
        self.value: object = value
        self.count: int = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> object:
        if index >= self.count or index < -self.count:
            raise IndexError("index out of range")
        return self._one()

    def __iter__(self) -> Iterator[object]:
        i = 0
        while i < self.count:
            yield self._one()
            i += 1

    def _one(self) -> object:
        # Lists are mutable: a change through one element must not change all elements.
        value = self.value
        return list(value) if isinstance(value, list) else value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Repeated):
            same = self.count == 0 or equal_values(self.value, other.value)
            return self.count == other.count and same
        if isinstance(other, (list, tuple)):
            if len(other) != self.count:
                return False
            return all(equal_values(item, self.value) for item in other)
        return NotImplemented

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'Repeated'")

    def __repr__(self) -> str:
        return f"Repeated({self.value!r}, {self.count})"

    def __reduce__(self) -> tuple[object, ...]:
        return Repeated, (self.value, self.count)


@final
class Array:
    """A sequence of values of one type (AMQP 1.0 §1.6.24); treat as immutable.

    `element_type` is the primitive's name in the specification ("uint", "symbol", "list", …) and
    `items` are the elements as they would be decoded in an untyped place: the elements of an array
    of arrays are Array objects. `descriptors`, outermost first, apply to every element; a plain int
    or str among them becomes ULong or Symbol. `code` is the constructor that the elements had on
    the wire; without it the encoder picks the shortest that fits all of them and has a width.

    Raises ValueError for an unknown type or a code of another type.
    """

    __slots__ = ("code", "descriptors", "element_type", "items")
    __match_args__ = ("element_type", "items")

    def __init__(
        self,
        element_type: str,
        items: Iterable[object] | Repeated = (),
        *,
        descriptors: Iterable[object] = (),
        code: int | None = None,
    ) -> None:
        if element_type not in codes.TYPE_NAMES.values():
            raise ValueError(f"{element_type!r} is not a primitive type of AMQP")
        if code is not None and codes.TYPE_NAMES.get(code) != element_type:
            raise ValueError(f"0x{code:02x} is not a constructor of {element_type}")
        self.element_type: str = element_type
        self.items: tuple[object, ...] | Repeated = (
            items if isinstance(items, Repeated) else tuple(items)
        )
        self.descriptors: tuple[object, ...] = tuple([_descriptor(d) for d in descriptors])
        self.code: int | None = code

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> object:
        return self.items[index]

    def __iter__(self) -> Iterator[object]:
        return iter(self.items)

    def __contains__(self, value: object) -> bool:
        items = self.items
        if isinstance(items, Repeated):
            return items.count > 0 and bool(items.value == value)
        return value in items

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return (
            self.element_type == other.element_type
            and self.descriptors == other.descriptors
            and equal_values(self.items, other.items)
        )

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'Array'")

    def __repr__(self) -> str:
        items = self.items
        shown = repr(items) if isinstance(items, Repeated) else repr(list(items))
        described = f", descriptors={self.descriptors!r}" if self.descriptors else ""
        return f"Array({self.element_type!r}, {shown}{described})"

    def __reduce__(self) -> tuple[object, ...]:
        return _make_array, (self.element_type, self.items, self.descriptors, self.code)


def _make_array(
    element_type: str,
    items: tuple[object, ...] | Repeated,
    descriptors: tuple[object, ...],
    code: int | None,
) -> Array:
    array = Array(element_type, items, code=code)
    # The descriptors are kept as they were: the constructor would replace a reserved one.
    array.descriptors = descriptors
    return array


def _descriptor(value: object) -> object:
    if type(value) is int:
        return ULong(value)
    if type(value) is str:
        return Symbol(value)
    return value


@final
class PairMap:
    """A map as its pairs in order, for keys that a dict cannot tell apart or cannot hold.

    `1` and `True`, or `Symbol("a")` and `"a"`, are different keys in AMQP and equal in Python; a
    list may be a key in AMQP. Every other map is decoded to a dict. Looking up a key compares its
    type too, and takes time proportional to the number of pairs. Treat as immutable.
    """

    __slots__ = ("pairs",)

    def __init__(self, pairs: Iterable[tuple[object, object]] = ()) -> None:
        self.pairs: tuple[tuple[object, object], ...] = tuple(pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __iter__(self) -> Iterator[object]:
        return iter(self.keys())

    def keys(self) -> Sequence[object]:
        """Return the keys in order."""
        return [pair[0] for pair in self.pairs]

    def values(self) -> Sequence[object]:
        """Return the values in the order of their keys."""
        return [pair[1] for pair in self.pairs]

    def items(self) -> Sequence[tuple[object, object]]:
        """Return the pairs in order."""
        return self.pairs

    def __contains__(self, key: object) -> bool:
        return self._find(key) >= 0

    def __getitem__(self, key: object) -> object:
        at = self._find(key)
        if at < 0:
            raise KeyError(key)
        return self.pairs[at][1]

    def get(self, key: object, default: object = None) -> object:
        """Return the value of `key`, compared with its type, or `default`."""
        at = self._find(key)
        return default if at < 0 else self.pairs[at][1]

    def _find(self, key: object) -> int:
        for i, pair in enumerate(self.pairs):
            if type(pair[0]) is type(key) and pair[0] == key:
                return i
        return -1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PairMap):
            return NotImplemented
        if not equal_values(self.pairs, other.pairs):
            return False
        return [type(key) for key in self] == [type(key) for key in other]

    def __hash__(self) -> int:
        raise TypeError("unhashable type: 'PairMap'")

    def __repr__(self) -> str:
        return f"PairMap({list(self.pairs)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return PairMap, (self.pairs,)


# Registered, not inherited: a compiled class cannot derive from the abstract ones.
Sequence.register(Array)
Sequence.register(Repeated)
