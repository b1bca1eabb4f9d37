"""Encoded values taken apart into trees, changed, and put together with sizes that fit.

A reading of AMQP 1.0 §1.2 of its own, apart from the one that is tested. What cannot be read
is left to the changes of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.fuzz.mutation.plain import NUMBERS, mutate_bytes

_DEEPEST = 100
_WIDTHS = {5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
_LISTS = (0xC0, 0xD0, 0xC1, 0xD1)


class Node:
    """One value: `content` is what follows the constructor, or `inner` the values inside it.

    The constructor 0 is a described value with two inside: its descriptor and what it describes.
    """

    def __init__(self, code: int, content: bytes = b"", inner: list[Node] | None = None) -> None:
        self.code = code
        self.content = content
        self.inner = inner

    def encode(self) -> bytes:
        """The value on the wire, with the size and the count of what is inside it."""
        if self.inner is None:
            return bytes((self.code,)) + self.content
        content = b"".join([node.encode() for node in self.inner])
        if self.code == 0:
            return b"\0" + content
        count = len(self.inner)
        wide = self.code | 0x10
        if self.code != wide and count < 256 and len(content) < 255:
            return bytes((self.code, len(content) + 1, count)) + content
        return bytes((wide,)) + _u32(len(content) + 4) + _u32(count) + content

    def copy(self) -> Node:
        """The same value, to be changed on its own."""
        inner = None if self.inner is None else [node.copy() for node in self.inner]
        return Node(self.code, self.content, inner)

    def walk(self) -> Iterator[Node]:
        """This value and all that are inside it."""
        todo = [self]
        while todo:
            node = todo.pop()
            yield node
            todo += node.inner or ()


def parse(data: bytes, at: int = 0, depth: int = 0) -> tuple[Node, int]:
    """The value at a place, and where it ends. Raises ValueError or IndexError."""
    if depth > _DEEPEST:
        raise ValueError("too deep")
    code = data[at]
    at += 1
    if code == 0:
        descriptor, at = parse(data, at, depth + 1)
        value, at = parse(data, at, depth + 1)
        return Node(0, inner=[descriptor, value]), at
    category = code >> 4
    if category == 4:
        return Node(code), at
    if category in _WIDTHS:
        end = at + _WIDTHS[category]
    elif category >= 0xA:
        width = 4 if category & 1 else 1
        size = int.from_bytes(data[at : at + width], "big")
        end = at + width + size
        if code in _LISTS and end <= len(data):
            start = at + width
            count = int.from_bytes(data[start : start + width], "big")
            if count <= size:
                return _parse_inner(data, start + width, end, code, count, depth)
    else:
        raise ValueError("no constructor")
    if end > len(data):
        raise ValueError("cut off")
    return Node(code, data[at:end]), end


def _parse_inner(
    data: bytes, at: int, end: int, code: int, count: int, depth: int
) -> tuple[Node, int]:
    inner = []
    for _ in range(count):
        node, at = parse(data, at, depth + 1)
        inner.append(node)
    if at != end:
        raise ValueError("the size does not fit")
    return Node(code, inner=inner), end


def parse_all(data: bytes) -> tuple[list[Node], bytes]:
    """The values one after the other, and the bytes after the last one."""
    found = []
    at = 0
    while at < len(data):
        try:
            node, at = parse(data, at)
        except (ValueError, IndexError):
            break
        found.append(node)
    return found, data[at:]


def mutate_values(random: Random, data: bytes) -> bytes:
    """Values one after the other, as in a message: one to three of them, or of their parts,
    changed."""
    nodes, rest = parse_all(data)
    if not nodes or random.random() < 0.1:
        return mutate_bytes(random, data)
    root = Node(0xC0, inner=nodes)
    for _ in range(random.choice((1, 1, 2, 3))):
        random.choice(_CHANGES)(random, list(root.walk()))
    return b"".join([node.encode() for node in root.inner or ()]) + rest


def random_value(random: Random, depth: int = 0) -> Node:
    """Some value; the deeper, the simpler."""
    what = random.randrange(12)
    if what < 3 and depth < 3:
        inner = [random_value(random, depth + 1) for _ in range(random.randrange(4))]
        if what == 1:
            inner += inner[: len(inner) & 1]
        if what < 2:
            return Node(0xC1 if what else 0xC0, inner=inner)
        return Node(0, inner=[random_value(random, 3), random_value(random, depth + 1)])
    if what < 5:
        return Node(random.choice((0x40, 0x41, 0x42, 0x43, 0x44, 0x45)))
    if what < 8:
        code = random.choice((0x50, 0x52, 0x53, 0x54, 0x55, 0x56, 0x60, 0x70, 0x71, 0x72, 0x73,
                              0x74, 0x80, 0x81, 0x82, 0x83, 0x84, 0x94, 0x98))  # fmt: skip
        return Node(code, _number(random, _WIDTHS[code >> 4]))
    if what < 11:
        text = random.choice(_TEXTS)
        return Node(random.choice((0xA0, 0xA1, 0xA3)), bytes((len(text),)) + text)
    return Node(0xF0, random.choice(_ARRAYS))


def _replace(random: Random, nodes: list[Node]) -> None:
    node, other = random.choice(nodes[1:] or nodes), random_value(random)
    if node is not nodes[0]:
        node.code, node.content, node.inner = other.code, other.content, other.inner


def _copy(random: Random, nodes: list[Node]) -> None:
    """One value takes the place of another, unless it is inside it or the other way round."""
    node, other = random.choice(nodes), random.choice(nodes)
    if node is nodes[0] or other is nodes[0] or any(each is node for each in other.walk()):
        return
    other = other.copy()
    node.code, node.content, node.inner = other.code, other.content, other.inner


def _insert(random: Random, nodes: list[Node]) -> None:
    lists = [node.inner for node in nodes if node.inner is not None and node.code]
    inner = random.choice(lists)
    inner.insert(random.randrange(len(inner) + 1), random_value(random))


def _remove(random: Random, nodes: list[Node]) -> None:
    lists = [node.inner for node in nodes if node.inner and node.code]
    if lists:
        inner = random.choice(lists)
        inner.pop(random.randrange(len(inner)))


def _double(random: Random, nodes: list[Node]) -> None:
    lists = [node.inner for node in nodes if node.inner and node.code]
    if lists:
        inner = random.choice(lists)
        inner.insert(random.randrange(len(inner) + 1), random.choice(inner).copy())


def _fill(random: Random, nodes: list[Node]) -> None:
    """Another content of the same type."""
    leaves = [node for node in nodes if node.inner is None and node.code >> 4 != 4]
    if not leaves:
        return
    node = random.choice(leaves)
    category = node.code >> 4
    if category in _WIDTHS:
        node.content = _number(random, _WIDTHS[category])
    elif category in (0xA, 0xB):
        width = 4 if category == 0xB else 1
        old = node.content[width:]
        text = random.choice(_TEXTS) if random.random() < 0.6 else mutate_bytes(random, old)
        text = text[:255] if width == 1 else text
        node.content = len(text).to_bytes(width, "big") + text
    else:
        node.content = mutate_bytes(random, node.content)


def _nest(random: Random, nodes: list[Node]) -> None:
    """Put a value into so many others."""
    node = random.choice(nodes)
    if node is nodes[0]:
        return
    inner = Node(node.code, node.content, node.inner)
    described = random.random() < 0.3
    for _ in range(random.choice((1, 2, 30, 33, 60))):
        if described:
            inner = Node(0, inner=[Node(0x44), inner])
        else:
            inner = Node(0xC0, inner=[inner])
    node.code, node.content, node.inner = inner.code, inner.content, inner.inner


def _number(random: Random, width: int) -> bytes:
    if random.random() < 0.3:
        return random.randbytes(width)
    return (random.choice(NUMBERS) & (256**width - 1)).to_bytes(width, "big")


def _u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


_CHANGES: tuple[Callable[[Random, list[Node]], None], ...] = (
    _replace, _replace, _copy, _insert, _remove, _double, _fill, _fill, _fill, _nest,
)  # fmt: skip

_TEXTS = (
    b"", b"a", b"queue", b"topic", b"$management", b"$cbs", b"dynamic.x", b"a/b.c", b"#", b"*",
    b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b"x" * 255, b"amqp:data:binary", b"amqp:not-found",
    b"amqp:accepted:list", b"apache.org:selector-filter:string", b"a = 1", b"x-opt-x", b"\0",
    b"ann", b"copy", b"move", b"never", b"link-detach", b"PLAIN", b"TRANSFER", b"\x1b[31m",
)  # fmt: skip

# From the constructor's size on: of zero-width elements, of described ones, with nothing in them.
_ARRAYS = (
    _u32(5) + _u32(0xFFFFFFFF) + b"\x40",
    _u32(5) + _u32(70000) + b"\x41",
    _u32(8) + _u32(3) + b"\0\x53\x24\x45",
    _u32(7) + _u32(2) + b"\x50\x01\x02",
    _u32(5) + _u32(0) + b"\xa3",
    _u32(10) + _u32(1) + b"\xf0" + _u32(1) + b"\0",
)
