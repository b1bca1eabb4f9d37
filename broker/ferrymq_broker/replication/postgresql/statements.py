"""Statements, their parameters, and the values of their results.

Parameters are given as text, except binary strings. Results are binary.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from ferrymq_broker.replication.shared_journal import Done

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

T = TypeVar("T")
Parameters: TypeAlias = Sequence[bytes | None]

_TEXT: Final = 0
_BINARY: Final = 1
_DOUBLE: Final = struct.Struct(">d")


class PreparedStatement:
    """A prepared statement: the name by which the server knows it, its SQL, and which of its
    parameters are binary, counted from 0. A statement without a name is sent as text each time; it
    has no parameters."""

    __slots__ = ("name", "sql", "formats")

    def __init__(
        self, name: str, sql: str, parameters: int = 0, binary: Sequence[int] = ()
    ) -> None:
        self.name: bytes = name.encode()
        self.sql: bytes = sql.encode()
        self.formats: list[int] = [_BINARY if at in binary else _TEXT for at in range(parameters)]


Step: TypeAlias = tuple[PreparedStatement, Parameters]

BEGIN: Final = PreparedStatement("", "BEGIN")
COMMIT: Final = PreparedStatement("", "COMMIT")
ROLLBACK: Final = PreparedStatement("", "ROLLBACK")


class DatabaseCall:
    """Steps that follow each other with nothing between them, and who gets the last result.

    A step that changes no row ends the call, and its result is that of the call. A transaction that
    is open then is rolled back.
    """

    __slots__ = ("steps", "done")

    def __init__(self, steps: Sequence[Step], done: Done[PGresult]) -> None:
        self.steps = steps
        self.done = done


def converted(parse: Callable[[PGresult], T | Exception], done: Done[T]) -> Done[PGresult]:
    """Return a function for a result that gives `done` what `parse` makes of it, or the error."""

    def take(result: PGresult | Exception) -> None:
        done(result if isinstance(result, Exception) else parse(result))

    return take


def integer(result: PGresult, row: int, column: int) -> int:
    """Return an integer of any size; 0 for NULL."""
    return int.from_bytes(result.get_value(row, column) or b"", "big", signed=True)


def number(result: PGresult, row: int, column: int) -> float:
    """Return a double; 0 for NULL."""
    value = result.get_value(row, column)
    return 0.0 if value is None else float(_DOUBLE.unpack(value)[0])


def text(result: PGresult, row: int, column: int) -> str:
    """Return a text; "" for NULL."""
    return (result.get_value(row, column) or b"").decode()


def binary(result: PGresult, row: int, column: int) -> bytes:
    """Return a binary string; b"" for NULL."""
    return result.get_value(row, column) or b""


def boolean(result: PGresult, row: int, column: int) -> bool:
    """Return a truth value; False for NULL."""
    return result.get_value(row, column) == b"\x01"


def nothing(result: PGresult) -> None:
    """Return None, for calls that have only to succeed."""
