"""Reads the TOML file, and reports each mistake with its line and a suggestion."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ferrymq_broker.config.errors import ConfigError, ConfigMistake, ConfigMistakes, Location
from ferrymq_broker.config.model import Config
from ferrymq_broker.config.paths import FOLDER
from ferrymq_broker.config.section import kebab
from ferrymq_broker.config.source_locations import SourceLocations

# The text about a wrong key or value is cut to this many characters.
_MOST = 500
# The highest number of mistakes that are reported at once.
_MOST_LINES = 100


class Problem(NamedTuple):
    """A mistake in a file; `line` is 0 if no line is known for it."""

    line: int
    reason: str


class BadFile(ConfigError):
    """A file that cannot be used. The message has a line for each of the first `problems`."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        lines = [
            f"{path}:{line}: {reason}" if line else f"{path}: {reason}"
            for line, reason in problems[:_MOST_LINES]
        ]
        if len(problems) > _MOST_LINES:
            lines.append(f"{path}: and {len(problems) - _MOST_LINES} more mistakes")
        super().__init__("\n".join(lines))
        self.problems = problems

    @classmethod
    def of(cls, path: Path, places: SourceLocations, mistakes: list[ConfigMistake]) -> BadFile:
        """Make the error for a valid file that does not fit other files or the store."""
        return cls(path, sorted(_collision(places, mistake) for mistake in mistakes))


def load_config(path: Path, data: Path | None = None) -> Config:
    """Read the configuration in `path`. `data` overrides the directory of the store if it is given.

    Raises `ConfigError` with one line for each mistake.
    """
    return load_with_places(path, data)[0]


class LoadedConfig(NamedTuple):
    """A configuration with its file and the lines of its keys. Options of the command line may have
    replaced some of its values."""

    path: Path
    config: Config
    places: SourceLocations

    def bad(self, mistakes: list[ConfigMistake]) -> BadFile:
        """Return the error for a valid file that does not fit other files or the broker."""
        return BadFile.of(self.path, self.places, mistakes)


def load_with_places(path: Path, data: Path | None = None) -> tuple[Config, SourceLocations]:
    """Read the configuration and the lines of its keys. Raises `BadFile`."""
    said, places = read_tables(path)
    problems = [
        Problem(places.line(location), _unknown(location))
        for location in _underscored(said, Config, ())
    ]
    if data is not None and isinstance(said.setdefault("store", {}), dict):
        said["store"]["path"] = str(data.absolute())
    config = None
    try:
        config = Config.model_validate(said, context={FOLDER: path.parent})
    except ValidationError as error:
        problems += problems_of(places, error)
    if config is None or problems:
        # Remove equal texts, because pydantic reports a value of a union for each member of the
        # union.
        raise BadFile(path, sorted(dict.fromkeys(problems)))
    return config, places


def problems_of(places: SourceLocations, error: ValidationError) -> list[Problem]:
    """Return the mistakes that a validation has found, with their lines."""
    return [problem for details in error.errors() for problem in _explain(places, details)]


def read_tables(path: Path) -> tuple[dict[str, Any], SourceLocations]:
    """Read the tables of a TOML file, and the lines of its keys; or those of a JSON file, whose
    name ends so, without lines. Raises `BadFile`."""
    if path.suffix == ".json":
        return _read_json(path, _read_text(path)), SourceLocations("")
    return read_toml(path)


def read_toml(path: Path) -> tuple[dict[str, Any], SourceLocations]:
    """Read the tables of a TOML file, and the lines of its keys. Raises `BadFile`."""
    text = _read_text(path)
    try:
        said = tomllib.loads(text)
    except ValueError as error:
        # Valid TOML can fail too: a number may have too many digits.
        message = str(error)
        found = re.search(r" \(at line (\d+), column \d+\)$", message)
        if found is None:
            raise BadFile(path, [Problem(0, message)]) from None
        raise BadFile(path, [Problem(int(found[1]), message[: found.start()])]) from None
    except RecursionError:
        raise BadFile(path, [Problem(0, "tables and arrays are nested too deeply")]) from None
    return said, SourceLocations(text)


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise BadFile(path, [Problem(0, error.strerror or str(error))]) from None
    except UnicodeDecodeError:
        raise BadFile(path, [Problem(0, "the file is not UTF-8")]) from None


def _read_json(path: Path, text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadFile(path, [Problem(error.lineno, error.msg)]) from None
    except (ValueError, RecursionError):
        raise BadFile(path, [Problem(0, "it is not valid JSON")]) from None
    if not isinstance(said, dict):
        raise BadFile(path, [Problem(0, "it must be a JSON object")])
    return said


def _explain(places: SourceLocations, details: ErrorDetails) -> list[Problem]:
    location = details["loc"]
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, ConfigMistakes):
        return [_collision(places, mistake) for mistake in cause.found]
    line = places.line(location)
    if details["type"] == "extra_forbidden":
        return [Problem(line, _unknown(location))]
    reason = details["msg"].removeprefix("Value error, ").replace("\n", " ")
    name = _dotted(location)
    return [Problem(line, f"{name}: {reason}"[:_MOST] if name else reason[:_MOST])]


def _collision(places: SourceLocations, mistake: ConfigMistake) -> Problem:
    reason = mistake.reason
    name = _dotted(mistake.location)
    if mistake.other is not None:
        reason += f"; the other is on line {places.line(mistake.other)}"
    return Problem(places.line(mistake.location), f"{name}: {reason}"[:_MOST])


def _dotted(location: Location) -> str:
    """Return the keys of a location, without indexes and members of unions."""
    model: object = Config
    keys: list[str] = []
    for part in location:
        if isinstance(part, int):
            continue
        inner = _inner(model, part)
        if inner is None and keys and not _is_table(model):
            break
        keys.append(part)
        model = inner
    return ".".join(keys)


def _unknown(location: Location) -> str:
    key = str(location[-1])
    close = difflib.get_close_matches(key, _keys_at(location[:-1]), n=1)
    return f"unknown key {key[:100]!r}" + (f"; did you mean {close[0]!r}?" if close else "")


def _underscored(data: object, model: object, location: Location) -> Iterator[Location]:
    """Yield keys with underscores: pydantic accepts them, but the file uses dashes."""
    if isinstance(data, list):
        for at, item in enumerate(data):
            yield from _underscored(item, model, (*location, at))
    elif isinstance(data, Mapping):
        table = _model_in(model)
        for key, value in data.items():
            here = (*location, key)
            if table is not None and "_" in key and kebab(key) in _keys_of(table):
                yield here
            inner = _inner(model, key)
            if inner is not None:
                yield from _underscored(value, inner, here)


def _keys_at(location: Location) -> list[str]:
    """Return the keys that are allowed in the table at `location`."""
    model: object = Config
    for part in location:
        if isinstance(part, str):
            model = _inner(model, part)
    table = _model_in(model)
    return [] if table is None else _keys_of(table)


def _keys_of(model: type[BaseModel]) -> list[str]:
    return [kebab(name) for name in model.model_fields]


def _is_table(annotation: object) -> bool:
    return _model_in(annotation) is not None or get_origin(annotation) is dict


def _inner(annotation: object, key: str) -> object:
    """Return the type of this key's value in a table of this type; None if unknown."""
    model = _model_in(annotation)
    if model is not None:
        field = model.model_fields.get(key.replace("-", "_"))
        return None if field is None else field.annotation
    for each in _unwrapped(annotation):
        if get_origin(each) is dict:
            return get_args(each)[1]
    return None


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the table type that this type is, or that its list has."""
    for each in _unwrapped(annotation):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
    return None


def _unwrapped(annotation: object) -> Iterator[object]:
    """Return the types that a value may have, without annotations around them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _unwrapped(get_args(annotation)[0])
    elif origin in (list, Union, UnionType):
        for argument in get_args(annotation):
            yield from _unwrapped(argument)
    else:
        yield annotation
