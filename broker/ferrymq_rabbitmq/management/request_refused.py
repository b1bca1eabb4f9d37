"""The error of a request that is refused."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus


class RequestRefused(Exception):
    """A request that is refused with a status of HTTP and a sentence for the client."""

    def __init__(self, status: HTTPStatus, description: str) -> None:
        super().__init__(description)
        self.status = status
        self.description = description

    @classmethod
    def missing(cls, kind: str, name: str) -> RequestRefused:
        """Return the error of a request about something that does not exist."""
        return cls(HTTPStatus.NOT_FOUND, f"there is no {kind} {name[:200]!r}")


def bad_request(description: str) -> RequestRefused:
    """Return the error of a request that is wrong in itself."""
    return RequestRefused(HTTPStatus.BAD_REQUEST, description)


def text_in(body: Mapping[str, object], key: str, default: str | None = None) -> str:
    """Return a string of a body. Raises `RequestRefused` if it is missing without a default, or is
    no string."""
    value = body.get(key, default)
    if not isinstance(value, str):
        raise bad_request(f"{key}: a string is needed, not {value!r}")
    return value


def flag_in(body: Mapping[str, object], key: str, default: bool) -> bool:
    """Return a boolean of a body. Raises `RequestRefused` if it is something else."""
    value = body.get(key, default)
    if not isinstance(value, bool):
        raise bad_request(f"{key}: a boolean is needed, not {value!r}")
    return value


def arguments_in(body: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments in a body. Raises `RequestRefused` if they are no map with string
    keys."""
    value = body.get("arguments")
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise bad_request("arguments: a map with string keys is needed")
    return {str(name): item for name, item in value.items()}
