"""Reads the TOML file, and says of every mistake where it is and what was probably meant."""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from types import UnionType
from typing import Union, get_args, get_origin

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
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        lines = [_explain(path, text, details) for details in error.errors()]
        raise ConfigError("\n".join(lines)) from None


def _explain(path: Path, text: str, details: ErrorDetails) -> str:
    location = details["loc"]
    line = _line_of(text, location)
    where = f"{path}:{line}" if line else f"{path}"
    name = ".".join(str(part) for part in location if isinstance(part, str))
    reason = details["msg"].removeprefix("Value error, ")
    if details["type"] == "extra_forbidden":
        key = str(location[-1])
        reason = f"unknown key {key!r}"
        close = difflib.get_close_matches(key, _keys_at(location[:-1]), n=1)
        if close:
            reason += f"; did you mean {close[0]!r}?"
        return f"{where}: {reason}"
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
