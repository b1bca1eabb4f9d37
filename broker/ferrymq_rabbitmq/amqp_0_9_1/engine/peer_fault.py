"""The fault of a peer, which ends a channel or the connection."""

from __future__ import annotations

from ferrymq_codec_0_9_1.method import Method
from ferrymq_types_0_9_1.constants import SOFT_ERRORS


class PeerFault(Exception):
    """The exception for input that breaks a rule. It never leaves the engine.

    `code` is the reply code (AMQP 0-9-1 §1.2); `method` is what caused it, if a method did. `soft`
    is whether it ends the channel only.
    """

    def __init__(self, code: int, text: str, method: Method | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.method = method
        self.soft = code in SOFT_ERRORS
