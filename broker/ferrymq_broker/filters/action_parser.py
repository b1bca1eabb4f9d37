"""The parser of the actions of rules: ``SET name = expression; REMOVE name``.

The language of the expressions is that of the filters of rules.
"""

from __future__ import annotations

import functools
from typing import Final

from lark import Lark, Token, v_args

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.actions import (
    MAX_STATEMENTS,
    SETTABLE,
    Action,
    Assignment,
    Removal,
    Statement,
)
from ferrymq_broker.filters.expressions import Expression
from ferrymq_broker.filters.identifiers import ApplicationProperty, Field, Identifier
from ferrymq_broker.filters.selector_parser import (
    ACTION,
    GRAMMAR,
    Builder,
    ExpressionError,
    build_parser,
    read,
)

_STATEMENTS: Final = r"""
    start: statement (";" statement)* [";"]

    statement: SET name COMPARE disjunction        -> assignment
        | REMOVE name                               -> removal

    %declare SET REMOVE
"""


def parse_action(text: str) -> Action:
    """Parse an action.

    Raises `BrokerError` (amqp:invalid-field), which names the line, the column and the reason of
    the mistake.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BrokerError("amqp:invalid-field", "action: not a text of Unicode") from error
    action = read(_parser(), text, ACTION)
    assert isinstance(action, Action)
    action.text = text
    return action


@functools.cache
def _parser() -> Lark:
    grammar = GRAMMAR.replace("    start: disjunction\n", _STATEMENTS)
    return build_parser(grammar, _ActionBuilder(ACTION), ACTION)


@v_args(inline=True)
class _ActionBuilder(Builder):
    """A builder of actions."""

    def start(self, *statements: Statement | Token) -> Action:  # type: ignore[override]
        found = [statement for statement in statements if isinstance(statement, Statement)]
        if len(found) > MAX_STATEMENTS:
            raise ExpressionError(0, f"an action has at most {MAX_STATEMENTS} statements")
        return Action(found)

    def assignment(
        self, _set: Token, name: Expression, equals: Token, value: Expression
    ) -> Statement:
        if equals != "=":
            raise ExpressionError(equals.start_pos or 0, f"SET takes =, not {equals}")
        return Assignment(_changeable(name, _set), value)

    def removal(self, remove: Token, name: Expression) -> Statement:
        return Removal(_changeable(name, remove))


def _changeable(name: Expression, word: Token) -> Identifier:
    """Return the name, after checking that an action may change what it refers to."""
    if isinstance(name, ApplicationProperty):
        return name
    if isinstance(name, Field) and name.field in SETTABLE:
        return name
    raise ExpressionError(
        word.end_pos or 0,
        "an action can change application properties, and of sys only "
        + ", ".join(SETTABLE.values()),
    )
