"""The expressions of parsed selectors, and their evaluation (JMS 2.0 §3.8.1).

Every expression has a `value`. As a condition, an expression is true, false or unknown. Evaluation
never raises: a value that cannot be computed is NULL, and a condition that depends on NULL is
unknown, as in SQL.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.filters.values import EQ, FALSE, GE, LE, TRUE, UNKNOWN, compare

if TYPE_CHECKING:
    from ferrymq_broker.filters.identifiers import Identifier
    from ferrymq_broker.filters.like import LikePattern
    from ferrymq_broker.nodes.message_view import MessageView

# The kinds of values that expressions have. ANY is for a kind that depends on the message.
ANY: Final = 0
BOOLEAN: Final = 1
NUMBER: Final = 2
OTHER: Final = 3

# Exact numbers above this become approximate ones, so that no expression makes huge numbers.
_EXACT: Final = 1 << 64

_OPERATORS: Final = ("=", "<>", "<", "<=", ">", ">=")


class Expression:
    """An expression, which has a value for each message.

    `depth` is the number of nested expressions, itself included. `kind` is one of the four
    constants above. `render` returns the same text for equal expressions.
    """

    __slots__ = ("depth", "kind")

    def __init__(self, depth: i64, kind: i64 = ANY) -> None:
        self.depth: i64 = depth
        self.kind: i64 = kind

    def value(self, view: MessageView) -> object:
        """Return the value; None for NULL."""
        return None

    def test(self, view: MessageView) -> i64:
        """Evaluate the expression as a condition. A value that is not a boolean is unknown."""
        value = self.value(view)
        if isinstance(value, bool):
            return TRUE if value else FALSE
        return UNKNOWN

    def render(self) -> str:
        """Return a text of the expression."""
        return ""


@final
class Literal(Expression):
    """A literal: a string, number, boolean or bytes."""

    __slots__ = ("constant",)

    def __init__(self, constant: object) -> None:
        kind = OTHER
        if isinstance(constant, bool):
            kind = BOOLEAN
        elif isinstance(constant, (int, float)):
            kind = NUMBER
        super().__init__(1, kind)
        self.constant: object = constant

    def value(self, view: MessageView) -> object:
        """Return the constant."""
        return self.constant

    def render(self) -> str:
        """Return the constant in a form that shows its type."""
        return repr(self.constant)


class Condition(Expression):
    """An expression that is always true, false or unknown."""

    __slots__ = ()

    def __init__(self, depth: i64) -> None:
        super().__init__(depth, BOOLEAN)

    def value(self, view: MessageView) -> object:
        """Return the condition as a value."""
        known = self.test(view)
        if known == UNKNOWN:
            return None
        return known == TRUE


@final
class Comparison(Condition):
    """A comparison: ``left op right``."""

    __slots__ = ("op", "left", "right")

    def __init__(self, op: i64, left: Expression, right: Expression) -> None:
        super().__init__(1 + max(left.depth, right.depth))
        self.op: i64 = op
        self.left: Expression = left
        self.right: Expression = right

    def test(self, view: MessageView) -> i64:
        """Compare the two values."""
        return compare(self.op, self.left.value(view), self.right.value(view))

    def render(self) -> str:
        """Return the text, in parentheses."""
        return f"({self.left.render()} {_OPERATORS[self.op]} {self.right.render()})"


@final
class And(Condition):
    """A conjunction: false if one condition is false, else unknown if one is unknown."""

    __slots__ = ("operands",)

    def __init__(self, operands: list[Expression]) -> None:
        super().__init__(1 + deepest(operands))
        self.operands: list[Expression] = operands

    def test(self, view: MessageView) -> i64:
        """Evaluate one condition after the other until one is false."""
        result: i64 = TRUE
        for operand in self.operands:
            known = operand.test(view)
            if known == FALSE:
                return FALSE
            if known == UNKNOWN:
                result = UNKNOWN
        return result

    def render(self) -> str:
        """Return the text, in parentheses."""
        return "(" + " and ".join([operand.render() for operand in self.operands]) + ")"


@final
class Or(Condition):
    """A disjunction: true if one condition is true, else unknown if one is unknown."""

    __slots__ = ("operands",)

    def __init__(self, operands: list[Expression]) -> None:
        super().__init__(1 + deepest(operands))
        self.operands: list[Expression] = operands

    def test(self, view: MessageView) -> i64:
        """Evaluate one condition after the other until one is true."""
        result: i64 = FALSE
        for operand in self.operands:
            known = operand.test(view)
            if known == TRUE:
                return TRUE
            if known == UNKNOWN:
                result = UNKNOWN
        return result

    def render(self) -> str:
        """Return the text, in parentheses."""
        return "(" + " or ".join([operand.render() for operand in self.operands]) + ")"


@final
class Not(Condition):
    """A negation. The negation of unknown is unknown."""

    __slots__ = ("operand",)

    def __init__(self, operand: Expression) -> None:
        super().__init__(1 + operand.depth)
        self.operand: Expression = operand

    def test(self, view: MessageView) -> i64:
        """Swap true and false."""
        known = self.operand.test(view)
        if known == UNKNOWN:
            return UNKNOWN
        return FALSE if known == TRUE else TRUE

    def render(self) -> str:
        """Return the text, in parentheses."""
        return f"(not {self.operand.render()})"


@final
class Between(Condition):
    """A range check: ``operand >= low AND operand <= high``."""

    __slots__ = ("operand", "low", "high")

    def __init__(self, operand: Expression, low: Expression, high: Expression) -> None:
        super().__init__(1 + max(operand.depth, low.depth, high.depth))
        self.operand: Expression = operand
        self.low: Expression = low
        self.high: Expression = high

    def test(self, view: MessageView) -> i64:
        """Compare with both bounds."""
        value = self.operand.value(view)
        above = compare(GE, value, self.low.value(view))
        if above == FALSE:
            return FALSE
        below = compare(LE, value, self.high.value(view))
        if below == FALSE:
            return FALSE
        return TRUE if above == TRUE and below == TRUE else UNKNOWN

    def render(self) -> str:
        """Return the text, in parentheses."""
        return f"({self.operand.render()} between {self.low.render()} and {self.high.render()})"


@final
class In(Condition):
    """A test whether a value equals one of several items.

    The result is unknown if no item is equal and an item or the value is NULL.

    If all items are strings, they are looked up in a set.
    """

    __slots__ = ("operand", "items", "_strings")

    def __init__(self, operand: Expression, items: list[Expression]) -> None:
        super().__init__(1 + max(operand.depth, deepest(items)))
        self.operand: Expression = operand
        self.items: list[Expression] = items
        strings: set[str] | None = set()
        for item in items:
            if strings is not None and isinstance(item, Literal):
                constant = item.constant
                if isinstance(constant, str):
                    strings.add(constant)
                    continue
            strings = None
        self._strings = strings

    def test(self, view: MessageView) -> i64:
        """Compare with each item."""
        value = self.operand.value(view)
        if value is None:
            return UNKNOWN
        strings = self._strings
        if strings is not None and isinstance(value, str):
            return TRUE if value in strings else FALSE
        result: i64 = FALSE
        for item in self.items:
            known = compare(EQ, value, item.value(view))
            if known == TRUE:
                return TRUE
            if known == UNKNOWN:
                result = UNKNOWN
        return result

    def render(self) -> str:
        """Return the text, in parentheses. The order of the items does not matter."""
        items = sorted([item.render() for item in self.items])
        return f"({self.operand.render()} in ({', '.join(items)}))"


@final
class Like(Condition):
    """A match of a string with a pattern."""

    __slots__ = ("operand", "pattern")

    def __init__(self, operand: Expression, pattern: LikePattern) -> None:
        super().__init__(1 + operand.depth)
        self.operand: Expression = operand
        self.pattern: LikePattern = pattern

    def test(self, view: MessageView) -> i64:
        """Match the value. A value that is not a string does not match."""
        value = self.operand.value(view)
        if value is None:
            return UNKNOWN
        if isinstance(value, str):
            return TRUE if self.pattern.matches(value) else FALSE
        return FALSE

    def render(self) -> str:
        """Return the text, in parentheses."""
        pattern = self.pattern
        return f"({self.operand.render()} like {pattern.pattern!r} escape {pattern.escape!r})"


@final
class IsNull(Condition):
    """A test whether a value is NULL, which is never unknown."""

    __slots__ = ("operand",)

    def __init__(self, operand: Expression) -> None:
        super().__init__(1 + operand.depth)
        self.operand: Expression = operand

    def test(self, view: MessageView) -> i64:
        """Return TRUE if there is no value."""
        return TRUE if self.operand.value(view) is None else FALSE

    def render(self) -> str:
        """Return the text, in parentheses."""
        return f"({self.operand.render()} is null)"


@final
class Exists(Condition):
    """A test whether the message has a property, even a null one; never unknown."""

    __slots__ = ("identifier",)

    def __init__(self, identifier: Identifier) -> None:
        super().__init__(2)
        self.identifier: Identifier = identifier

    def test(self, view: MessageView) -> i64:
        """Return TRUE if the message has the property."""
        return TRUE if self.identifier.exists(view) else FALSE

    def render(self) -> str:
        """Return the text, in the form of a call."""
        return f"exists({self.identifier.render()})"


@final
class Arithmetic(Expression):
    """Several values with operators of one precedence between them, evaluated from left to right.

    `ops` has one character for each value but the first. The result is NULL if a value is not a
    number, after a division by zero, and if the result is not a number (NaN).
    """

    __slots__ = ("ops", "operands")

    def __init__(self, ops: str, operands: list[Expression]) -> None:
        super().__init__(1 + deepest(operands), NUMBER)
        self.ops: str = ops
        self.operands: list[Expression] = operands

    def value(self, view: MessageView) -> object:
        """Compute the result."""
        result = self.operands[0].value(view)
        for at, op in enumerate(self.ops, 1):
            result = calculate(op, result, self.operands[at].value(view))
            if result is None:
                return None
        return result

    def render(self) -> str:
        """Return the text, in parentheses."""
        text = "(" + self.operands[0].render()
        for at, op in enumerate(self.ops, 1):
            text += f" {op} {self.operands[at].render()}"
        return text + ")"


@final
class Sign(Expression):
    """A sign: ``+value`` or ``-value``."""

    __slots__ = ("negative", "operand")

    def __init__(self, negative: bool, operand: Expression) -> None:
        super().__init__(1 + operand.depth, NUMBER)
        self.negative: bool = negative
        self.operand: Expression = operand

    def value(self, view: MessageView) -> object:
        """Return the number; NULL if the value is not a number."""
        value = self.operand.value(view)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return -value if self.negative else value

    def render(self) -> str:
        """Return the text, in parentheses."""
        return f"({'-' if self.negative else '+'}{self.operand.render()})"


def deepest(expressions: list[Expression]) -> i64:
    """Return the greatest depth of several expressions."""
    depth: i64 = 0
    for expression in expressions:
        if expression.depth > depth:
            depth = expression.depth
    return depth


def calculate(op: str, left: object, right: object) -> object:
    """Compute ``left op right`` by the rules of Java: a quotient of integers is rounded towards
    zero."""
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, int) and isinstance(right, int):
        return _exact(op, left, right)
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return _approximate(op, float(left), float(right))
    return None


def _exact(op: str, left: int, right: int) -> object:
    if op == "+":
        result = left + right
    elif op == "-":
        result = left - right
    elif op == "*":
        result = left * right
    elif right == 0:
        return None
    else:
        result = abs(left) // abs(right)
        if (left < 0) != (right < 0):
            result = -result
        if op == "%":
            result = left - result * right
    if -_EXACT < result < _EXACT:
        return result
    return float(result)


def _approximate(op: str, left: float, right: float) -> object:
    if op == "+":
        result = left + right
    elif op == "-":
        result = left - right
    elif op == "*":
        result = left * right
    elif right == 0.0:
        return None
    elif op == "/":
        result = left / right
    elif math.isinf(left) or math.isnan(left) or math.isnan(right):
        return None
    else:
        result = math.fmod(left, right)
    return None if math.isnan(result) else result
