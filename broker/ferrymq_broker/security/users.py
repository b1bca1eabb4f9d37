"""What is kept of a user: nothing a password could be read from."""

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

# How often SCRAM hashes a password that is kept in a file: every client has to do it as well, at
# each login, which takes it some 20 ms. Who steals the file tries passwords with these keys.
ITERATIONS: Final = 50_000
# What the names of users and groups take in a file, in a log and on a screen.
MAX_NAME: Final = 255

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class StoredUser:
    """`password` is a hash as argon2 writes it. `scram` has the keys by mechanism; none, if SCRAM
    does not allow the password."""

    password: str = field(repr=False)
    scram: dict[str, ScramKeys] = field(default_factory=dict, repr=False, compare=False)
    groups: frozenset[str] = _NONE


def check_name(name: str) -> str:
    """A name that a user can log in with by every mechanism. Raises ValueError, which says why."""
    if 0 < len(name) <= MAX_NAME and name.isascii() and name.isprintable():
        return name
    prepared = prepare_name(name)
    if prepared != name:
        raise ValueError(f"{name!r} is not written as it is compared: {prepared!r}")
    return name


def derive_keys(password: str, iterations: int = DEFAULT_ITERATIONS) -> dict[str, ScramKeys]:
    """The SCRAM keys of a password, by mechanism. A password that SASLprep (RFC 4013) does not
    allow, with control characters, has none."""
    try:
        return {name: ScramKeys.derive(name, password, iterations) for name in SCRAM_MECHANISMS}
    except ValueError:
        return {}


def usual_iterations(users: Mapping[str, StoredUser]) -> int:
    """How often SCRAM hashes the passwords of most of the users."""
    counts = [keys.iterations for user in users.values() for keys in user.scram.values()]
    return most_common(counts, ITERATIONS)


def most_common(values: Iterable[int], default: int) -> int:
    """The value that there is most of; `default` without any."""
    found = Counter(values).most_common(1)
    return found[0][0] if found else default
