"""Passwords that were found good a moment ago, so that a thousand clients that come back at once do
not wait for a thousand slow hashes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

# How long a good password is remembered, in seconds, and how many of them are.
SECONDS: Final = 60.0
MOST: Final = 4096


class PasswordDigest:
    """Makes digests of passwords with a key that nobody else has and no disk ever sees: they say
    whether a password is the same, to nobody but this process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, username: str, password: str) -> bytes:
        """The digest of the password of a user."""
        name = username.encode(errors="surrogatepass")
        said = len(name).to_bytes(4, "big") + name + password.encode(errors="surrogatepass")
        return hashlib.blake2b(said, key=self._key, digest_size=32).digest()


class PasswordCache:
    """Which digests are those of good passwords, for a while. `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        # By user: only the last password that was good.
        self._good: OrderedDict[str, tuple[bytes, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._good)

    def knows(self, username: str, digest: bytes) -> bool:
        """Whether the password was good a moment ago. Being asked does not prolong that."""
        known = self._good.get(username)
        if known is None:
            return False
        good, until = known
        if self._now() >= until:
            del self._good[username]
            return False
        return hmac.compare_digest(good, digest)

    def remember(self, username: str, digest: bytes) -> None:
        """The password is good."""
        self._good[username] = (digest, self._now() + SECONDS)
        self._good.move_to_end(username)
        while len(self._good) > MOST:
            self._good.popitem(last=False)

    def forget(self) -> None:
        """What was good may be so no more."""
        self._good.clear()
