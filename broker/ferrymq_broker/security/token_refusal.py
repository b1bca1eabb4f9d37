"""The refusal of a token, and the largest token.

This module imports nothing that takes long, because few brokers take tokens.
"""

from __future__ import annotations

from typing import Final

from ferrymq_broker.security.authenticators import LoginRefusedError

# The most characters of a token, which a frame before the login has room for.
MAX_TOKEN: Final = 8192


class TokenRefusedError(LoginRefusedError):
    """An exception: a token was refused. The message is for the log and has nothing of the
    token."""
