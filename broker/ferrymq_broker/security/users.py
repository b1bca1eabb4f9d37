"""The stored data of a user, from which the password cannot be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ferrymq.engine.scram import (
    DEFAULT_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramKeys,
    prepare_name,
)

# SCRAM iterations of passwords in a file. Every client computes them at each login, in some 20 ms.
# An attacker with the file has to compute them for each guessed password.
ITERATIONS: Final = 50_000
# The most characters of names of users and groups.
MAX_NAME: Final = 255

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class StoredUser:
    """A user. `password` is an argon2 hash. `scram` has the keys by mechanism, none if SCRAM does
    not allow the password."""

    password: str = field(repr=False)
    scram: dict[str, ScramKeys] = field(default_factory=dict, repr=False, compare=False)
    groups: frozenset[str] = _NONE


def check_name(name: str) -> str:
    """Return the name, if a user can log in with it by every mechanism. Raises ValueError, which
    says why not."""
    if 0 < len(name) <= MAX_NAME and name.isascii() and name.isprintable():
        return name
    prepared = prepare_name(name)
    if prepared != name:
        raise ValueError(f"{name!r} is not in normal form; use {prepared!r}")
    return name


def derive_keys(password: str, iterations: int = DEFAULT_ITERATIONS) -> dict[str, ScramKeys]:
    """Return the SCRAM keys of a password, by mechanism; none for a password that SASLprep (RFC
    4013) does not allow, for example with control characters."""
    try:
        return {name: ScramKeys.derive(name, password, iterations) for name in SCRAM_MECHANISMS}
    except ValueError:
        return {}


def usual_iterations(users: Mapping[str, StoredUser]) -> int:
    """Return the number of SCRAM iterations that most users have."""
    counts = [keys.iterations for user in users.values() for keys in user.scram.values()]
    return most_common(counts, ITERATIONS)


def most_common(values: Iterable[int], default: int) -> int:
    """Return the most common value; `default` if there are none."""
    found = Counter(values).most_common(1)
    return found[0][0] if found else default
