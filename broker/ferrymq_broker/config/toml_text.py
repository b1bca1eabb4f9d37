"""Values and tables as text in TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping


def toml_table(header: str, settings: Mapping[str, object]) -> list[str]:
    """Return the lines of a table, after an empty one."""
    return [
        "",
        header,
        *(f"{toml_key(key)} = {toml_value(value)}" for key, value in settings.items()),
    ]


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
