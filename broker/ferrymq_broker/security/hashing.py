"""Password hashes with argon2, which makes guessing passwords expensive (RFC 9106)."""

from __future__ import annotations

import base64
import secrets
from collections import Counter
from collections.abc import Iterable
from typing import Final

from argon2 import PasswordHasher, Type, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

from ferrymq_broker.security.users import ITERATIONS, StoredUser, derive_keys

# The cost of one verification: 19 MiB, 2 rounds, one thread; some 20 ms.
MEMORY_KIB: Final = 19 * 1024
ROUNDS: Final = 2
THREADS: Final = 1

# The most cost that a hash in a file may have, so that no login takes a gigabyte, or minutes.
_MOST_KIB: Final = 256 * 1024
_MOST_ROUNDS: Final = 20
_MOST_THREADS: Final = 16

_hasher: Final = PasswordHasher(time_cost=ROUNDS, memory_cost=MEMORY_KIB, parallelism=THREADS)


def make_user(
    password: str, groups: Iterable[str] = (), iterations: int = ITERATIONS
) -> StoredUser:
    """Return the stored data of a user with this password. Takes a tenth of a second."""
    return StoredUser(
        _hasher.hash(password.encode()), derive_keys(password, iterations), frozenset(groups)
    )


def verify(hashed: str, password: str) -> bool:
    """Return whether the password is right. Takes long; other threads run meanwhile."""
    try:
        return _hasher.verify(hashed, password.encode(errors="surrogatepass"))
    except (VerificationError, InvalidHashError):
        return False


def check_hash(hashed: str) -> None:
    """Raise ValueError if it is no hash of argon2id, or if it costs too much to verify."""
    try:
        found = extract_parameters(hashed)
    except (InvalidHashError, ValueError):
        raise ValueError("the text is not an argon2 hash") from None
    if found.type is not Type.ID:
        raise ValueError("the hash is not an argon2id hash")
    memory, rounds, threads = found.memory_cost, found.time_cost, found.parallelism
    if memory > _MOST_KIB or rounds > _MOST_ROUNDS or threads > _MOST_THREADS:
        raise ValueError(
            f"the hash is too expensive to verify: {memory} KiB, {rounds} rounds, {threads} threads"
        )


def hash_of_nobody(hashes: Iterable[str]) -> str:
    """Return a hash that no password has, with the cost that most of the hashes have."""
    # The cost is before the salt.
    found = Counter(hashed.rsplit("$", 2)[0] for hashed in hashes).most_common(1)
    cost = found[0][0] if found else f"$argon2id$v=19$m={MEMORY_KIB},t={ROUNDS},p={THREADS}"
    salt, digest = (_base64(secrets.token_bytes(size)) for size in (16, 32))
    return f"{cost}${salt}${digest}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")
