"""Limits and argument names of the bindings of exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# The longest routing or binding key, in characters.
MAX_KEY: Final = 2048
# The argument of a binding that says how a headers exchange compares the other arguments.
X_MATCH: Final = "x-match"
_MATCHES: Final = ("all", "any", "all-with-x", "any-with-x")


def read_match(arguments: Mapping[str, object]) -> str:
    """Return the ``x-match`` of a binding's arguments. Raises ValueError if it is unknown."""
    match = arguments.get(X_MATCH, "all")
    if not isinstance(match, str) or match not in _MATCHES:
        raise ValueError(f"x-match {str(match)[:100]!r} is not one of {', '.join(_MATCHES)}")
    return match
