"""The blocking client has everything that the asyncio client has, under the same names.

What is above the line "For the client" in a class of `ferrymq.aio` is for users, and so are public
attributes. `EXCEPTIONS` has what is different on purpose, each with its reason.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrymq import aio, blocking

_UPWARDS = "a blocking object is the face of one asyncio object and keeps no face of its owner"
_BOOKS = "what the connection keeps for its own parts"

EXCEPTIONS = {
    "Connection.sessions": _BOOKS,
    "Connection.polled": _BOOKS,
    "Connection.recovery": _BOOKS,
    "Connection.link_redirects": _BOOKS,
    "Connection.freed": _BOOKS,
    "Connection.call_soon": _BOOKS,
    "Connection.types": _BOOKS,
    "Session.connection": _UPWARDS,
    "Session.leaving": _BOOKS,
    "Sender.dropped": _BOOKS,
    "Sender.session": _UPWARDS,
    "Receiver.dropped": _BOOKS,
    "Receiver.session": _UPWARDS,
    "Receiver.closed_here": "`for` over the receiver ends by it; `closed` is for users",
    "Receiver.confirming": _BOOKS,
    "Transaction.session": _UPWARDS,
    "Transaction.acquirers": _BOOKS,
    "Pair.replies": 'always "pair"',
}

CLASSES = sorted(name for name in aio.__all__ if inspect.isclass(getattr(aio, name)))
INTERNAL = re.compile(r"^    # ── (For the client|Events) ─", re.MULTILINE)


def for_users(kind: type) -> dict[str, Any]:
    """The methods, properties and attributes of a class that are for users, by name.

    An attribute that `__init__` sets stands as None.
    """
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("ferrymq."):
            continue
        source, first = source_of(base)
        text = "".join(source)
        header = INTERNAL.search(text)
        end = first + (len(source) if header is None else text.count("\n", 0, header.start()))
        for node in ast.walk(ast.parse(textwrap.dedent(text))):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                found.update(dict.fromkeys(attributes_set(node)))
        for name, member in vars(base).items():
            code = member.fget if isinstance(member, property) else member
            if not inspect.isfunction(code):
                continue
            made_elsewhere = code.__code__.co_filename != str(file_of(base))
            if made_elsewhere or code.__code__.co_firstlineno < end:
                found[name] = member
    return {name: member for name, member in found.items() if not name.startswith("_")}


def file_of(kind: type) -> Path:
    """The file with the source of a class, compiled or not."""
    loaded = Path(str(sys.modules[kind.__module__].__file__))
    return loaded.with_name(loaded.name.split(".")[0] + ".py")


def source_of(kind: type) -> tuple[list[str], int]:
    """The lines of a class and the number of the first."""
    text = file_of(kind).read_text()
    (node,) = (
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    return text.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno], node.lineno


def attributes_set(init: ast.FunctionDef) -> list[str]:
    """The attributes of itself that an `__init__` assigns."""
    return [
        node.attr
        for node in ast.walk(init)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    ]


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any, Any]]:
    """Names, kinds, defaults and annotations, as they are written."""
    return [
        (one.name, one.kind, one.default, one.annotation)
        for one in inspect.signature(function).parameters.values()
    ]


def returned(function: Callable[..., Any]) -> str:
    """What a call gives in the end: the thing itself, not a promise of it."""
    text = str(inspect.signature(function).return_annotation)
    text = re.sub(r"^Opening\[(\w+)\]$", r"\1", text)
    text = re.sub(r"^Opening(\w+)$", r"\1", text)
    return text.replace("asyncio.", "").replace("AsyncIterator", "Iterator")


def pairs() -> list[tuple[str, str]]:
    return [(kind, name) for kind in CLASSES for name in for_users(getattr(aio, kind))]


def test_both_have_the_same_names() -> None:
    assert aio.__all__ == blocking.__all__
    missing, more = [], []
    for kind in CLASSES:
        theirs, ours = for_users(getattr(aio, kind)), for_users(getattr(blocking, kind))
        missing += [f"{kind}.{name}" for name in theirs.keys() - ours.keys()]
        more += [f"{kind}.{name}" for name in ours.keys() - theirs.keys()]
    assert sorted(missing) == sorted(EXCEPTIONS)
    assert more == []


@pytest.mark.parametrize(("kind", "name"), pairs())
def test_each_is_called_the_same_way(kind: str, name: str) -> None:
    if f"{kind}.{name}" in EXCEPTIONS:
        return
    theirs = for_users(getattr(aio, kind))[name]
    ours = for_users(getattr(blocking, kind))[name]
    if not inspect.isfunction(theirs):
        assert not inspect.isfunction(ours), "a property became a method"
        if isinstance(theirs, property) and isinstance(ours, property):
            assert returned(theirs.fget) == returned(ours.fget)  # type: ignore[arg-type]
    else:
        assert inspect.isfunction(ours) and not inspect.iscoroutinefunction(ours)
        assert parameters(ours) == parameters(theirs)
        assert returned(ours) == returned(theirs)
    for member in (theirs, ours):
        if member is not None:
            assert member.__doc__, f"{kind}.{name} has no docstring"


@pytest.mark.parametrize("kind", CLASSES)
def test_blocks_and_loops_are_there_where_they_are(kind: str) -> None:
    theirs, ours = getattr(aio, kind), getattr(blocking, kind)
    assert hasattr(ours, "__iter__") == hasattr(theirs, "__aiter__")
    # What is opened by awaiting it is closed at the end of a block.
    assert hasattr(ours, "__enter__") == (hasattr(theirs, "close") or hasattr(theirs, "__aenter__"))
    assert theirs.__doc__ and ours.__doc__


def test_connect_takes_the_same() -> None:
    assert parameters(blocking.connect) == parameters(aio.connect)
