"""A management operation: what it is called, what it takes, what it answers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final

from ferrymq_broker.management.errors import BAD_REQUEST, OK, ManagementError
from ferrymq_broker.nodes.link_terms import Party

# There is nothing with a greater number.
GREATEST: Final = 0x7FFF_FFFF_FFFF_FFFF
# As many digits as that has.
_DIGITS: Final = 19
# How much of a name that came from outside an error repeats.
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Call:
    """One request: who asks, for which entity, with which arguments.

    `name` is the entity's, or its identity; empty without one. `arguments` are the map in the body,
    and below it the application-properties that the draft does not define.
    """

    party: Party
    name: str
    arguments: dict[str, object] = field(default_factory=dict)

    def meant(self) -> str:
        """The name, wherever the request has it; empty if it has none."""
        if self.name:
            return self.name
        name = self.arguments.get("name")
        return name if isinstance(name, str) else ""

    def required_name(self) -> str:
        """The name. Raises `ManagementError` if there is none."""
        if not self.name:
            raise ManagementError(BAD_REQUEST, "the request has neither name nor identity")
        return self.name

    def text(self, key: str, default: str | None = None) -> str:
        """A string argument. Raises `ManagementError` if it is none, or missing and needed."""
        value = self.arguments.get(key, default)
        if not isinstance(value, str):
            raise ManagementError(BAD_REQUEST, _expected(key, value, "a string"))
        return str(value)

    def number(self, key: str, default: int, minimum: int = 0) -> int:
        """An integer argument. Strings of digits will do: shells have nothing else."""
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
        """A boolean argument, false by default."""
        value = self.arguments.get(key)
        if value is None or value is False or value == "false":
            return False
        if value is True or value == "true":
            return True
        raise ManagementError(BAD_REQUEST, _expected(key, value, "a boolean"))

    def expect_only(self, *known: str) -> None:
        """Raise `ManagementError` for an argument that means nothing here."""
        for key in self.arguments:
            if key not in known:
                hint = f"; there are {', '.join(known)}" if known else ""
                raise ManagementError(BAD_REQUEST, f"unknown argument {key[:_SHOWN]!r}{hint}")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it."""

    body: object = None
    status: int = OK
    description: str = "OK"
    properties: dict[str, object] = field(default_factory=dict)


# What looks at much does so step by step.
Handler = Callable[[Call], Result | Generator[object, None, Result]]


@dataclass(frozen=True, slots=True)
class Operation:
    """What does it, and the names of the arguments it takes."""

    handler: Handler
    arguments: tuple[str, ...] = ()


def _expected(key: str, value: object, kind: str) -> str:
    if value is None:
        return f"{key} is missing: {kind} is needed"
    return f"{key}: {kind} is needed, not {str(value)[:_SHOWN]!r}"
