"""The conformance ledger: every rule of the documents, who keeps it and which tests prove it.

The files in `clauses/` are data; this module reads them and refuses anything it does not know, so
that a mistyped key or a test that was renamed cannot leave a rule unproved unnoticed.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CLAUSES: Final = Path(__file__).with_name("clauses")

LEVELS: Final = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY", "RULE")


class Side(StrEnum):
    """One of the two programs that peers of ours speak to."""

    BROKER = "broker"
    CLIENT = "client"


_BOTH: Final = frozenset(Side)
_BROKER: Final = frozenset({Side.BROKER})
_CLIENT: Final = frozenset({Side.CLIENT})
# Who has to keep a clause, and which of our programs can be that.
BINDS: Final = {
    **dict.fromkeys(
        ["both ends", "sender", "receiver", "encoder", "decoder", "application"], _BOTH
    ),
    **dict.fromkeys(("server", "broker", "intermediary", "source", "target"), _BROKER),
    "client": _CLIENT,
    # The two sides of a transaction.
    "controller": _CLIENT,
    "resource": _BROKER,
}
DOCUMENTS: Final = {
    "core": "AMQP 1.0",
    "pairing": "Link pairing 1.0",
    "broker": "The broker book",
}
_REQUIRED: Final = frozenset({"id", "section", "level", "binds", "text"})
_EXEMPT: Final = {f"no_{side}": side for side in Side}
_OPTIONAL: Final = frozenset({"tests", "why_not", "not_kept", "instead", *_EXEMPT})
_ID: Final = re.compile(r"(core|pairing|broker)-(\d+(?:\.\d+)*)-([1-9]\d*)")
_TEST: Final = re.compile(r"(tests/[\w/]+/test_\w+\.py)::(?:(Test\w+)::)?(test_\w+|runTest)")


class LedgerError(ValueError):
    """Something in the ledger is wrong; the message says where and what."""


class Standing(StrEnum):
    """How far a clause is proved, before any test has run."""

    TESTED = "tested"
    NOT_APPLICABLE = "not applicable"
    NOT_KEPT = "not kept"
    """The rule does apply and is not kept; the entry says why, and what happens instead."""
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Clause:
    """One rule of a document, in our words."""

    id: str
    """`<document>-<section>-<n>`, stable for ever."""
    section: str
    level: str
    """One of `LEVELS`."""
    binds: str
    """One of `BINDS`."""
    text: str
    tests: tuple[str, ...] = ()
    """`file::test`, relative to the repository; every one has to pass."""
    why_not: str = ""
    """Why the rule does not apply to this project; empty if it does."""
    not_kept: str = ""
    """Why the rule is not kept although it applies; empty if it is."""
    instead: tuple[str, ...] = ()
    """Tests of what is done instead, where there is a reason; every one has to pass."""
    exempt: tuple[tuple[Side, str], ...] = ()
    """Sides whose peers cannot tell, or that the clause does not bind after all, and why."""

    @property
    def sides(self) -> frozenset[Side]:
        """The programs that keep the clause where a peer can see it."""
        return BINDS[self.binds] - {side for side, _ in self.exempt}

    @property
    def document(self) -> str:
        """`core`, `pairing` or `broker`."""
        return self.id.partition("-")[0]

    @property
    def binding(self) -> bool:
        """Whether the document leaves no choice: MUST or MUST NOT."""
        return self.level in ("MUST", "MUST NOT")

    @property
    def standing(self) -> Standing:
        """Tested, with one of two kinds of reason, or open."""
        if self.tests:
            return Standing.TESTED
        if self.not_kept:
            return Standing.NOT_KEPT
        return Standing.NOT_APPLICABLE if self.why_not else Standing.OPEN

    @property
    def reason(self) -> str:
        """Why nothing proves the rule; empty if there are tests of it."""
        return self.why_not or self.not_kept

    @property
    def evidence(self) -> tuple[str, ...]:
        """The tests to run: those of the rule, or of what is done instead."""
        return self.tests or self.instead


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the ledger: the clauses of a document's part, in its order."""

    name: str
    """The file's name without its ending."""
    title: str
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """All parts, in the order of their file names."""

    parts: tuple[Part, ...]

    @property
    def clauses(self) -> list[Clause]:
        """Every clause of every part."""
        return [clause for part in self.parts for clause in part.clauses]

    @property
    def tests(self) -> list[str]:
        """Every test that any clause names, once and sorted."""
        return sorted({test for clause in self.clauses for test in clause.evidence})


def load(directory: Path = CLAUSES, root: Path = ROOT) -> Ledger:
    """Read and check `directory/*.toml`; the tests they name are looked up under `root`.

    Raises LedgerError for anything that is unknown, missing, doubled or contradictory.
    """
    files = sorted(directory.glob("*.toml"))
    if not files:
        raise LedgerError(f"{directory}: no clauses")
    ledger = Ledger(tuple(_part(file, root) for file in files))
    seen: set[str] = set()
    for clause in ledger.clauses:
        if clause.id in seen:
            raise LedgerError(f"{clause.id}: there are two clauses of this id")
        seen.add(clause.id)
    return ledger


def _part(file: Path, root: Path) -> Part:
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise LedgerError(f"{file.name}: {error}") from error
    _keys(file.name, content, frozenset({"title", "clause"}), frozenset())
    title, entries = content["title"], content["clause"]
    if not isinstance(title, str) or not title.strip():
        raise LedgerError(f"{file.name}: the title is empty")
    if not isinstance(entries, list):
        raise LedgerError(f"{file.name}: write every clause as [[clause]]")
    clauses = tuple(
        _clause(f"{file.name}, clause {number}", entry, root)
        for number, entry in enumerate(entries, 1)
    )
    return Part(file.stem, title, clauses)


def _clause(where: str, entry: dict[str, object], root: Path) -> Clause:
    where = f"{where} ({entry['id']})" if "id" in entry else where
    _keys(where, entry, _REQUIRED, _OPTIONAL)
    text = {key: _text(where, key, entry[key]) for key in sorted(_REQUIRED)}
    matched = _ID.fullmatch(text["id"])
    if matched is None or matched[2] != text["section"]:
        raise LedgerError(f"{where}: the id has to be <document>-{text['section']}-<n>")
    if text["level"] not in LEVELS:
        raise LedgerError(f"{where}: level {text['level']!r} is none of {', '.join(LEVELS)}")
    if text["binds"] not in BINDS:
        raise LedgerError(f"{where}: {text['binds']!r} is nobody a clause can bind")
    proofs = [key for key in ("tests", "why_not", "not_kept") if key in entry]
    if len(proofs) > 1:
        raise LedgerError(f"{where}: there can be {proofs[0]} or {proofs[1]}, not both")
    if "instead" in entry and proofs not in (["why_not"], ["not_kept"]):
        raise LedgerError(f"{where}: instead goes with why_not or not_kept")
    why_not = _text(where, "why_not", entry["why_not"]) if "why_not" in entry else ""
    not_kept = _text(where, "not_kept", entry["not_kept"]) if "not_kept" in entry else ""
    tests = _tests(where, "tests", entry["tests"], root) if "tests" in entry else ()
    instead = _tests(where, "instead", entry["instead"], root) if "instead" in entry else ()
    exempt = tuple(
        (side, _text(where, key, entry[key])) for key, side in _EXEMPT.items() if key in entry
    )
    for side, _ in exempt:
        if side not in BINDS[text["binds"]]:
            raise LedgerError(f"{where}: no_{side} says what binds = {text['binds']!r} says")
    return Clause(
        tests=tests, why_not=why_not, not_kept=not_kept, instead=instead, exempt=exempt, **text
    )


def _keys(
    where: str, given: Iterable[str], required: frozenset[str], optional: frozenset[str]
) -> None:
    for key in sorted(required.difference(given)):
        raise LedgerError(f"{where}: {key} is missing")
    for key in sorted(set(given) - required - optional):
        raise LedgerError(f"{where}: {key} is not a key")


def _text(where: str, key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or value != value.strip() or "\n" in value:
        raise LedgerError(f"{where}: {key} has to be one line of text")
    return value


def _tests(where: str, key: str, value: object, root: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise LedgerError(f"{where}: {key} has to list one test at least")
    for test in value:
        matched = _TEST.fullmatch(test) if isinstance(test, str) else None
        if matched is None:
            raise LedgerError(f"{where}: {test!r} is not tests/.../test_x.py::test_y")
        if not _exists(root / matched[1], matched[2], matched[3]):
            raise LedgerError(f"{where}: there is no test {test}")
    if len(set(value)) != len(value):
        raise LedgerError(f"{where}: a test is named twice")
    return tuple(value)


def _exists(file: Path, owner: str | None, name: str) -> bool:
    if not file.is_file():
        return False
    # A Hypothesis state machine becomes a test by assignment (`TestX = Machine.TestCase`).
    wanted = (None, owner) if name == "runTest" else (owner, name)
    return wanted in _defined(file)


@cache
def _defined(file: Path) -> frozenset[tuple[str | None, str]]:
    """What a file defines, as (class or None, name); nothing is imported for it."""
    found: set[tuple[str | None, str]] = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add((None, node.name))
        elif isinstance(node, ast.ClassDef):
            found.update(
                (node.name, inner.name)
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            )
        elif isinstance(node, ast.Assign):
            found.update(
                (None, target.id) for target in node.targets if isinstance(target, ast.Name)
            )
    return frozenset(found)
