"""Values and tables as text in TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeGuard


def toml_table(header: str, settings: Mapping[str, object]) -> list[str]:
    """Return the lines of a table, after an empty one."""
    return [
        "",
        header,
        *(f"{toml_key(key)} = {toml_value(value)}" for key, value in settings.items()),
    ]


def toml_document(tables: Mapping[str, object], prefix: str = "") -> list[str]:
    """Return the lines of all tables in a map: maps and lists of maps. Other values are left out at
    the top; in a table they are its keys."""
    lines: list[str] = []
    for key, value in tables.items():
        path = f"{prefix}{toml_key(key)}"
        if isinstance(value, Mapping):
            lines += _table(f"[{path}]", path, value)
        elif _is_list_of_tables(value):
            for entry in value:
                lines += _table(f"[[{path}]]", path, entry)
    return lines


def _table(header: str, path: str, table: Mapping[str, object]) -> list[str]:
    inner = {key: value for key, value in table.items() if _is_list_of_tables(value)}
    if all(isinstance(value, Mapping) for value in table.values()):
        # A table of tables has no header of its own.
        return toml_document(table, f"{path}.") if table else ["", header]
    plain = {key: value for key, value in table.items() if key not in inner}
    return [*toml_table(header, plain), *toml_document(inner, f"{path}.")]


def _is_list_of_tables(value: object) -> TypeGuard[list[Mapping[str, object]]]:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)
    )


def toml_key(key: str) -> str:
    """Return a key, in quotes where TOML needs them."""
    bare = key and key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else toml_value(key)


def toml_value(value: object) -> str:
    """Return a value. A value of another type becomes an empty text."""
    if isinstance(value, str):
        # JSON leaves DEL as it is, which TOML does not allow.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        items = (f"{toml_key(str(key))} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {', '.join(items)} }}"
    return '""'
