"""Reads the TOML file, and says of every mistake where it is and what was probably meant."""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ferrymq_broker.config.model import Config
from ferrymq_broker.errors import ConfigError

_TABLE = re.compile(r"^\s*\[\[?\s*([^\]#]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_.\"'-]+)\s*=")


def load_config(path: Path) -> Config:
    """The configuration in `path`. Raises `ConfigError` with one line for each mistake."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: the file is not UTF-8") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        found = re.search(r" \(at line (\d+), column \d+\)$", message)
        if found is not None:
            raise ConfigError(f"{path}:{found[1]}: {message[: found.start()]}") from None
        raise ConfigError(f"{path}: {message}") from None
    lines = [
        f"{_place(path, text, location)}: {_unknown(location)}" for location in _underscored(data)
    ]
    config = None
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        lines += [_explain(path, text, details) for details in error.errors()]
    if config is None or lines:
        raise ConfigError("\n".join(lines))
    return config


def _underscored(table: dict[str, Any]) -> list[tuple[int | str, ...]]:
    """Keys written as in Python, which pydantic would take and a reader would trip over."""
    found: list[tuple[int | str, ...]] = [(key,) for key in table if "_" in key]
    for name, inner in table.items():
        tables = enumerate(inner) if isinstance(inner, list) else [(-1, inner)]
        for index, item in tables:
            if isinstance(item, dict):
                own = {key: value for key, value in item.items() if key != "users"}
                before = (name,) if index < 0 else (name, index)
                found += [(*before, *location) for location in _underscored(own)]
    return found


def _place(path: Path, text: str, location: tuple[int | str, ...]) -> str:
    line = _line_of(text, location)
    return f"{path}:{line}" if line else f"{path}"


def _unknown(location: tuple[int | str, ...]) -> str:
    key = str(location[-1])
    close = difflib.get_close_matches(key, _keys_at(location[:-1]), n=1)
    return f"unknown key {key!r}" + (f"; did you mean {close[0]!r}?" if close else "")


def _explain(path: Path, text: str, details: ErrorDetails) -> str:
    location = details["loc"]
    where = _place(path, text, location)
    name = ".".join(str(part) for part in location if isinstance(part, str))
    reason = details["msg"].removeprefix("Value error, ")
    if details["type"] == "extra_forbidden":
        return f"{where}: {_unknown(location)}"
    return f"{where}: {name}: {reason}" if name else f"{where}: {reason}"


def _keys_at(location: tuple[int | str, ...]) -> list[str]:
    """The keys allowed in the table at `location`."""
    model: type[BaseModel] = Config
    for part in location:
        if isinstance(part, int):
            continue
        for field in model.model_fields.values():
            if field.alias == part:
                found = _model_in(field.annotation)
                if found is None:
                    return []
                model = found
                break
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (list, Union, UnionType):
        for argument in get_args(annotation):
            found = _model_in(argument)
            if found is not None:
                return found
    return None


def _line_of(text: str, location: tuple[int | str, ...]) -> int:
    """The line of a key, found by reading the tables and keys in order; 0 if it is not found."""
    tables: dict[str, int] = {}
    wanted = _plain(location)
    best = 0
    current: list[int | str] = []
    for number, line in enumerate(text.splitlines(), 1):
        table = _TABLE.match(line)
        if table is not None:
            names = [part.strip().strip("\"'") for part in table[1].split(".")]
            current = list(names)
            if line.lstrip().startswith("[["):
                index = tables.get(table[1], -1) + 1
                tables[table[1]] = index
                current.append(index)
            if _plain(tuple(current)) == wanted[: len(current)]:
                best = number
            continue
        key = _KEY.match(line)
        if key is not None:
            names = [part.strip().strip("\"'") for part in key[1].split(".")]
            path = _plain((*current, *names))
            if path == wanted[: len(path)]:
                best = number
                if path == wanted:
                    return number
    return best


def _plain(location: tuple[int | str, ...]) -> tuple[str, ...]:
    return tuple(str(part) for part in location)
