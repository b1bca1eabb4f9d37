"""Lists as clients ask for them: sorted, by name, in pages, with some columns."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

from ferrymq_broker.values.wildcards import pattern_codes, wildcards_match
from ferrymq_rabbitmq.definitions.name_patterns import (
    NoPatternError,
    name_patterns,
    wildcard_text,
)
from ferrymq_rabbitmq.management.request_refused import bad_request

ROWS: Final = 50
"""How many entries of a list are handled in one step."""
_PAGE_SIZE: Final = 100
_MOST_PAGE_SIZE: Final = 500
# The most columns that a request may name.
_MOST_COLUMNS: Final = 100

Item = Mapping[str, Any]


def arranged(items: Sequence[Item], query: Mapping[str, str]) -> object:
    """Return a list as the query of a request asks for it: a list, or a page of one. Raises
    `RequestRefused`."""
    found = list(items)
    total = len(found)
    name = query.get("name", "")
    if name:
        found = _named(found, name, query.get("use_regex") == "true")
    sort = query.get("sort")
    if sort:
        found.sort(key=lambda item: _key(_at(item, sort)))
        if query.get("sort_reverse") == "true":
            found.reverse()
    columns = [column for column in query.get("columns", "").split(",") if column]
    if len(columns) > _MOST_COLUMNS:
        raise bad_request(f"columns: at most {_MOST_COLUMNS} are possible")
    if "page" not in query:
        return [chosen(item, columns) for item in found]
    page = _number(query, "page", 1)
    size = min(_number(query, "page_size", _PAGE_SIZE), _MOST_PAGE_SIZE)
    count = max(1, -(-len(found) // size))
    if page > count:
        raise bad_request(f"page out of range: {page} of {count}")
    shown = [chosen(item, columns) for item in found[(page - 1) * size : page * size]]
    return {
        "filtered_count": len(found),
        "item_count": len(shown),
        "items": shown,
        "page": page,
        "page_count": count,
        "page_size": size,
        "total_count": total,
    }


def encoded_list(found: object) -> Generator[None, None, bytes]:
    """Encode the result of `arranged`, in steps if it is a list."""
    if not isinstance(found, list):
        return json.dumps(found).encode()
    encoded: list[str] = []
    for item in found:
        encoded.append(json.dumps(item))
        if len(encoded) % ROWS == 0:
            yield
    return f"[{','.join(encoded)}]".encode()


def decoded_list(data: bytes) -> Generator[None, None, list[Item]]:
    """Decode what `encoded_list` has made of a list, in steps."""
    text = data.decode()
    decoder = json.JSONDecoder()
    found: list[Item] = []
    at = 1
    while text[at] != "]":
        item, end = decoder.raw_decode(text, at)
        found.append(item)
        # Behind the item is a comma, or the end of the list.
        at = end + 1 if text[end] == "," else end
        if len(found) % ROWS == 0:
            yield
    return found


def chosen(item: Item, columns: Sequence[str]) -> Item:
    """Return an item with the columns only; a column such as ``a.b`` is inside of another one."""
    if not columns:
        return item
    found: dict[str, Any] = {}
    for column in columns:
        value = _at(item, column)
        if value is None:
            continue
        table = found
        *parts, last = column.split(".")
        for part in parts:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                break
            table = inner
        else:
            table[last] = value
    return found


def _named(items: list[Item], name: str, regular: bool) -> list[Item]:
    if not regular:
        folded = name.casefold()
        return [item for item in items if folded in str(item.get("name", "")).casefold()]
    # Python's own expressions may take a client of bad intent any time.
    try:
        patterns = [pattern_codes(wildcard_text(each)) for each in name_patterns(name)]
    except NoPatternError as error:
        raise bad_request(f"name: {error}") from None
    return [
        item
        for item in items
        if any(wildcards_match(codes, str(item.get("name", ""))) for codes in patterns)
    ]


def _at(item: Item, column: str) -> Any:
    value: Any = item
    for part in column.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _key(value: Any) -> tuple[int, Any]:
    """Return a key to sort by: numbers before texts, before everything else."""
    if isinstance(value, int | float):
        return 0, value
    return (1, value) if isinstance(value, str) else (2, repr(value))


def _number(query: Mapping[str, str], key: str, default: int) -> int:
    text = query.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) > 0):
        raise bad_request(f"{key}: {text[:40]!r} is no number above 0")
    return int(text)
