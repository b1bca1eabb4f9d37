"""A checker of the pages of LMDB's file that does not use LMDB. Use it through `lmdb_file`.

LMDB trusts the content of its pages: a process that reads a damaged one may crash or hang. So this
module checks every reachable page before LMDB opens the file: its number, its kind, the places of
its nodes, the order of its keys, the number of pages and records, and the checksum of each value.
No number in the file is trusted.

The format (version 1, little-endian; the same since LMDB 0.9.0):

    page    number u64 | pad u16 | flags u16 | lower u16 | upper u16 | offsets of nodes u16 …
    node    size u32 (leaf) or page u48 (branch) | flags u16 | key size u16 | key | value
    tree    pad u32 | flags u16 | depth u16 | branch, leaf, overflow pages, entries, root u64
    meta    page head | magic u32 | version u32 | address u64 | map size u64
            | tree of free pages | tree of records | last page u64 | transaction u64
"""

from __future__ import annotations

import os
import struct
from typing import Any, Final, final

import google_crc32c
from librt.strings import read_i16_le, read_i64_be, read_i64_le
from mypy_extensions import i64

from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.keys import KEY_BYTES, describe_key

PAGE_HEAD_BYTES: Final = 16
_NODE_HEAD: Final = 8
NODE_BYTES: Final = _NODE_HEAD + 2
"""Bytes that a node takes besides its key and value: its head, and the offset that leads to it."""

_BRANCH: Final = 0x01
_LEAF: Final = 0x02
_OVERFLOW: Final = 0x04
_META: Final = 0x08

_BIG: Final = 0x01

_NO_PAGE: Final = -1
# The most consecutive pages that are read together.
_AHEAD: Final = 64
_MAX_DEPTH: Final = 32

_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<QHHI")
_META_HEAD: Final = struct.Struct("<IIQQ")
_TREE: Final = struct.Struct("<IHHQQQQq")
_META_TAIL: Final = struct.Struct("<QQ")

# The allowed flag of the tree of free pages: its keys are numbers.
_INTEGER_KEYS: Final = 0x08

_crc: Final[Any] = google_crc32c.value
_extend_crc: Final[Any] = google_crc32c.extend


@final
class Tree:
    """One of the two trees, as its meta page describes it."""

    __slots__ = ("flags", "depth", "branches", "leaves", "overflows", "entries", "root")

    def __init__(self, data: bytes, offset: int) -> None:
        _, flags, depth, branches, leaves, overflows, entries, root = _TREE.unpack_from(
            data, offset
        )
        self.flags: int = flags
        self.depth: int = depth
        self.branches: int = branches
        self.leaves: int = leaves
        self.overflows: int = overflows
        self.entries: int = entries
        self.root: int = root


@final
class PageFile:
    """LMDB's file, read page by page. `values` says whether checksums of values are checked. All
    methods raise `StoreDamaged` with what is wrong, and `OSError`."""

    __slots__ = (
        "path",
        "page_bytes",
        "last_page",
        "free",
        "records",
        "_descriptor",
        "_size",
        # State of the walk: the pages to visit, and counts of what was visited.
        "_stack",
        "_before",
        "_branches",
        "_leaves",
        "_overflows",
        "_entries",
        "_listed",
        "_lists",
        "_values",
        "_ahead",
        "_ahead_at",
        "transaction",
    )

    def __init__(self, path: str, values: bool = True) -> None:
        self.path: str = path
        self._values = values
        # Pages read ahead, and the number of the first.
        self._ahead = b""
        self._ahead_at: i64 = 0
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self._size: i64 = os.fstat(self._descriptor).st_size
        # Pages to be read, each with its depth and the limits of its keys: lowest, and end.
        self._stack: list[tuple[int, int, bytes, bytes | None]] = []
        self._before = b""
        self._branches: i64 = 0
        self._leaves: i64 = 0
        self._overflows: i64 = 0
        self._entries: i64 = 0
        # The number of free pages listed.
        self._listed: i64 = 0
        # Transactions and the pages each has freed; None if they are not collected.
        self._lists: list[tuple[int, list[int]]] | None = None
        # The last transaction.
        self.transaction: int = 0
        self.page_bytes: i64 = 0
        self.last_page: i64 = 0
        try:
            self._read_metas()
        except BaseException:
            os.close(self._descriptor)
            raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    # -- meta pages --------------------------------------------------------------------------

    def _read_metas(self) -> None:
        first = os.pread(self._descriptor, 4096, 0)
        if len(first) < 160:
            raise self._wrong(f"the file has only {self._size} bytes")
        self._check_meta(first, 0)
        page_bytes: int = struct.unpack_from("<I", first, 40)[0]
        if page_bytes < 512 or page_bytes > 65536 or page_bytes & (page_bytes - 1):
            raise self._wrong("page 0 has an invalid page size")
        self.page_bytes = page_bytes
        second = os.pread(self._descriptor, page_bytes, page_bytes)
        if len(second) < page_bytes:
            raise self._wrong(f"the file was cut off: it has only {self._size} bytes")
        self._check_meta(second, 1)
        if struct.unpack_from("<I", second, 40)[0] != page_bytes:
            raise self._wrong("pages 0 and 1 have different page sizes")
        last_0, txn_0 = _META_TAIL.unpack_from(first, 136)
        last_1, txn_1 = _META_TAIL.unpack_from(second, 136)
        # Transactions with an even number are described by page 0, the others by page 1.
        if (txn_0 | txn_1) and (txn_0 & 1 or not txn_1 & 1 or abs(txn_0 - txn_1) != 1):
            if not (txn_0 == 0 and txn_1 == 1):
                raise self._wrong("pages 0 and 1 do not show which transaction was the last")
        newest = first if txn_0 >= txn_1 else second
        self.transaction = max(txn_0, txn_1)
        self.last_page = last_0 if txn_0 >= txn_1 else last_1
        if self.last_page < 1:
            raise self._wrong("the meta page has an invalid number of the last page")
        self.free: Tree = Tree(newest, 40)
        self.records: Tree = Tree(newest, 88)
        if self.free.flags & ~_INTEGER_KEYS or self.records.flags:
            raise self._wrong("the meta page names trees of a kind that ferrymq does not use")

    def _check_meta(self, page: bytes, number: int) -> None:
        said, _, flags, _ = _HEAD.unpack_from(page)
        magic, version, _, _ = _META_HEAD.unpack_from(page, PAGE_HEAD_BYTES)
        if said != number or not flags & _META or magic != _MAGIC or version != _VERSION:
            raise self._wrong(f"page {number} is not a meta page of LMDB")

    # -- walking -----------------------------------------------------------------------------

    def check_free(self) -> None:
        """Check the whole tree of free pages."""
        self._begin(self.free)
        while not self._step(self.free, False):
            pass

    def free_pages(self) -> list[tuple[int, list[int]]]:
        """Return the pages that the next transaction may use, by the transaction that freed them.
        Pages freed by the last transaction are left out: they are needed if it is not on disk."""
        lists: list[tuple[int, list[int]]] = []
        self._lists = lists
        self.check_free()
        self._lists = None
        return [one for one in lists if one[0] < self.transaction]

    def free_map(self) -> bytearray:
        """Return a bit for each page, the lowest of a byte first, set if the page is free."""
        free = bytearray(self.last_page // 8 + 1)
        self._lists = []
        self._begin(self.free)
        done = False
        while not done:
            done = self._step(self.free, False)
            for _, pages in self._lists:
                for number in pages:
                    page: i64 = number
                    free[page >> 3] |= 1 << (page & 7)
            self._lists = []
        self._lists = None
        return free

    def begin_records(self) -> None:
        """Start at the tree of records, after `check_free`."""
        self._begin(self.records)

    def check_records(self, pages: int) -> bool:
        """Check some more pages of the tree of records. Return whether all are checked."""
        for _ in range(pages):
            if self._step(self.records, True):
                # Every page is a meta page, in a tree, or free.
                used = 2 + self._listed
                for tree in (self.free, self.records):
                    used += tree.branches + tree.leaves + tree.overflows
                if used != self.last_page + 1:
                    raise self._wrong(
                        f"{used} of its pages are in use or free, but it has "
                        f"{self.last_page + 1} pages"
                    )
                return True
        return False

    @property
    def seen(self) -> int:
        """The number of records checked."""
        return self._entries

    def _begin(self, tree: Tree) -> None:
        self._before = b""
        self._branches = self._leaves = self._overflows = self._entries = 0
        self._stack = []
        if tree.depth > _MAX_DEPTH:
            raise self._wrong(
                f"the meta page says that a tree is {tree.depth} pages deep, which is too much"
            )
        if tree.root != _NO_PAGE:
            self._stack.append((tree.root, 1, b"", None))

    def _step(self, tree: Tree, is_records: bool) -> bool:
        """Check the next page. Return whether there was none left."""
        if not self._stack:
            if (
                self._branches != tree.branches
                or self._leaves != tree.leaves
                or self._overflows != tree.overflows
                or self._entries != tree.entries
            ):
                raise self._wrong(
                    f"a tree with {self._entries} entries has other numbers of entries or "
                    f"pages than its meta page says ({tree.entries} entries)"
                )
            return True
        number, depth, low, high = self._stack.pop()
        page = self._read(number, 1)
        flags: i64 = i64(read_i16_le(page, 10)) & 0xFFFF
        is_leaf = depth == tree.depth
        if flags != (_LEAF if is_leaf else _BRANCH):
            raise self._bad_page(number)
        lower: i64 = i64(read_i16_le(page, 12)) & 0xFFFF
        upper: i64 = i64(read_i16_le(page, 14)) & 0xFFFF
        # An upper end of 65536 is stored as 0.
        if lower < PAGE_HEAD_BYTES or lower & 1 or lower > upper or upper > self.page_bytes:
            raise self._bad_page(number)
        nodes: i64 = (lower - PAGE_HEAD_BYTES) // 2
        if is_leaf:
            self._leaves += 1
            whole = self._values or not is_records
            if whole or not self._check_shape(number, page, nodes, upper, low, high):
                self._check_leaf(number, page, nodes, upper, low, high, is_records)
        else:
            self._branches += 1
            self._check_branch(number, page, nodes, upper, depth, low, high, is_records)
        if self._leaves + self._branches > self.last_page:
            raise self._wrong("the pages of a tree form a circle")
        return False

    def _check_branch(
        self,
        number: int,
        page: bytes,
        nodes: i64,
        upper: i64,
        depth: int,
        low: bytes,
        high: bytes | None,
        is_records: bool,
    ) -> None:
        if nodes < 2:
            raise self._bad_page(number)
        children: list[tuple[int, int, bytes, bytes | None]] = []
        before = low
        index: i64 = nodes - 1
        keys: list[bytes] = []
        pages: list[int] = []
        at_index: i64 = 0
        while at_index < nodes:
            at: i64 = i64(read_i16_le(page, PAGE_HEAD_BYTES + 2 * at_index)) & 0xFFFF
            if at < upper or at & 1 or at + _NODE_HEAD > self.page_bytes:
                raise self._bad_page(number)
            key_bytes: i64 = i64(read_i16_le(page, at + 6)) & 0xFFFF
            if at + _NODE_HEAD + key_bytes > self.page_bytes:
                raise self._bad_page(number)
            # The first key of a branch is not stored: it is the lower limit.
            key = page[at + _NODE_HEAD : at + _NODE_HEAD + key_bytes] if at_index else low
            if at_index and is_records and (key <= before or (high is not None and key >= high)):
                raise self._bad_page(number)
            before = key
            keys.append(key)
            pages.append(
                i64(read_i16_le(page, at)) & 0xFFFF
                | (i64(read_i16_le(page, at + 2)) & 0xFFFF) << 16
                | (i64(read_i16_le(page, at + 4)) & 0xFFFF) << 32
            )
            at_index += 1
        end = high
        while index >= 0:
            children.append((pages[index], depth + 1, keys[index], end))
            end = keys[index]
            index -= 1
        self._stack += children

    def _check_leaf(
        self,
        number: int,
        page: bytes,
        nodes: i64,
        upper: i64,
        low: bytes,
        high: bytes | None,
        is_records: bool,
    ) -> None:
        index: i64 = 0
        while index < nodes:
            at: i64 = i64(read_i16_le(page, PAGE_HEAD_BYTES + 2 * index)) & 0xFFFF
            index += 1
            if at < upper or at & 1 or at + _NODE_HEAD > self.page_bytes:
                raise self._bad_page(number)
            size: i64 = (
                i64(read_i16_le(page, at)) & 0xFFFF
                | (i64(read_i16_le(page, at + 2)) & 0xFFFF) << 16
            )
            flags: i64 = i64(read_i16_le(page, at + 4)) & 0xFFFF
            begin: i64 = at + _NODE_HEAD
            value_at: i64 = begin + (i64(read_i16_le(page, at + 6)) & 0xFFFF)
            end: i64 = value_at + (8 if flags == _BIG else size)
            if flags & ~_BIG or end > self.page_bytes:
                raise self._bad_page(number)
            key = page[begin:value_at]
            if flags == _BIG:
                value = self._read_overflow(read_i64_le(page, value_at), size)
            else:
                value = page[value_at:end]
            self._entries += 1
            if is_records:
                if key <= self._before and self._entries > 1:
                    raise self._bad_page(number)
                if key < low or (high is not None and key >= high):
                    raise self._bad_page(number)
                self._before = key
                crc: int = _extend_crc(_crc(key), value[4:])
                if crc.to_bytes(4, "big") != value[:4]:
                    raise self._wrong(f"{describe_key(key)} is damaged: its checksum is wrong")
            else:
                self._check_list(number, key, value)

    def _check_shape(
        self, number: int, page: bytes, nodes: i64, upper: i64, low: bytes, high: bytes | None
    ) -> bool:
        """Check a leaf without its values. Return false, without an effect, if the page does not
        look like a page of records: then `_check_leaf` must check it."""
        end_of_page = self.page_bytes
        big: list[tuple[int, int]] = []
        first = b""
        last = b""
        table_before: i64 = -1
        id_before: i64 = 0
        number_before: i64 = 0
        taken: i64 = 0
        index: i64 = 0
        while index < nodes:
            at: i64 = i64(read_i16_le(page, PAGE_HEAD_BYTES + 2 * index)) & 0xFFFF
            if at < upper or at & 1 or at + _NODE_HEAD + KEY_BYTES > end_of_page:
                return False
            if i64(read_i16_le(page, at + 6)) != KEY_BYTES:
                return False
            size: i64 = (
                i64(read_i16_le(page, at)) & 0xFFFF
                | (i64(read_i16_le(page, at + 2)) & 0xFFFF) << 16
            )
            flags: i64 = i64(read_i16_le(page, at + 4))
            begin: i64 = at + _NODE_HEAD
            value_at: i64 = begin + KEY_BYTES
            table: i64 = i64(page[begin])
            id = read_i64_be(page, begin + 1)
            record = read_i64_be(page, begin + 9)
            if id < 0 or record < 0:
                return False
            if table <= table_before:
                if table < table_before or id < id_before:
                    return False
                if id == id_before and record <= number_before:
                    return False
            table_before = table
            id_before = id
            number_before = record
            if flags == _BIG:
                if value_at + 8 > end_of_page:
                    return False
                big.append((read_i64_le(page, value_at), size))
                size = 8
            elif flags != 0 or value_at + size > end_of_page:
                return False
            # Nodes begin at even offsets, without gaps between them.
            taken += (_NODE_HEAD + KEY_BYTES + size + 1) & ~1
            if index == 0:
                first = page[begin:value_at]
            index += 1
            if index == nodes:
                last = page[begin:value_at]
        if nodes == 0 or taken != end_of_page - upper:
            return False
        if (self._entries > 0 and first <= self._before) or first < low:
            return False
        if high is not None and last >= high:
            return False
        for begin_page, value_bytes in big:
            self._check_overflow(begin_page, value_bytes)
        self._before = last
        self._entries += nodes
        return True

    def _check_overflow(self, number: int, size: i64) -> None:
        """Check the head of the pages that hold one large value."""
        count = (PAGE_HEAD_BYTES - 1 + size) // self.page_bytes + 1
        if number < 2 or number + count - 1 > self.last_page:
            raise self._wrong(f"it refers to page {number}, which does not exist")
        if (number + count) * self.page_bytes > self._size:
            raise self._wrong(
                f"the file was cut off: it has {self._size} bytes and ends before page {number}"
            )
        head = os.pread(self._descriptor, PAGE_HEAD_BYTES, number * self.page_bytes)
        said, _, flags, pages = _HEAD.unpack(head)
        if said != number or flags != _OVERFLOW or pages != count:
            raise self._bad_page(number)
        self._overflows += count

    def _check_list(self, number: int, key: bytes, value: bytes) -> None:
        """Check the list of pages that a transaction has freed: their count, then each."""
        if len(key) != 8 or len(value) < 8 or len(value) & 7:
            raise self._bad_page(number)
        count = read_i64_le(value, 0)
        if count < 0 or 8 * (count + 1) > len(value):
            raise self._bad_page(number)
        before: i64 = self.last_page + 1
        index: i64 = 1
        pages: list[int] = []
        while index <= count:
            page = read_i64_le(value, 8 * index)
            if page < 2 or page >= before:
                raise self._bad_page(number)
            before = page
            index += 1
            if self._lists is not None:
                pages.append(page)
        if self._lists is not None:
            self._lists.append((read_i64_le(key, 0), pages))
        self._listed += count

    def _read_overflow(self, number: int, size: i64) -> bytes:
        count = (PAGE_HEAD_BYTES - 1 + size) // self.page_bytes + 1
        data = self._read(number, count)
        _, _, flags, pages = _HEAD.unpack_from(data)
        if flags != _OVERFLOW or pages != count:
            raise self._bad_page(number)
        self._overflows += count
        return data[PAGE_HEAD_BYTES : PAGE_HEAD_BYTES + size]

    def _read(self, number: int, count: i64) -> bytes:
        """Read consecutive pages and check that the first one has the number `number`."""
        if number < 2 or number + count - 1 > self.last_page:
            raise self._wrong(f"it refers to page {number}, which does not exist")
        size = count * self.page_bytes
        if count == 1:
            data = self._read_ahead(number)
        else:
            data = os.pread(self._descriptor, size, number * self.page_bytes)
        if len(data) != size:
            raise self._wrong(
                f"the file was cut off: it has {self._size} bytes and ends before page {number}"
            )
        if read_i64_le(data, 0) != number:
            raise self._bad_page(number)
        return data

    def _read_ahead(self, number: int) -> bytes:
        """Read a page, together with the pages to be checked next if they follow it."""
        size = self.page_bytes
        at = i64(number) - self._ahead_at
        if at < 0 or at >= i64(len(self._ahead)) // size:
            stack = self._stack
            count: i64 = 1
            index: i64 = len(stack) - 1
            while index >= 0 and count < _AHEAD and i64(stack[index][0]) == number + count:
                count += 1
                index -= 1
            self._ahead = os.pread(self._descriptor, count * size, number * size)
            self._ahead_at = number
            at = 0
        return self._ahead[at * size : (at + 1) * size]

    def _bad_page(self, number: int) -> StoreDamaged:
        return self._wrong(f"page {number} is damaged")

    def _wrong(self, what: str) -> StoreDamaged:
        return StoreDamaged(f"{self.path}: {what}")
