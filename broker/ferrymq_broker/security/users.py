"""What is kept of a user: nothing a password could be read from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ferrymq.engine.scram import DEFAULT_ITERATIONS, SCRAM_MECHANISMS, ScramKeys

# How often SCRAM hashes a password that is kept in a file: as slow as clients can bear, for who
# steals the file tries passwords with these keys and not with the hash of argon2.
ITERATIONS: Final = 100_000

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class StoredUser:
    """`password` is a hash as argon2 writes it. `scram` has the keys by mechanism; none, if SCRAM
    does not allow the password."""

    password: str = field(repr=False)
    scram: dict[str, ScramKeys] = field(default_factory=dict, repr=False)
    groups: frozenset[str] = _NONE


def derive_keys(password: str, iterations: int = DEFAULT_ITERATIONS) -> dict[str, ScramKeys]:
    """The SCRAM keys of a password, by mechanism. A password that SASLprep (RFC 4013) does not
    allow, with control characters, has none."""
    try:
        return {name: ScramKeys.derive(name, password, iterations) for name in SCRAM_MECHANISMS}
    except ValueError:
        return {}
