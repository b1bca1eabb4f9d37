"""A cache of valid passwords, so that a thousand clients that reconnect at once do not wait for a
thousand slow hashes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

# The seconds for which a valid password is remembered, and the most passwords.
SECONDS: Final = 60.0
MOST: Final = 4096


class PasswordDigest:
    """Digests of passwords with a random key that is only in memory, to compare passwords within
    this process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, username: str, password: str) -> bytes:
        """Return the digest of the password of a user."""
        name = username.encode(errors="surrogatepass")
        said = len(name).to_bytes(4, "big") + name + password.encode(errors="surrogatepass")
        return hashlib.blake2b(said, key=self._key, digest_size=32).digest()


class PasswordCache:
    """The digests of valid passwords, for a limited time. `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        # The last valid password of each user.
        self._good: OrderedDict[str, tuple[bytes, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._good)

    def knows(self, username: str, digest: bytes) -> bool:
        """Return whether the password is in the cache. This does not prolong its time."""
        known = self._good.get(username)
        if known is None:
            return False
        good, until = known
        if self._now() >= until:
            del self._good[username]
            return False
        return hmac.compare_digest(good, digest)

    def remember(self, username: str, digest: bytes) -> None:
        """Add a valid password."""
        self._good[username] = (digest, self._now() + SECONDS)
        self._good.move_to_end(username)
        while len(self._good) > MOST:
            self._good.popitem(last=False)

    def forget(self) -> None:
        """Remove all passwords, because users have changed."""
        self._good.clear()
