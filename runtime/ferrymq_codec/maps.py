"""Maps (AMQP 1.0 §1.6.23): with keys of any type, and with the keys that the sections allow.

Two identical keys are an error. An untyped map becomes a PairMap if it has keys that differ in AMQP
but not in Python, or keys that Python cannot hash. Many keys of one hash in one map are charged to
the Reader's budget, because keys can be crafted to collide.
"""

from __future__ import annotations

from typing import Any

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq_codec import codes
from ferrymq_codec.compound import begin_map, end_map
from ferrymq_codec.containers import PairMap
from ferrymq_codec.errors import EncodeError
from ferrymq_codec.limits import COLLISION_COST, FREE_COLLISIONS
from ferrymq_codec.reader import Reader
from ferrymq_codec.writer import write_string, write_symbol, write_ulong


def read_map(r: Reader, field: str) -> dict[object, object]:
    """Read a map with keys of any type into a dict.

    Raises DecodeError also where only a PairMap could hold the keys.
    """
    outer = r.end
    count = r.enter_map(field)
    value = read_pairs(r, count, outer, field)
    if isinstance(value, PairMap):
        r.fail(field, "keys that a dict cannot tell apart")
    return value


def read_pairs(r: Reader, count: i64, outer: i64, field: str) -> dict[object, object] | PairMap:
    """Read the content of a map that has been entered; `outer` is the `end` around it."""
    if count & 1 != 0:
        r.fail(field, f"map of {count} items: a key has no value")
    r.charge(count, field)
    result: dict[object, object] = {}
    hashes: dict[int, int] = {}
    i: i64 = 0
    while i < count:
        key = read_value(r, field)
        i += 2
        if type(key) is not str and type(key) is not bytes and not _fits(r, key, hashes, field):
            return _read_pair_map(r, result, key, (count - i) // 2, outer, field)
        if key in result:
            return _read_pair_map(r, result, key, (count - i) // 2, outer, field)
        result[key] = read_value(r, field)
    r.leave(outer, field)
    return result


def _fits(r: Reader, key: object, hashes: dict[int, int], field: str) -> bool:
    # Return whether a dict can hold the key. Strings are hashed with a secret, these are not.
    try:
        number = hash(key)
    except TypeError:
        return False
    before = hashes.get(number, 0)
    if before >= FREE_COLLISIONS:
        r.charge(COLLISION_COST, field)
    hashes[number] = before + 1
    # The search for duplicates would not find a key that is not equal to itself (NaN).
    return bool(key == key)


def _read_pair_map(
    r: Reader, earlier: dict[object, object], key: object, left: i64, outer: i64, field: str
) -> PairMap:
    # Identical keys have identical canonical encodings, and bytes are safe to hash.
    pairs = list(earlier.items())
    seen: set[bytes] = {_canonical(pair[0], field) for pair in pairs}
    while True:
        identity = _canonical(key, field)
        if identity in seen:
            r.fail(field, f"duplicate key {key!r:.80}")
        seen.add(identity)
        pairs.append((key, read_value(r, field)))
        if left == 0:
            break
        left -= 1
        key = read_value(r, field)
    r.leave(outer, field)
    return PairMap(pairs)


def _canonical(key: object, field: str) -> bytes:
    w = BytesWriter()
    write_value(w, key, field)
    return w.getvalue()


def write_map(w: BytesWriter, value: dict[object, object], field: str) -> None:
    """Append a map with keys of any type; raises EncodeError."""
    write_value(w, value, field)


def read_symbol_map(r: Reader, field: str) -> dict[str, object]:
    """Read a map whose keys are symbols, such as `fields` (AMQP 1.0 §2.8.12).

    An ASCII string is read as a symbol: some clients write strings there.
    """
    outer = r.end
    count = r.enter_map(field)
    r.charge(count, field)
    result: dict[str, object] = {}
    i: i64 = 0
    while i < count:
        key = r.read_symbol_key(field)
        if key in result:
            r.fail(field, f"duplicate key {key!r:.80}")
        result[key] = read_value(r, field)
        i += 2
    r.leave(outer, field)
    return result


def write_symbol_map(w: BytesWriter, value: dict[Any, object], field: str) -> None:
    """Append a map whose keys are symbols (AMQP 1.0 §2.8.12); raises EncodeError."""
    mark = begin_map(w)
    for key, item in value.items():
        if not isinstance(key, str):
            raise EncodeError(field, f"the key {key!r:.80} is not a symbol")
        write_symbol(w, key, field)
        write_nested(w, item, field, 1)
    end_map(w, mark, 2 * len(value))


def read_annotations(r: Reader, field: str) -> dict[str | int, object]:
    """Read a map whose keys are symbols or ulongs (AMQP 1.0 §3.2.10), as plain str or int.

    ASCII strings are read as symbols, as in `read_symbol_map`.
    """
    outer = r.end
    count = r.enter_map(field)
    r.charge(count, field)
    result: dict[str | int, object] = {}
    i: i64 = 0
    while i < count:
        key: str | int
        code = r.peek_code(field)
        if code == codes.SYMBOL8 or code == codes.SYMBOL32:
            key = r.read_symbol(field)
        elif code == codes.STRING8 or code == codes.STRING32:
            key = r.read_symbol_key(field)
        elif code == codes.SMALL_ULONG or code == codes.ULONG or code == codes.ULONG0:
            key = r.read_ulong(field)
        else:
            r.fail(field, f"a key is a symbol or a ulong, not {codes.describe_code(code)}")
        if key in result:
            r.fail(field, f"duplicate key {key!r:.80}")
        result[key] = read_value(r, field)
        i += 2
    r.leave(outer, field)
    return result


def write_annotations(w: BytesWriter, value: dict[Any, object], field: str) -> None:
    """Append a map whose str keys are symbols and whose int keys are ulongs (AMQP 1.0 §3.2.10)."""
    mark = begin_map(w)
    for key, item in value.items():
        if isinstance(key, str):
            write_symbol(w, key, field)
        elif isinstance(key, int) and key is not True and key is not False:
            write_ulong(w, key, field)
        else:
            raise EncodeError(field, f"the key {key!r:.80} is neither a symbol nor a ulong")
        write_nested(w, item, field, 1)
    end_map(w, mark, 2 * len(value))


def read_string_map(r: Reader, field: str) -> dict[str, object]:
    """Read a map of strings to simple values: the application properties (AMQP 1.0 §3.2.5).

    Raises DecodeError for a value that is a map, a list, an array or described.
    """
    outer = r.end
    count = r.enter_map(field)
    r.charge(count, field)
    result: dict[str, object] = {}
    i: i64 = 0
    while i < count:
        key = r.read_string(field)
        if key in result:
            r.fail(field, f"duplicate key {key!r:.80}")
        code = r.peek_code(field)
        if code >= codes.COMPOUND_1 or code == codes.DESCRIBED or code == codes.LIST0:
            r.fail(field, f"the value of {key!r:.80} is not simple: {codes.describe_code(code)}")
        result[key] = read_value(r, field)
        i += 2
    r.leave(outer, field)
    return result


def write_string_map(w: BytesWriter, value: dict[Any, object], field: str) -> None:
    """Append a map of strings to simple values (AMQP 1.0 §3.2.5); raises EncodeError."""
    mark = begin_map(w)
    for key, item in value.items():
        if not isinstance(key, str):
            raise EncodeError(field, f"the key {key!r:.80} is not a string")
        write_string(w, key, field)
        at: i64 = len(w)
        write_nested(w, item, field, 1)
        code = i64(w[at])
        if code >= codes.COMPOUND_1 or code == codes.DESCRIBED or code == codes.LIST0:
            raise EncodeError(
                field, f"the value of {key!r:.80} is not simple: {codes.describe_code(code)}"
            )
    end_map(w, mark, 2 * len(value))


# The modules import each other: a value may be a map, whose keys and values may be any value.
from ferrymq_codec.value_reader import read_value  # noqa: E402
from ferrymq_codec.value_writer import write_nested, write_value  # noqa: E402
