"""Conversion of the names of AMQP 0-9-1 to Python's, with the table of exceptions, and the checks.

The rule: the method `declare-ok` of class `queue` is `QueueDeclareOk`, in module `queue`; its field
`message-count` is `message_count`; a constant is `NOT_FOUND`.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from typing import Final

from ferrymq_codegen.amqp_0_9_1.model import Class, Constant
from ferrymq_codegen.identifiers import Scope, snake_name, words
from ferrymq_codegen.mistakes import Mistakes

FIELD_NAMES: Final = {
    # `type` would hide the builtin in the class body, and says less.
    ("exchange.declare", "type"): "exchange_type",
    # All other methods call it so.
    ("confirm.select", "nowait"): "no_wait",
}
"""Fields that are not named by the rule, by method and name."""

SECRET_FIELDS: Final = frozenset(
    {
        ("connection.start-ok", "response"),
        ("connection.secure", "challenge"),
        ("connection.secure-ok", "response"),
        ("connection.update-secret", "new-secret"),
    }
)
"""Fields with credentials, by method and name: no repr shows them."""

RESERVED_MODULES: Final = frozenset({"constants", "methods", "registry"})
"""Names that no class may have: modules of the output."""

# Attributes and methods of the class `Method` of the codec.
_ATTRIBUTES: Final = frozenset(
    {
        *("CLASS_ID", "METHOD_ID", "NAME", "SYNCHRONOUS", "HAS_CONTENT", "RESPONSES"),
        *("TO_SERVER", "TO_CLIENT", "encode", "to_bytes", "from_bytes", "self"),
    }
)


def method_class(cls: str, method: str) -> str:
    """Return the Python class of a method."""
    return _camel(cls) + _camel(method)


def properties_class(cls: str) -> str:
    """Return the Python class of the properties of a class."""
    return _camel(cls) + "Properties"


def _camel(name: str) -> str:
    return "".join(word[0].upper() + word[1:] for word in words(name))


def module_name(cls: str) -> str:
    """Return the module of a class."""
    return snake_name(cls)


def field_name(path: str, name: str) -> str:
    """Return the attribute of a field of the method `path`; a keyword gets a trailing
    underscore."""
    found = FIELD_NAMES.get((path, name))
    if found is not None:
        return found
    result = snake_name(name)
    return result + "_" if keyword.iskeyword(result) else result


def constant_name(name: str) -> str:
    """Return the name of a constant."""
    return snake_name(name).upper()


def check(constants: Iterable[Constant], classes: Iterable[Class], mistakes: Mistakes) -> None:
    """Report names that cannot become identifiers and names that collide."""
    scope = Scope(mistakes)
    for constant in constants:
        scope.take(constant_name(constant.name), f"constant {constant.name}", constant.at)
    modules = Scope(mistakes, RESERVED_MODULES)
    names = Scope(mistakes)
    for cls in classes:
        modules.take(module_name(cls.name), f"class {cls.name}", cls.at)
        if cls.fields:
            names.take(properties_class(cls.name), f"properties of class {cls.name}", cls.at)
            _fields(cls.name, cls, mistakes)
        for method in cls.methods:
            path = f"{cls.name}.{method.name}"
            names.take(method_class(cls.name, method.name), f"method {path}", method.at)
            fields = Scope(mistakes, _ATTRIBUTES)
            for field in method.fields:
                fields.take(field_name(path, field.name), f"field {path}.{field.name}", field.at)


def _fields(path: str, cls: Class, mistakes: Mistakes) -> None:
    scope = Scope(mistakes, _ATTRIBUTES)
    for field in cls.fields:
        scope.take(field_name(path, field.name), f"property {path}.{field.name}", field.at)
