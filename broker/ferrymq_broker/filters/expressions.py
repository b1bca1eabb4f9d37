"""What a selector is made of, ready to be evaluated (JMS 2.0 §3.8.1).

Every expression has a `value`; as a condition it is true, false or unknown. Nothing raises. A value
that cannot be computed is NULL, and a condition that depends on one is unknown, as in SQL.
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

# What an expression can be before any message is seen.
ANY: Final = 0
BOOLEAN: Final = 1
NUMBER: Final = 2
OTHER: Final = 3

# Exact numbers beyond this become approximate ones, so that no expression makes giants.
_EXACT: Final = 1 << 64

_OPERATORS: Final = ("=", "<>", "<", "<=", ">", ">=")


class Expression:
    """Has a value for each message. `depth` is how many expressions are nested, itself included.

    `kind` is one of the four above. `render` gives a text in which equal expressions are equal.
    """

    __slots__ = ("depth", "kind")

    def __init__(self, depth: i64, kind: i64 = ANY) -> None:
        self.depth: i64 = depth
        self.kind: i64 = kind

    def value(self, view: MessageView) -> object:
        """Its value, None for NULL."""
        return None

    def test(self, view: MessageView) -> i64:
        """What it is as a condition; a value that is no boolean is unknown."""
        value = self.value(view)
        if isinstance(value, bool):
            return TRUE if value else FALSE
        return UNKNOWN

    def render(self) -> str:
        """A text that stands for it."""
        return ""


@final
class Literal(Expression):
    """A value of its own: a string, number, boolean or bytes."""

    __slots__ = ("constant",)

    def __init__(self, constant: object) -> None:
        kind = OTHER
        if isinstance(constant, bool):
            kind = BOOLEAN
        elif isinstance(constant, (int, float)):
            kind = NUMBER
        super().__init__(1, kind)
        self.constant = constant

    def value(self, view: MessageView) -> object:
        """The constant."""
        return self.constant

    def render(self) -> str:
        """The constant, with its type."""
        return repr(self.constant)


class Condition(Expression):
    """An expression that is true, false or unknown by nature."""

    __slots__ = ()

    def __init__(self, depth: i64) -> None:
        super().__init__(depth, BOOLEAN)

    def value(self, view: MessageView) -> object:
        """The same as a value."""
        known = self.test(view)
        if known == UNKNOWN:
            return None
        return known == TRUE


@final
class Comparison(Condition):
    """``left op right``."""

    __slots__ = ("op", "left", "right")

    def __init__(self, op: i64, left: Expression, right: Expression) -> None:
        super().__init__(1 + max(left.depth, right.depth))
        self.op: i64 = op
        self.left = left
        self.right = right

    def test(self, view: MessageView) -> i64:
        """Compare the two values."""
        return compare(self.op, self.left.value(view), self.right.value(view))

    def render(self) -> str:
        """With parentheses."""
        return f"({self.left.render()} {_OPERATORS[self.op]} {self.right.render()})"


@final
class And(Condition):
    """All of several conditions: false if one is, else unknown if one is."""

    __slots__ = ("operands",)

    def __init__(self, operands: list[Expression]) -> None:
        super().__init__(1 + deepest(operands))
        self.operands = operands

    def test(self, view: MessageView) -> i64:
        """Ask one after the other until one is false."""
        result: i64 = TRUE
        for operand in self.operands:
            known = operand.test(view)
            if known == FALSE:
                return FALSE
            if known == UNKNOWN:
                result = UNKNOWN
        return result

    def render(self) -> str:
        """With parentheses."""
        return "(" + " and ".join([operand.render() for operand in self.operands]) + ")"


@final
class Or(Condition):
    """One of several conditions: true if one is, else unknown if one is."""

    __slots__ = ("operands",)

    def __init__(self, operands: list[Expression]) -> None:
        super().__init__(1 + deepest(operands))
        self.operands = operands

    def test(self, view: MessageView) -> i64:
        """Ask one after the other until one is true."""
        result: i64 = FALSE
        for operand in self.operands:
            known = operand.test(view)
            if known == TRUE:
                return TRUE
            if known == UNKNOWN:
                result = UNKNOWN
        return result

    def render(self) -> str:
        """With parentheses."""
        return "(" + " or ".join([operand.render() for operand in self.operands]) + ")"


@final
class Not(Condition):
    """The opposite; of unknown it is unknown."""

    __slots__ = ("operand",)

    def __init__(self, operand: Expression) -> None:
        super().__init__(1 + operand.depth)
        self.operand = operand

    def test(self, view: MessageView) -> i64:
        """Turn true and false around."""
        known = self.operand.test(view)
        if known == UNKNOWN:
            return UNKNOWN
        return FALSE if known == TRUE else TRUE

    def render(self) -> str:
        """With parentheses."""
        return f"(not {self.operand.render()})"


@final
class Between(Condition):
    """``operand >= low AND operand <= high``."""

    __slots__ = ("operand", "low", "high")

    def __init__(self, operand: Expression, low: Expression, high: Expression) -> None:
        super().__init__(1 + max(operand.depth, low.depth, high.depth))
        self.operand = operand
        self.low = low
        self.high = high

    def test(self, view: MessageView) -> i64:
        """Compare with both."""
        value = self.operand.value(view)
        above = compare(GE, value, self.low.value(view))
        if above == FALSE:
            return FALSE
        below = compare(LE, value, self.high.value(view))
        if below == FALSE:
            return FALSE
        return TRUE if above == TRUE and below == TRUE else UNKNOWN

    def render(self) -> str:
        """With parentheses."""
        return f"({self.operand.render()} between {self.low.render()} and {self.high.render()})"


@final
class In(Condition):
    """The value equals one of several: unknown if none is equal and one or the value is NULL.

    Several strings are looked up at once.
    """

    __slots__ = ("operand", "items", "_strings")

    def __init__(self, operand: Expression, items: list[Expression]) -> None:
        super().__init__(1 + max(operand.depth, deepest(items)))
        self.operand = operand
        self.items = items
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
        """Compare with each."""
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
        """With parentheses; the order of the items does not matter."""
        items = sorted([item.render() for item in self.items])
        return f"({self.operand.render()} in ({', '.join(items)}))"


@final
class Like(Condition):
    """The value is a string that matches a pattern."""

    __slots__ = ("operand", "pattern")

    def __init__(self, operand: Expression, pattern: LikePattern) -> None:
        super().__init__(1 + operand.depth)
        self.operand = operand
        self.pattern = pattern

    def test(self, view: MessageView) -> i64:
        """Match; what is no string does not."""
        value = self.operand.value(view)
        if value is None:
            return UNKNOWN
        if isinstance(value, str):
            return TRUE if self.pattern.matches(value) else FALSE
        return FALSE

    def render(self) -> str:
        """With parentheses."""
        pattern = self.pattern
        return f"({self.operand.render()} like {pattern.pattern!r} escape {pattern.escape!r})"


@final
class IsNull(Condition):
    """Whether there is no value; never unknown."""

    __slots__ = ("operand",)

    def __init__(self, operand: Expression) -> None:
        super().__init__(1 + operand.depth)
        self.operand = operand

    def test(self, view: MessageView) -> i64:
        """Look whether there is a value."""
        return TRUE if self.operand.value(view) is None else FALSE

    def render(self) -> str:
        """With parentheses."""
        return f"({self.operand.render()} is null)"


@final
class Exists(Condition):
    """Whether the message has a property, be it null; never unknown."""

    __slots__ = ("identifier",)

    def __init__(self, identifier: Identifier) -> None:
        super().__init__(2)
        self.identifier = identifier

    def test(self, view: MessageView) -> i64:
        """Look for the property."""
        return TRUE if self.identifier.exists(view) else FALSE

    def render(self) -> str:
        """Like a call."""
        return f"exists({self.identifier.render()})"


@final
class Arithmetic(Expression):
    """Several values joined by operators of one precedence, from left to right.

    `ops` has one character for each value but the first. Anything that is no number makes the
    whole NULL, as do a division by zero and a result that is no number.
    """

    __slots__ = ("ops", "operands")

    def __init__(self, ops: str, operands: list[Expression]) -> None:
        super().__init__(1 + deepest(operands), NUMBER)
        self.ops = ops
        self.operands = operands

    def value(self, view: MessageView) -> object:
        """Compute."""
        result = self.operands[0].value(view)
        for at, op in enumerate(self.ops, 1):
            result = calculate(op, result, self.operands[at].value(view))
            if result is None:
                return None
        return result

    def render(self) -> str:
        """With parentheses."""
        text = "(" + self.operands[0].render()
        for at, op in enumerate(self.ops, 1):
            text += f" {op} {self.operands[at].render()}"
        return text + ")"


@final
class Sign(Expression):
    """``+value`` or ``-value``."""

    __slots__ = ("negative", "operand")

    def __init__(self, negative: bool, operand: Expression) -> None:
        super().__init__(1 + operand.depth, NUMBER)
        self.negative = negative
        self.operand = operand

    def value(self, view: MessageView) -> object:
        """The number; NULL if it is none."""
        value = self.operand.value(view)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return -value if self.negative else value

    def render(self) -> str:
        """With parentheses."""
        return f"({'-' if self.negative else '+'}{self.operand.render()})"


def deepest(expressions: list[Expression]) -> i64:
    """The greatest depth among them."""
    depth: i64 = 0
    for expression in expressions:
        if expression.depth > depth:
            depth = expression.depth
    return depth


def calculate(op: str, left: object, right: object) -> object:
    """``left op right``, with the rules of Java: exact numbers divide exactly, towards zero."""
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
