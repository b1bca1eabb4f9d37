"""The parser of selectors: a grammar for lark, whose callbacks build expressions.

There are three dialects. *Selectors* are those of JMS 2.0 (§3.8.1). *SQL filters* are those of the
draft of AMQP Filter Expressions 1.0: strings may be in double quotation marks too, binary values
are written as ``0x…``, and an unknown name in a section is an error. *Rules* are selectors with
the sections ``sys.`` and ``user.``, functions, and strings that can be added.
"""

# The methods of the builders are the rules of the grammar.
# ruff: noqa: D102

from __future__ import annotations

import functools
import re
from typing import Final, NoReturn

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.expressions import (
    ANY,
    BOOLEAN,
    NUMBER,
    OTHER,
    And,
    Arithmetic,
    Between,
    Comparison,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Sign,
)
from ferrymq_broker.filters.functions import NewId, PropertyNamed, Sum
from ferrymq_broker.filters.identifiers import (
    HEADER_FIELDS,
    JMS_FIELDS,
    PROPERTIES_FIELDS,
    Annotation,
    ApplicationProperty,
    Field,
    Identifier,
)
from ferrymq_broker.filters.like import LikePattern
from ferrymq_broker.filters.values import EQ, GE, GT, LE, LT, NE

# The highest number of characters, and of nested expressions.
MAX_LENGTH: Final = 8192
MAX_DEPTH: Final = 64

# The dialects.
SELECTOR: Final = "selector"
SQL_FILTER: Final = "SQL filter"
RULE: Final = "rule"
ACTION: Final = "action"

GRAMMAR: Final = r"""
    start: disjunction

    ?disjunction: conjunction
        | conjunction (OR conjunction)+             -> any_of
    ?conjunction: negation
        | negation (AND negation)+                  -> all_of
    ?negation: predicate
        | NOT negation                              -> negated
    ?predicate: sum
        | sum COMPARE sum                           -> comparison
        | sum BETWEEN sum AND sum                   -> between
        | sum NOT BETWEEN sum AND sum               -> not_between
        | sum IN "(" sum ("," sum)* ")"             -> among
        | sum NOT IN "(" sum ("," sum)* ")"         -> not_among
        | sum LIKE string [ESCAPE string]           -> like
        | sum NOT LIKE string [ESCAPE string]       -> not_like
        | sum IS NULL                               -> is_null
        | sum IS NOT NULL                           -> is_not_null
    ?sum: product
        | product (SIGN product)+                   -> arithmetic
    ?product: factor
        | factor (FACTOR factor)+                   -> arithmetic
    ?factor: atom
        | SIGN factor                               -> signed
    ?atom: "(" disjunction ")"
        | NUMBER                                    -> number
        | STRING                                    -> text
        | DOUBLE_QUOTED                             -> double_quoted
        | (TRUE | FALSE)                            -> truth
        | EXISTS "(" name ")"                       -> exists
        | name
        _CALL_
    ?name: NAME                                     -> plain_name
        | QUOTED_NAME                               -> quoted_name
    ?string: STRING | DOUBLE_QUOTED

    %declare AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE EXISTS
    NAME: /_NAME_/
    QUOTED_NAME.2: /_QUOTED_/
    NUMBER: /_NUMBER_/
    STRING: /'(?:[^']|'')*'/
    DOUBLE_QUOTED: /"(?:[^"]|"")*"/
    COMPARE: /<>|!=|>=|<=|=|<|>/
    SIGN: /[+\-]/
    FACTOR: /[*\/%]/
    %ignore /\s+/
"""

# Only rules have functions.
_CALL: Final = '| NAME "(" [disjunction] ")" -> call'

# The longest first: reply-to is also the beginning of reply-to-group-id.
_FIELDS: Final = "|".join(
    sorted([*HEADER_FIELDS, *PROPERTIES_FIELDS], key=len, reverse=True)
).replace("-", "[-_]")
# Dots belong to a name, and after a section hyphens too. This is one regular expression because it
# takes the first alternative that matches; lark's grammar does not guarantee that order.
_NAME: Final = "|".join(
    [
        r"(?:amqp\.annotation|message[-_]annotations|m)\.[\w$][\w$.:\-]*",
        rf"(?:amqp\.header|amqp\.properties|header|properties|h|p)\.(?:{_FIELDS})(?![\w$])",
        r"(?:application-properties\.)?(?:[^\W\d]|\$)[\w$]*(?:\.[\w$]+)*",
    ]
)
_SECTION: Final = r"(?:amqp\.annotation|message[-_]annotations|m|application[-_]properties|a)\."
_RULE_NAME: Final = rf"sys\.(?:{_FIELDS})(?![\w$])|{_NAME}"
_RULE_SECTION: Final = rf"(?:(?:sys|user)\.|{_SECTION})"
_QUOTED: Final = r'(?:_SECTION_)?\[(?:[^\[\]]|\[\[|\]\])*\]|_SECTION_"(?:[^"]|"")*"'
_NUMBER: Final = "|".join(
    [
        r"0[xX][0-9a-fA-F]+[lL]?",
        r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+\-]?[0-9]+)?[fFdD]?",
        r"[0-9]+(?:[eE][+\-]?[0-9]+[fFdD]?|[fFdD]|[lL])?",
    ]
)
_KEYWORDS: Final = frozenset(
    ("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE", "EXISTS")
)
# In the texts of actions these are words too.
_ACTION_KEYWORDS: Final = frozenset((*_KEYWORDS, "SET", "REMOVE"))
_OPERATORS: Final = {"=": EQ, "<>": NE, "!=": NE, "<": LT, "<=": LE, ">": GT, ">=": GE}

_ANNOTATIONS: Final = ("amqp.annotation", "message_annotations", "message-annotations", "m")
_APPLICATION: Final = ("application_properties", "application-properties", "a")
_HEADER: Final = ("amqp.header", "header", "h")
_PROPERTIES: Final = ("amqp.properties", "properties", "p")
_SYSTEM: Final = "sys."
_USER: Final = "user."
# The fields of ``sys.`` by their names without hyphens and underscores, in lower case.
_SYSTEM_FIELDS: Final[dict[str, int]] = {
    **{name.replace("-", ""): field for name, field in HEADER_FIELDS.items()},
    **{name.replace("-", ""): field for name, field in PROPERTIES_FIELDS.items()},
    "label": PROPERTIES_FIELDS["subject"],
    "sessionid": PROPERTIES_FIELDS["group-id"],
    "replytosessionid": PROPERTIES_FIELDS["reply-to-group-id"],
    "timetolive": HEADER_FIELDS["ttl"],
}

# Readable names of the parser's terminals.
_WANTED: Final = {
    "COMPARE": "a comparison",
    "SIGN": "+ or -",
    "FACTOR": "*, / or %",
    "STRING": "a string",
    "DOUBLE_QUOTED": "a string",
    "NAME": "a name",
    "QUOTED_NAME": "a name",
    "NUMBER": "a number",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "SEMICOLON": "';'",
    "$END": "the end",
}
_VALUES: Final = frozenset({"a name", "a number", "a string", "TRUE", "FALSE", "EXISTS", "'('"})
_MORE: Final = frozenset({"+ or -", "*, / or %", "a comparison", "BETWEEN", "IN", "LIKE", "IS"})


def parse(text: str, sql: bool = False) -> Expression:
    """Parse a selector, or an SQL filter. An empty text is a condition that is always true.

    Raises `BrokerError` (amqp:invalid-field), which names the position and the reason of the
    mistake.
    """
    return _condition(_parser(SQL_FILTER if sql else SELECTOR), text, SELECTOR)


def parse_rule(text: str) -> Expression:
    """Parse the filter of a rule. An empty text is a condition that is always true.

    Raises `BrokerError` (amqp:invalid-field), which names the line, the column and the reason of
    the mistake.
    """
    return _condition(_parser(RULE), text, RULE)


def _condition(parser: Lark, text: str, what: str) -> Expression:
    if not text.strip() and len(text) <= MAX_LENGTH:
        return Literal(True)
    condition = read(parser, text, what)
    assert isinstance(condition, Expression)
    if condition.kind not in (ANY, BOOLEAN):
        _fail(text, 0, "a value, not a condition", what)
    return condition


def read(parser: Lark, text: str, what: str) -> object:
    """Return what a parser makes of a text. `what` is the kind of text, for errors.

    Raises `BrokerError` (amqp:invalid-field), which names the position and the reason of the
    mistake.
    """
    if len(text) > MAX_LENGTH:
        raise BrokerError(
            "amqp:invalid-field",
            f"{'an' if what == ACTION else 'a'} {what} of {len(text)} characters; at most "
            f"{MAX_LENGTH} are allowed",
        )
    try:
        return parser.parse(text)
    except UnexpectedInput as error:
        at: int = getattr(error, "pos_in_stream", None) or 0
        if isinstance(error, UnexpectedToken) and error.token.type == "$END":
            at = len(text)
        _fail(text, at, _reason(error), what)
    except ExpressionError as error:
        _fail(text, error.at, error.reason, what)


@functools.cache
def _parser(dialect: str) -> Lark:
    return build_parser(GRAMMAR, Builder(dialect), dialect)


def build_parser(grammar: str, builder: Builder, dialect: str) -> Lark:
    """Return a parser of a dialect, which calls `builder`."""
    rules = dialect in (RULE, ACTION)
    quoted = _QUOTED.replace("_SECTION_", _RULE_SECTION if rules else _SECTION)
    return Lark(
        grammar.replace("_CALL_", _CALL if rules else "")
        .replace("_NAME_", _RULE_NAME if rules else _NAME)
        .replace("_QUOTED_", quoted)
        .replace("_NUMBER_", _NUMBER),
        parser="lalr",
        # The basic lexer reserves words like AND everywhere.
        lexer="basic",
        lexer_callbacks={"NAME": _action_keyword if dialect == ACTION else _keyword},
        transformer=builder,
        maybe_placeholders=False,
    )


def _keyword(token: Token) -> Token:
    word = token.upper()
    return Token.new_borrow_pos(word, token, token) if word in _KEYWORDS else token


def _action_keyword(token: Token) -> Token:
    word = token.upper()
    return Token.new_borrow_pos(word, token, token) if word in _ACTION_KEYWORDS else token


class ExpressionError(Exception):
    """An error in a text that the grammar allows."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(reason)
        self.at = at
        self.reason = reason


def _fail(text: str, at: int, reason: str, what: str) -> NoReturn:
    near = text[at : at + 24]
    where = f"near {near!r}" if near else "at the end"
    place = f"character {at + 1}"
    if what != SELECTOR:
        before = text[:at]
        line = before.count("\n") + 1
        place = f"line {line}, column {at - before.rfind(chr(10))}"
    raise BrokerError("amqp:invalid-field", f"{what}, {place}, {where}: {reason}", {"position": at})


def _reason(error: UnexpectedInput) -> str:
    if isinstance(error, UnexpectedToken):
        wanted = {_WANTED.get(name, name) for name in error.expected}
        if wanted >= _VALUES:
            wanted = (wanted - _VALUES) | {"a value"}
        if wanted >= _MORE:
            wanted = (wanted - _MORE) | {"an operator"}
        return "expected " + ", ".join(sorted(wanted, key=lambda name: (name.isupper(), name)))
    if isinstance(error, UnexpectedCharacters) and error.char in "'\"[":
        return "the quotation is not closed"
    return "no such character here"


@v_args(inline=True)
class Builder(Transformer[Token, Expression]):
    """A builder of expressions. Its methods have the names of the rules in the grammar."""

    def __init__(self, dialect: str) -> None:
        super().__init__()
        self.sql = dialect == SQL_FILTER
        self.rules = dialect in (RULE, ACTION)

    def start(self, condition: Expression) -> Expression:
        return condition

    # -- conditions ------------------------------------------------------------------------

    def any_of(self, *children: Expression | Token) -> Expression:
        return _shallow(Or(_conditions(children)), children[1])

    def all_of(self, *children: Expression | Token) -> Expression:
        return _shallow(And(_conditions(children)), children[1])

    def negated(self, word: Token, operand: Expression) -> Expression:
        return _shallow(Not(_conditions((word, operand))[0]), word)

    def comparison(self, left: Expression, op: Token, right: Expression) -> Expression:
        return _shallow(Comparison(_OPERATORS[op], left, right), op)

    def between(
        self, operand: Expression, word: Token, low: Expression, _and: Token, high: Expression
    ) -> Expression:
        return _shallow(Between(operand, low, high), word)

    def not_between(
        self,
        operand: Expression,
        word: Token,
        _between: Token,
        low: Expression,
        _and: Token,
        high: Expression,
    ) -> Expression:
        return _shallow(Not(Between(operand, low, high)), word)

    def among(self, operand: Expression, word: Token, *items: Expression) -> Expression:
        return _shallow(In(operand, list(items)), word)

    def not_among(
        self, operand: Expression, word: Token, _in: Token, *items: Expression
    ) -> Expression:
        return _shallow(Not(In(operand, list(items))), word)

    def like(self, operand: Expression, word: Token, *strings: Token) -> Expression:
        return _shallow(Like(operand, self._pattern(strings)), word)

    def not_like(
        self, operand: Expression, word: Token, _like: Token, *strings: Token
    ) -> Expression:
        return _shallow(Not(Like(operand, self._pattern(strings))), word)

    def is_null(self, operand: Expression, word: Token, _null: Token) -> Expression:
        return _shallow(IsNull(operand), word)

    def is_not_null(
        self, operand: Expression, word: Token, _not: Token, _null: Token
    ) -> Expression:
        return _shallow(Not(IsNull(operand)), word)

    def exists(self, _word: Token, name: Expression) -> Expression:
        assert isinstance(name, Identifier)
        return Exists(name)

    # -- values ----------------------------------------------------------------------------

    def arithmetic(self, *children: Expression | Token) -> Expression:
        operands = [child for child in children if isinstance(child, Expression)]
        ops = [child for child in children if isinstance(child, Token)]
        if self.rules and all(op == "+" for op in ops) and _may_be_text(operands):
            return _shallow(Sum(operands), ops[0])
        for operand, op in zip(operands, [ops[0], *ops], strict=True):
            _expect_number(operand, op)
        return _shallow(Arithmetic("".join(ops), operands), ops[0])

    def signed(self, sign: Token, operand: Expression) -> Expression:
        _expect_number(operand, sign)
        if isinstance(operand, Literal) and isinstance(operand.constant, int | float):
            return Literal(-operand.constant if sign == "-" else operand.constant)
        return _shallow(Sign(sign == "-", operand), sign)

    def number(self, token: Token) -> Expression:
        text = token.lower()
        if text.startswith("0x"):
            if self.sql:
                return Literal(self._binary(token, text[2:]))
            return Literal(_exact(token, text[2:].rstrip("l"), 16))
        if re.fullmatch(r"[0-9]+l?", text):
            digits = text.rstrip("l")
            octal = digits.startswith("0") and len(digits) > 1 and not self.sql and not self.rules
            return Literal(_exact(token, digits, 8 if octal else 10))
        value = float(text.rstrip("fd"))
        if value in (float("inf"), float("-inf")):
            raise ExpressionError(token.start_pos or 0, "the number is too large")
        return Literal(value)

    def _binary(self, token: Token, digits: str) -> bytes:
        try:
            return bytes.fromhex(digits)
        except ValueError:
            raise ExpressionError(
                token.start_pos or 0, "a binary value has two digits for each byte"
            ) from None

    def text(self, token: Token) -> Expression:
        return Literal(_unquoted(token))

    def double_quoted(self, token: Token) -> Expression:
        if self.sql:
            return Literal(_unquoted(token))
        return _property(_unquoted(token))

    def truth(self, token: Token) -> Expression:
        return Literal(token.type == "TRUE")

    def call(self, name: Token, argument: Expression | None = None) -> Expression:
        function = name.lower()
        at = name.start_pos or 0
        if function == "newid":
            if argument is not None:
                raise ExpressionError(at, "newid() takes no argument")
            return NewId()
        if function in ("property", "p"):
            if argument is None:
                raise ExpressionError(at, f"{function}() takes the name of an application property")
            return _shallow(PropertyNamed(argument), name)
        raise ExpressionError(
            at, f"no function {name[:40]!r}; the functions are newid and property"
        )

    def _pattern(self, strings: tuple[Token, ...]) -> LikePattern:
        # The second of three tokens is the word ESCAPE.
        for token in strings:
            if token.type == "DOUBLE_QUOTED" and not self.sql:
                raise ExpressionError(
                    token.start_pos or 0, "a pattern is a string, in single quotes"
                )
        escape = _unquoted(strings[2]) if len(strings) > 1 else ""
        if len(strings) > 1 and len(escape) != 1:
            raise ExpressionError(strings[2].start_pos or 0, "ESCAPE takes a single character")
        try:
            return LikePattern(_unquoted(strings[0]), escape)
        except ValueError as error:
            raise ExpressionError(strings[0].start_pos or 0, str(error)) from None

    # -- names -----------------------------------------------------------------------------

    def plain_name(self, token: Token) -> Expression:
        name = str(token)
        if self.rules:
            if name.startswith(_SYSTEM):
                return _system(token, name[len(_SYSTEM) :])
            if name.startswith(_USER):
                return _property(name[len(_USER) :])
        field = JMS_FIELDS.get(name)
        if field is not None:
            return Field(name, field)
        section, dot, rest = _split(name)
        if not dot:
            return _property(name)
        if section in _ANNOTATIONS:
            return Annotation(rest)
        if section in _APPLICATION:
            return _property(rest)
        fields = HEADER_FIELDS if section in _HEADER else PROPERTIES_FIELDS
        field = fields.get(rest.replace("_", "-"))
        if field is not None:
            return Field(rest, field)
        if len(section) == 1 and not self.sql:
            # Application properties often have dots in their names.
            return _property(name)
        raise ExpressionError(token.start_pos or 0, f"{section} has no field {rest[:40]!r}")

    def quoted_name(self, token: Token) -> Expression:
        opening = min(at for at in (token.find("["), token.find('"')) if at >= 0)
        quoted = str(token[opening:])
        if quoted.startswith("["):
            name = quoted[1:-1].replace("[[", "[").replace("]]", "]")
        else:
            name = quoted[1:-1].replace('""', '"')
        section = str(token[:opening]).removesuffix(".")
        if section == "sys":
            return _system(token, name)
        return Annotation(name) if section in _ANNOTATIONS else _property(name)


def _split(name: str) -> tuple[str, str, str]:
    """Split a name into its section, a dot and the rest. Without a section, section and dot are
    ""."""
    for section in (*_ANNOTATIONS, *_APPLICATION, *_HEADER, *_PROPERTIES):
        if name.startswith(section + "."):
            return section, ".", name[len(section) + 1 :]
    return "", "", name


def _system(token: Token, name: str) -> Expression:
    """Return the field of ``sys.`` with this name."""
    field = _SYSTEM_FIELDS.get(name.replace("-", "").replace("_", "").lower())
    if field is None:
        raise ExpressionError(token.start_pos or 0, f"sys has no field {name[:40]!r}")
    return Field(name, field)


def _property(name: str) -> Expression:
    return ApplicationProperty(name)


def _unquoted(token: Token) -> str:
    quote = token[0]
    return str(token[1:-1]).replace(quote + quote, quote)


def _exact(token: Token, digits: str, base: int) -> int:
    at = token.start_pos or 0
    if len(digits.lstrip("0")) > 22:
        raise ExpressionError(at, "the number is too large")
    try:
        value = int(digits, base)
    except ValueError:
        raise ExpressionError(at, "not an octal number, though it begins with 0") from None
    if value >= 1 << 64:
        raise ExpressionError(at, "the number is too large")
    return value


def _conditions(children: tuple[Expression | Token, ...]) -> list[Expression]:
    """Return the operands among the children, after checking that they are conditions."""
    word = next(child for child in children if isinstance(child, Token))
    operands = [child for child in children if isinstance(child, Expression)]
    for operand in operands:
        if operand.kind not in (ANY, BOOLEAN):
            raise ExpressionError(word.start_pos or 0, f"{word.type} takes conditions, not values")
    return operands


def _may_be_text(operands: list[Expression]) -> bool:
    """Return whether the sum of these operands may be a string: none is certainly a number or a
    boolean."""
    return all(operand.kind in (ANY, OTHER) for operand in operands)


def _expect_number(operand: Expression, op: Token) -> None:
    if operand.kind not in (ANY, NUMBER):
        raise ExpressionError(op.start_pos or 0, f"{op} takes numbers")


def _shallow(expression: Expression, at: Expression | Token) -> Expression:
    """Return the expression, after checking the depth of its nesting."""
    if expression.depth > MAX_DEPTH:
        position = at.start_pos if isinstance(at, Token) else None
        raise ExpressionError(position or 0, f"more than {MAX_DEPTH} expressions are nested")
    return expression
