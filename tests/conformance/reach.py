"""Which running program a test speaks to, derived from what the test does, not from what it says.

The source of a test is followed through the fixtures that it asks for and the helpers that it
calls, within `tests/`; nothing is imported. What is found decides:

- a broker that listens on a socket (`ferrymq serve` in a process of its own, or `BrokerServer`):
  the test is one **over the wire**, of the broker; in `tests/client` it is one of the client;
- the client (`ferrymq.connect`, `ferrymq.blocking.connect`) and a peer that listens on a socket:
  over the wire, of the client;
- the broker's parts without a socket: the broker **in memory**;
- neither: the **engine** and what it stands on, the same code at both ends.
"""

from __future__ import annotations

import ast
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple


class Reach(StrEnum):
    """What a test reaches, the farthest."""

    BROKER = "the running broker, over the wire"
    CLIENT = "the running client, over the wire"
    MEMORY = "the broker in memory"
    ENGINE = "the engine"


# Calls that open a listening socket, whatever they are called on.
_LISTENS: Final = ("create_server", "start_server", "listen")
_SERVERS: Final = (
    "ferrymq_broker.server.BrokerServer",
    "ferrymq_broker.server.server.BrokerServer",
)
_CLIENTS: Final = ("ferrymq.connect", "ferrymq.blocking.connect", "ferrymq.aio.connect")
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class _Module(NamedTuple):
    """What a file under `tests/` defines and imports."""

    names: dict[str, list[ast.AST]]
    imported: dict[str, str]
    """Name here: dotted name there."""
    automatic: list[str]
    """Fixtures that every test below the file's folder gets."""


def reach_of(test: str, root: Path) -> Reach:
    """What `file::test` or `file::Class::test` reaches; the file is looked up under `root`."""
    path, _, name = test.partition("::")
    owner, _, inner = name.rpartition("::")
    file = root / path
    found = _found(file, owner or inner, inner, root)
    broker = any(word in _SERVERS for word in found) or {"ferrymq_broker", "serve"} <= found
    client = any(word in _CLIENTS for word in found)
    if client and (path.startswith("tests/client/") or not broker):
        if broker or any(word in found for word in _LISTENS):
            return Reach.CLIENT
    if broker:
        return Reach.BROKER
    parts = any(word.startswith("ferrymq_broker") for word in found)
    return Reach.MEMORY if parts else Reach.ENGINE


def _found(file: Path, start: str, test: str, root: Path) -> set[str]:
    """The dotted names, attributes and words that a test's source comes to."""
    places = [file, *_conftests(file, root)]
    waiting = [(file, start)]
    for place in places:
        waiting += [(place, name) for name in _module(place).automatic]
    found: set[str] = set()
    seen: set[tuple[Path, str]] = set()
    while waiting:
        here, name = waiting.pop()
        if (here, name) in seen:
            continue
        seen.add((here, name))
        module = _module(here)
        first, _, rest = name.partition(".")
        if first not in module.names:
            if first in module.imported:
                target = ".".join(filter(None, [module.imported[first], rest]))
                there = _place(target, root)
                if there is None:
                    found.add(target)
                else:
                    waiting.append(there)
            continue
        for node in module.names[first]:
            # Of a class of tests, only the test that is meant.
            names, fixtures, words = _words(_method(node, test) if first == start else node)
            found |= words
            waiting += [(here, one) for one in names]
            for one in fixtures:
                origin = next((p for p in [here, *places] if _defines(p, one)), None)
                if origin is not None:
                    waiting.append((origin, one))
    return found


def _method(node: ast.AST, test: str) -> ast.AST:
    if isinstance(node, ast.ClassDef) and test != node.name:
        for inner in node.body:
            if isinstance(inner, _DEFINITIONS) and inner.name == test:
                return inner
    return node


@cache
def _words(top: ast.AST) -> tuple[list[str], set[str], set[str]]:
    """Names with their attributes, fixtures asked for, and attributes and strings of one word."""
    names: list[str] = []
    fixtures: set[str] = set()
    words: set[str] = set()
    for node in ast.walk(top):
        if isinstance(node, ast.Attribute):
            if dotted := _dotted(node):
                names.append(dotted)
            words.add(node.attr)
        elif isinstance(node, ast.Name):
            names.append(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _gets_fixtures(node):
            fixtures |= {argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.isidentifier():
                words.add(node.value)
                # `usefixtures` names them so.
                fixtures.add(node.value)
    return names, fixtures, words


def _gets_fixtures(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell tests and fixtures from helpers, whose arguments are given by their callers."""
    decorators = (ast.unparse(one) for one in node.decorator_list)
    return node.name.startswith("test") or any("fixture" in one for one in decorators)


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        left = _dotted(node.value)
        return f"{left}.{node.attr}" if left else ""
    return ""


def _defines(file: Path, name: str) -> bool:
    module = _module(file)
    return name in module.imported or any(
        isinstance(node, _DEFINITIONS) for node in module.names.get(name, [])
    )


def _conftests(file: Path, root: Path) -> list[Path]:
    folders = [folder for folder in file.parents if folder.is_relative_to(root / "tests")]
    return [folder / "conftest.py" for folder in folders if (folder / "conftest.py").is_file()]


def _place(dotted: str, root: Path) -> tuple[Path, str] | None:
    """File and name of what is imported from `tests/`; None for everything else."""
    parts = dotted.split(".")
    if parts[0] != "tests":
        return None
    for size in range(len(parts) - 1, 0, -1):
        file = root.joinpath(*parts[:size]).with_suffix(".py")
        if file.is_file():
            return file, parts[size]
    return None


@cache
def _module(file: Path) -> _Module:
    module = _Module({}, {}, [])
    for node in ast.walk(tree := ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                module.imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                module.imported[name] = alias.name if alias.asname else name
    for node in tree.body:
        if isinstance(node, _DEFINITIONS):
            module.names.setdefault(node.name, []).append(node)
            if any("autouse=True" in ast.unparse(one) for one in node.decorator_list):
                module.automatic.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    module.names.setdefault(target.id, []).append(node.value)
    return module
