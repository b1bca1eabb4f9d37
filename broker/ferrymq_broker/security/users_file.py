"""The file of users: JSON, readable by its owner only, replaced as a whole.

Format 1::

    {"format": 1, "users": {"alice": {"password": "$argon2id$…", "groups": ["staff"], "scram":
    {"SCRAM-SHA-256": {"salt": …, "stored-key": …, "server-key": …, "iterations": …}, …}}}}

Bytes are in Base64. The file has no passwords, but its reader can try passwords with it.
"""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from ferrymq.engine.scram import MAX_ITERATIONS, ScramKeys
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.section import kebab
from ferrymq_broker.security.file_replacement import locked, replace_file
from ferrymq_broker.security.hashing import check_hash
from ferrymq_broker.security.users import StoredUser, check_name

FORMAT: Final = 1
# The most bytes of a file of users.
MOST_BYTES: Final = 256 * 1024 * 1024


class UsersFileError(ConfigError):
    """An exception: the file of users cannot be read, or is invalid. The message names the file and
    has no secret."""


def _decode(value: object) -> object:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value


_Bytes = Annotated[bytes, BeforeValidator(_decode), Field(min_length=8, max_length=128)]


class _Entry(BaseModel):
    model_config = ConfigDict(
        alias_generator=kebab, extra="forbid", frozen=True, hide_input_in_errors=True
    )


class _Keys(_Entry):
    salt: _Bytes
    stored_key: _Bytes
    server_key: _Bytes
    iterations: Annotated[int, Field(strict=True, ge=4096, le=MAX_ITERATIONS)]


class _User(_Entry):
    password: str
    groups: list[str] = []
    scram: dict[Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1"], _Keys] = {}

    @field_validator("password")
    @classmethod
    def _check_hash(cls, hashed: str) -> str:
        check_hash(hashed)
        return hashed


class _File(_Entry):
    format: Literal[1]
    users: dict[str, _User]

    @field_validator("users")
    @classmethod
    def _check_names(cls, users: dict[str, _User]) -> dict[str, _User]:
        for name in users:
            check_name(name)
        return users


def read_users(path: Path) -> dict[str, StoredUser]:
    """Return the users in a file. Raises `UsersFileError`."""
    try:
        with path.open("rb") as file:
            return _read(path, file.read(MOST_BYTES + 1), os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise UsersFileError(f"{path}: {error.strerror or error}") from None


def _read(path: Path, data: bytes, mode: int) -> dict[str, StoredUser]:
    if os.name == "posix" and mode & (stat.S_IWOTH | stat.S_IWGRP):
        who = "everybody" if mode & stat.S_IWOTH else "its group"
        raise UsersFileError(f"{path}: {who} may write to it; run chmod 600")
    if len(data) > MOST_BYTES:
        raise UsersFileError(f"{path}: the file is too large")
    try:
        content = json.loads(data, object_pairs_hook=_only_once)
    except (ValueError, RecursionError) as error:
        reason = (
            str(error)
            if isinstance(error, json.JSONDecodeError | _TwiceError)
            else "it is not valid JSON"
        )
        raise UsersFileError(f"{path}: {reason}") from None
    found = content.get("format") if isinstance(content, dict) else None
    if isinstance(found, int) and found > FORMAT:
        raise UsersFileError(
            f"{path}: the file has format {found}, but this version reads only format 1"
        )
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        raise UsersFileError(f"{path}: {_first(error)}") from None
    return {name: _stored(user) for name, user in file.users.items()}


def is_readable_by_others(path: Path) -> bool:
    """Return whether other users than the owner can read the file, and try passwords with it."""
    try:
        return os.name == "posix" and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def write_users(path: Path, users: dict[str, StoredUser]) -> None:
    """Replace the file atomically. Owner and permissions stay; a new file is readable by its owner
    only. Raises `OSError`."""
    data = json.dumps(
        {"format": FORMAT, "users": {name: _plain(user) for name, user in users.items()}},
        indent=1,
        ensure_ascii=False,
    ).encode()
    replace_file(path, data)


@contextmanager
def edited_users(path: Path) -> Iterator[dict[str, StoredUser]]:
    """Yield the users in a file to be changed, and write them back if there is no error. A lock
    keeps other programs out. A file that does not exist is made.

    Raises `UsersFileError`, and `OSError` if the file cannot be written.
    """
    path = path.resolve()
    with locked(path.parent):
        users = read_users(path) if path.exists() else {}
        yield users
        write_users(path, users)


class _TwiceError(ValueError):
    pass


def _only_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwiceError("a key of the JSON object occurs twice")
    return found


def _first(error: ValidationError) -> str:
    """Return the first mistake, and its place, without the value there."""
    details = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in details["loc"])[:300]
    reason = details["msg"].removeprefix("Value error, ")
    return f"{place}: {reason}" if place else reason


def _stored(user: _User) -> StoredUser:
    scram = {
        str(name): ScramKeys(keys.salt, keys.stored_key, keys.server_key, keys.iterations)
        for name, keys in user.scram.items()
    }
    return StoredUser(user.password, scram, frozenset(user.groups))


def _plain(user: StoredUser) -> dict[str, object]:
    plain: dict[str, object] = {"password": user.password}
    if user.groups:
        plain["groups"] = sorted(user.groups)
    plain["scram"] = {
        name: {
            "salt": base64.b64encode(keys.salt).decode(),
            "stored-key": base64.b64encode(keys.stored_key).decode(),
            "server-key": base64.b64encode(keys.server_key).decode(),
            "iterations": keys.iterations,
        }
        for name, keys in user.scram.items()
    }
    return plain
