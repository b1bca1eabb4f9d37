"""Names of a specification as identifiers of Python: what all protocols share."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from typing import Final

from ferrymq_codegen.mistakes import Location, Mistakes

# Characters that no name may have: generated code quotes names in strings.
_UNQUOTABLE: Final = re.compile(r"""["'\\{}\x00-\x1f\x7f-\x9f]""")


def words(name: str) -> list[str]:
    """Return the words of a name: what is not a letter or a digit separates them."""
    return [word for word in re.split(r"[^0-9A-Za-z]+", name) if word]


def snake_name(name: str) -> str:
    """Return the name by the rule for functions, modules and fields, before any exception."""
    return "_".join(words(name)).lower()


def is_quotable(name: str) -> bool:
    """Return whether generated code can quote `name` in a string unchanged."""
    return _UNQUOTABLE.search(name) is None


def is_name(name: str) -> bool:
    """Return whether `name` is a Python identifier."""
    return name.isidentifier() and not keyword.iskeyword(name)


class Scope:
    """Names of one Python scope, each with the element that it stands for."""

    def __init__(self, mistakes: Mistakes, reserved: Iterable[str] = ()) -> None:
        self.mistakes = mistakes
        self.taken = {name: f"the generator's own {name}" for name in reserved}

    def take(self, python: str, what: str, at: Location) -> None:
        """Reserve a name, or report why that is impossible."""
        if not is_quotable(what):
            self.mistakes.add(at, f"{what} has a character that no name may have")
            return
        if not is_name(python):
            self.mistakes.add(at, f'{what} has no name in Python: "{python}"')
            return
        owner = self.taken.setdefault(python, what)
        if owner != what:
            self.mistakes.add(at, f"{what} and {owner} are both {python} in Python")
