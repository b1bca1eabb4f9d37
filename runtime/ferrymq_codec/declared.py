"""Declarations of classes: fields and parameters, the same for compiled and interpreted classes.

A compiled class knows the types of its attributes in C only. Its `__annotations__` say `type` for
every union, its signature has no annotations, and some signatures are missing. Generated modules
and `ferrymq.Message` therefore declare their classes here when they are loaded, on both builds, so
that `typing.get_type_hints`, `inspect.signature`, `dataclasses.fields`, pydantic and Hypothesis
find the same. Signatures and type hints take time to make, so they are made when they are first
requested.

The module is not compiled: it works with Python's own descriptions of classes.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature
from types import NoneType, UnionType
from typing import Any, Final

from ferrymq_codec.errors import EncodeError


class Declaration:
    """The parameters of a class, which are its fields if it is a dataclass.

    `annotations` are the types as source text, in the order of the parameters; `defaults` are those
    of the parameters that have one; the parameters in `positional` may be given by position.
    """

    __slots__ = ("annotations", "cls", "defaults", "positional", "signature")

    def __init__(
        self,
        cls: type,
        annotations: dict[str, str],
        defaults: dict[str, Any],
        positional: tuple[str, ...],
    ) -> None:
        self.cls: type = cls
        self.annotations: dict[str, str] = annotations
        self.defaults: dict[str, Any] = defaults
        self.positional: tuple[str, ...] = positional
        self.signature: Signature | None = None

    def hints(self) -> dict[str, Any]:
        """Return the type of each parameter; its source text if a name in it is not defined."""
        try:
            found = typing.get_type_hints(self.cls)
        except NameError:
            return dict(self.annotations)
        return {name: found[name] for name in self.annotations}

    def make_signature(self) -> Signature:
        """Return the signature of the class; it is made once."""
        signature = self.signature
        if signature is None:
            signature = Signature(
                [
                    Parameter(
                        name,
                        (
                            Parameter.POSITIONAL_OR_KEYWORD
                            if name in self.positional
                            else Parameter.KEYWORD_ONLY
                        ),
                        default=self.defaults.get(name, Parameter.empty),
                        annotation=hint,
                    )
                    for name, hint in self.hints().items()
                ]
            )
            self.signature = signature
        return signature


class _LazySignature:
    """The `__signature__` of declared classes, which `inspect.signature` looks for first."""

    __slots__ = ()

    def __get__(self, instance: object, owner: type) -> Signature:
        """Return the signature; raises AttributeError for a subclass with its own `__init__`."""
        declaration = _declaration_of(owner)
        if instance is not None or declaration is None:
            raise AttributeError("__signature__")
        return declaration.make_signature()


_DECLARATIONS: Final[dict[type, Declaration]] = {}
_SIGNATURE: Final = _LazySignature()


def declare(
    cls: type,
    annotations: dict[str, str],
    defaults: dict[str, Any],
    positional: tuple[str, ...] = (),
) -> None:
    """Declare the parameters of a class, and its fields if it is a dataclass: see `Declaration`."""
    described: Any = cls
    described.__annotations__ = annotations
    described.__signature__ = _SIGNATURE
    _DECLARATIONS[cls] = Declaration(cls, annotations, defaults, positional)
    if is_dataclass(cls):
        for field in fields(cls):
            name = field.name
            # A text, as in every module that postpones the evaluation of annotations.
            field.type = annotations[name]
            field.kw_only = name not in positional
            if name in defaults:
                field.default = defaults[name]


def _declaration_of(cls: type) -> Declaration | None:
    """Return the declaration that describes how `cls` is called."""
    for base in cls.__mro__:
        declaration = _DECLARATIONS.get(base)
        if declaration is not None or "__init__" in base.__dict__:
            return declaration
    return None


def given(value: Any) -> dict[str, Any]:
    """Return the arguments that make a value equal to this one, without those at their default.

    An empty map equals None.
    """
    declaration = _declaration_of(type(value))
    if declaration is None:
        raise TypeError(f"{type(value).__name__} is not declared")
    missing = object()
    arguments = {}
    for name in declaration.annotations:
        argument = getattr(value, name)
        default = declaration.defaults.get(name, missing)
        if argument != default and not (default is None and argument == {}):
            arguments[name] = argument
    return arguments


def pydantic_schema(
    cls: type, handler: Any, dump: Callable[[Any], dict[str, Any]]
) -> dict[str, Any]:
    """Return the core schema of pydantic for a declared class.

    An instance is valid as it is. A dict, or a JSON object, is checked as keyword arguments, from
    which an instance is made. An instance is serialized as the result of `dump` for it.
    """
    declaration = _declaration_of(cls)
    if declaration is None:
        raise TypeError(f"{cls.__name__} is not declared")
    parameters: list[dict[str, Any]] = []
    for name, hint in declaration.hints().items():
        schema = handler.generate_schema(hint)
        if name in declaration.defaults:
            schema = {"type": "default", "schema": schema, "default": declaration.defaults[name]}
        mode = "positional_or_keyword" if name in declaration.positional else "keyword_only"
        parameters.append({"name": name, "mode": mode, "schema": schema})
    call = {
        "type": "call",
        "arguments_schema": {"type": "arguments", "arguments_schema": parameters},
        "function": cls,
    }

    def validate(value: object, check: Callable[[object], object]) -> object:
        return value if isinstance(value, cls) else check(value)

    # Pydantic names the function in its errors.
    validate.__qualname__ = cls.__qualname__
    return {
        "type": "function-wrap",
        "function": {"type": "no-info", "function": validate},
        "schema": call,
        "serialization": {
            "type": "function-plain",
            "function": dump,
            "return_schema": {
                "type": "typed-dict",
                "total": False,
                "fields": {
                    parameter["name"]: {"type": "typed-dict-field", "schema": parameter["schema"]}
                    for parameter in parameters
                },
            },
        },
    }


def mistyped(value: Any) -> EncodeError | None:
    """Return the error for the first field of a declared composite that has the wrong type."""
    declaration = _declaration_of(type(value))
    if declaration is None:
        return None
    for name, hint in declaration.hints().items():
        found = getattr(value, name)
        if not _fits(found, hint):
            path = f"{_kebab(declaration.cls.__name__)}.{_kebab(name)}"
            return EncodeError(path, f"expected {_text(hint)}, found {type(found).__name__}")
    return None


def _fits(value: object, hint: Any) -> bool:
    """Return whether a value has a type; the elements of containers count."""
    origin = typing.get_origin(hint)
    if origin is None:
        return (
            hint is Any or hint is object or not isinstance(hint, type) or isinstance(value, hint)
        )
    arguments = typing.get_args(hint)
    if origin in (UnionType, typing.Union):
        return any(_fits(value, one) for one in arguments)
    if not isinstance(value, origin):
        return False
    if isinstance(value, dict):
        pairs = value.items()
        return all(_fits(k, arguments[0]) and _fits(v, arguments[1]) for k, v in pairs)
    if isinstance(value, list):
        return all(_fits(one, arguments[0]) for one in value)
    return True


def _text(hint: Any) -> str:
    """Return a type without the modules of its classes."""
    if typing.get_origin(hint) in (UnionType, typing.Union):
        return " | ".join(_text(one) for one in typing.get_args(hint))
    if hint is NoneType:
        return "None"
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _kebab(name: str) -> str:
    """Return the name in the specification of a class or an attribute."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", "-", name.rstrip("_")).lower()
