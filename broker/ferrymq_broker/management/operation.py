"""Management operations: requests, results, and handlers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final

from ferrymq_broker.management.errors import BAD_REQUEST, OK, ManagementError
from ferrymq_broker.nodes.link_terms import Party

# The greatest number of anything.
GREATEST: Final = 0x7FFF_FFFF_FFFF_FFFF
# The number of digits of `GREATEST`.
_DIGITS: Final = 19
# The most characters of a client's text that an error repeats.
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Call:
    """A request: the party, the entity, and the arguments.

    `name` is the entity's name or identity; empty without one. `arguments` are the map in the body,
    and application-properties that the draft does not define. The body has precedence.
    """

    party: Party
    name: str
    arguments: dict[str, object] = field(default_factory=dict)

    def meant(self) -> str:
        """Return the name from the property or the argument; empty if there is none."""
        if self.name:
            return self.name
        name = self.arguments.get("name")
        return name if isinstance(name, str) else ""

    def required_name(self) -> str:
        """Return the name. Raises `ManagementError` if there is none."""
        if not self.name:
            raise ManagementError(BAD_REQUEST, "the request needs a name or an identity")
        return self.name

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string argument. Raises `ManagementError` if it is no string, or is missing
        without a default."""
        value = self.arguments.get(key, default)
        if not isinstance(value, str):
            raise ManagementError(BAD_REQUEST, _expected(key, value, "a string"))
        return str(value)

    def number(self, key: str, default: int, minimum: int = 0) -> int:
        """Return an integer argument. Strings of digits are accepted, because shells have only
        strings."""
        value = self.arguments.get(key)
        if value is None:
            return default
        if isinstance(value, str) and len(value) <= _DIGITS and value.isascii() and value.isdigit():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ManagementError(BAD_REQUEST, _expected(key, value, "an integer"))
        if value < minimum:
            raise ManagementError(BAD_REQUEST, f"{key}: {value} is less than {minimum}")
        if value > GREATEST:
            raise ManagementError(BAD_REQUEST, f"{key}: {value} is more than {GREATEST}")
        return int(value)

    def flag(self, key: str) -> bool:
        """Return a boolean argument; False if it is missing."""
        value = self.arguments.get(key)
        if value is None or value is False or value == "false":
            return False
        if value is True or value == "true":
            return True
        raise ManagementError(BAD_REQUEST, _expected(key, value, "a boolean"))

    def expect_only(self, *known: str) -> None:
        """Raise `ManagementError` for an unknown argument."""
        for key in self.arguments:
            if key not in known:
                hint = f"; the arguments are {', '.join(known)}" if known else ""
                raise ManagementError(BAD_REQUEST, f"unknown argument {key[:_SHOWN]!r}{hint}")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an operation."""

    body: object = None
    status: int = OK
    description: str = "OK"
    properties: dict[str, object] = field(default_factory=dict)


# A handler that may take long is a generator, which works in steps.
Handler = Callable[[Call], Result | Generator[object, None, Result]]


@dataclass(frozen=True, slots=True)
class Operation:
    """The handler of an operation, and the names of its arguments."""

    handler: Handler
    arguments: tuple[str, ...] = ()


def _expected(key: str, value: object, kind: str) -> str:
    if value is None:
        return f"{key} is missing: {kind} is needed"
    return f"{key}: {kind} is needed, not {str(value)[:_SHOWN]!r}"
