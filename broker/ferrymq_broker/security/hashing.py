"""Password hashes with argon2, which makes guessing passwords expensive (RFC 9106).

A user of another broker may come with a fast hash of a salt and the password, without the password
itself. Then argon2 hashes that hash: ``$salted-sha256$SALT$argon2id$…``, with the salt in Base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
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

# The fast hashes of other brokers, over the salt and then the password, by the name of the form.
_SALTED: Final = "salted-"
SALTED_HASHES: Final = ("sha256", "sha512", "md5")
# The most bytes of a salt.
_MOST_SALT: Final = 64

_hasher: Final = PasswordHasher(time_cost=ROUNDS, memory_cost=MEMORY_KIB, parallelism=THREADS)


def make_user(
    password: str, groups: Iterable[str] = (), iterations: int = ITERATIONS
) -> StoredUser:
    """Return the stored data of a user with this password. Takes a tenth of a second."""
    return StoredUser(
        _hasher.hash(password.encode()), derive_keys(password, iterations), frozenset(groups)
    )


def user_of_salted_hash(
    algorithm: str, salt: bytes, digest: bytes, groups: Iterable[str] = ()
) -> StoredUser:
    """Return the stored data of a user of whom only a fast hash of the salt and the password is
    known. `algorithm` is one of `SALTED_HASHES`. Such a user has no SCRAM keys, so only PLAIN
    accepts the password. Raises ValueError for a salt or a digest of another length."""
    if algorithm not in SALTED_HASHES or not 0 < len(salt) <= _MOST_SALT:
        raise ValueError("the hash has a wrong algorithm or salt")
    if len(digest) != hashlib.new(algorithm, usedforsecurity=False).digest_size:
        raise ValueError(f"the hash has {len(digest)} bytes, which is no length of {algorithm}")
    prefix = f"${_SALTED}{algorithm}${base64.b64encode(salt).decode()}"
    return StoredUser(f"{prefix}{_hasher.hash(digest)}", {}, frozenset(groups))


def verify(hashed: str, password: str) -> bool:
    """Return whether the password is right. Takes long; other threads run meanwhile."""
    secret = password.encode(errors="surrogatepass")
    try:
        algorithm, salt, slow = _parts(hashed)
        if algorithm:
            secret = hashlib.new(algorithm, salt + secret, usedforsecurity=False).digest()
        return _hasher.verify(slow, secret)
    except (VerificationError, InvalidHashError, ValueError):
        return False


def _parts(hashed: str) -> tuple[str, bytes, str]:
    """Return the algorithm and the salt of a fast hash, both empty without one, and the argon2
    hash. Raises ValueError."""
    if not hashed.startswith(f"${_SALTED}"):
        return "", b"", hashed
    _, form, salt, rest = hashed.split("$", 3)
    algorithm = form.removeprefix(_SALTED)
    try:
        decoded = base64.b64decode(salt, validate=True)
    except binascii.Error:
        decoded = b""
    if algorithm not in SALTED_HASHES or not 0 < len(decoded) <= _MOST_SALT:
        raise ValueError("the hash has a wrong algorithm or salt")
    return algorithm, decoded, f"${rest}"


def check_hash(hashed: str) -> None:
    """Raise ValueError if it is no hash of argon2id, or if it costs too much to verify."""
    hashed = _parts(hashed)[2]
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
    found = Counter(_parts(hashed)[2].rsplit("$", 2)[0] for hashed in hashes).most_common(1)
    cost = found[0][0] if found else f"$argon2id$v=19$m={MEMORY_KIB},t={ROUNDS},p={THREADS}"
    salt, digest = (_base64(secrets.token_bytes(size)) for size in (16, 32))
    return f"{cost}${salt}${digest}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")
