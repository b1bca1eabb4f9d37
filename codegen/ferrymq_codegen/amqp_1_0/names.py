"""Conversion of the spec's names to Python's, with the tables of exceptions.

The rule: `some-name` is `SomeName` as a class, `some_name` as a field, `SOME_NAME` as a constant or
choice. The tables have the names for which the rule fails, each entry with its reason.
"""

from __future__ import annotations

import builtins
import keyword
from typing import Final

from ferrymq_codegen.amqp_1_0.imports import IMPORTS
from ferrymq_codegen.identifiers import snake_name, words

CLASS_NAMES: Final = {
    # `Error` is the composite; these name conditions, and `ConnectionError` is a builtin.
    "amqp-error": "AmqpErrorCondition",
    "connection-error": "ConnectionErrorCondition",
    "session-error": "SessionErrorCondition",
    "link-error": "LinkErrorCondition",
    "transaction-error": "TransactionErrorCondition",
}
"""Types whose class is not named by the rule."""

MAP_KEYS: Final = {
    # AMQP 1.0 §2.8.13, §3.5.8, §3.5.9: symbols only. The XML says just `map`.
    "fields": "symbol",
    "filter-set": "symbol",
    "node-properties": "symbol",
    # §3.2.10: symbols or ulongs.
    "annotations": "annotations",
    "delivery-annotations": "annotations",
    "message-annotations": "annotations",
    "footer": "annotations",
    # §3.2.5: strings, and simple values only.
    "application-properties": "string",
}
"""Restricted maps whose keys the specification restricts in prose only."""

OPEN_CAPABILITIES: Final = frozenset(
    {
        # §4.5.2: the field exists for distributed transactions, whose identifiers the
        # specification leaves to others: no type provides it, any value is taken.
        "global-tx-id",
    }
)
"""Capabilities that fields require although no type provides them, on purpose."""

WIDER_FIELDS: Final = {
    # §3.5.3: a peer that names a delivery state that is not an outcome breaks a rule of the link,
    # but the frame can be read. The program must check whether the state is an outcome.
    ("source", "default-outcome"): "delivery-state",
}
"""Fields, by type and name, that are read as more than they require: as this capability."""

RESERVED_MODULES: Final = frozenset(
    {"unions", "registry", "descriptors", "schema", "containers", "descriptor"}
)
"""Names that no part may have: four modules of the output, and two names (`_containers`,
`_descriptor`) that generated modules use and that an import of the part would hide."""

_ANNOTATION_NAMES: Final = frozenset(
    {
        *("bool", "int", "float", "str", "bytes", "list", "dict", "object"),
        *("Decimal", "UUID", "Array"),
        # Those of `from_bytes`.
        *("bytearray", "memoryview", "staticmethod"),
    }
)
_METHODS: Final = frozenset({"encode", "from_bytes", "self", "to_bytes"})
_LOCALS: Final = frozenset({"r", "w", "value", "count", "outer", "mark", "nulls", "start", "field"})
# Parts of another package, beside parts of the same name in this one.
_IMPORTED: Final = "amqp-"
# Names of generated functions and of those of the codec begin with these words.
_VERBS: Final = ("read_", "write_", "decode_", "encode_")


def class_name(name: str) -> str:
    """Return the class, enum or alias of a type; a name that would hide a keyword or a builtin
    (`Warning`) gets a trailing underscore."""
    special = CLASS_NAMES.get(name)
    if special is not None:
        return special
    result = "".join(word[0].upper() + word[1:] for word in words(name))
    return result + "_" if keyword.iskeyword(result) or hasattr(builtins, result) else result


def field_name(name: str) -> str:
    """Return the attribute of a field: keywords, and names that the class body itself uses,
    get a trailing underscore; a field that only shares a builtin's name (`filter`) keeps it."""
    result = "_".join(words(name)).lower()
    if keyword.iskeyword(result) or result in _ANNOTATION_NAMES or result in _METHODS:
        return result + "_"
    return result


def local_name(attribute: str) -> str:
    """Return the local variable that holds a field in generated functions.

    It gets a trailing underscore where the function uses the name for another purpose: a variable
    of its own, a builtin, a function of the codec or a generated one.
    """
    taken = attribute in _LOCALS or attribute in IMPORTS or hasattr(builtins, attribute)
    return attribute + "_" if taken or attribute.startswith(_VERBS) else attribute


def union_name(words: tuple[str, ...]) -> str:
    """Return the alias for the types that `requires` permits: `Outcome`, or `AOrB` for several
    words."""
    return "Or".join(class_name(word) for word in words)


def union_words(words: tuple[str, ...]) -> str:
    """Return the same name as part of a function's name."""
    return "_or_".join(snake_name(word) for word in words)


def constant_name(name: str) -> str:
    """Return the constant of a definition, or the member of a choice."""
    return "_".join(words(name)).upper()


def module_name(name: str) -> str:
    """Return the module of a part."""
    return snake_name(name)


def imported_name(part: str) -> str:
    """Return the name that a part of another package has in this one."""
    return _IMPORTED + part


def imported_module(part: str) -> str:
    """Return the module of a part of another package, given by its name in this one."""
    return module_name(part.removeprefix(_IMPORTED))


def with_article(name: str) -> str:
    """Return the name with its article: `an open`, `a close`."""
    return ("an " if name[0] in "aeiou" else "a ") + name
