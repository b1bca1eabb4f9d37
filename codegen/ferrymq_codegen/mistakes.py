"""Mistakes in a spec, and their locations.

Every stage collects `Mistake`s in a `Mistakes` list and continues as far as it can, so that one run
shows them all; `Mistakes.stop_if_any` raises `SpecError` at the end of a stage on which later ones
depend.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A place in a spec file; `line` counts from 1, 0 means the file as a whole."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """Mistake in the form `file:line: description`."""

    at: Location
    text: str

    def __str__(self) -> str:
        return f"{self.at}: {self.text}"


class SpecError(Exception):
    """No code can be generated from a spec. `mistakes` has every reason, in file order."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        self.mistakes = sorted(set(mistakes))
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


class Mistakes:
    """A list of mistakes, which begins with the mistakes of an earlier stage."""

    def __init__(self, found: Iterable[Mistake] = ()) -> None:
        self.found = list(found)

    def add(self, at: Location, text: str) -> None:
        """Record one mistake."""
        self.found.append(Mistake(at, text))

    def stop_if_any(self) -> None:
        """Raise `SpecError` when at least one mistake was noted."""
        if self.found:
            raise SpecError(self.found)


def shown(path: Path) -> str:
    """Return `path` as messages show it: relative to the working directory if it lies below it."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.as_posix()
