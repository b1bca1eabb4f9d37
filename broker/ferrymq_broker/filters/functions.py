"""The expressions that only the filters and actions of rules have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final
from uuid import uuid4

from ferrymq_broker.filters.expressions import OTHER, Expression, calculate, deepest
from ferrymq_broker.filters.values import plain

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message_view import MessageView

# The most characters of a string that a sum makes: an action could double it with each statement.
MAX_TEXT: Final = 8192


@final
class NewId(Expression):
    """A new UUID for each evaluation: ``newid()``."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(1, OTHER)

    def value(self, view: MessageView) -> object:
        """Return the UUID as a string."""
        return str(uuid4())

    def render(self) -> str:
        """Return the call."""
        return "newid()"


@final
class PropertyNamed(Expression):
    """The application property whose name is the value of an expression: ``property(name)``."""

    __slots__ = ("operand",)

    def __init__(self, operand: Expression) -> None:
        super().__init__(1 + operand.depth)
        self.operand: Expression = operand

    def value(self, view: MessageView) -> object:
        """Return the value; NULL if the name is no string or there is no such property."""
        name = self.operand.value(view)
        if not isinstance(name, str):
            return None
        return plain(view.application_properties.get(name))

    def render(self) -> str:
        """Return the call."""
        return f"property({self.operand.render()})"


@final
class Sum(Expression):
    """A sum of numbers, or a string of strings one after the other.

    The result is NULL if the values are neither all numbers nor all strings, and for a string of
    more than 8192 characters.
    """

    __slots__ = ("operands",)

    def __init__(self, operands: list[Expression]) -> None:
        super().__init__(1 + deepest(operands))
        self.operands: list[Expression] = operands

    def value(self, view: MessageView) -> object:
        """Compute the result."""
        result = self.operands[0].value(view)
        for at in range(1, len(self.operands)):
            value = self.operands[at].value(view)
            if isinstance(result, str) and isinstance(value, str):
                if len(result) + len(value) > MAX_TEXT:
                    return None
                result = result + value
            else:
                result = calculate("+", result, value)
            if result is None:
                return None
        return result

    def render(self) -> str:
        """Return the text, in parentheses."""
        return "(" + " + ".join([operand.render() for operand in self.operands]) + ")"
