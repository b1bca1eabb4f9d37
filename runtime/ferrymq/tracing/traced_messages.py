"""The content of messages in transfers, joined from their frames within limits."""

from __future__ import annotations

from typing import Final

from ferrymq.tracing.redaction import Shown, clean, redacted, shown
from ferrymq_codec.composite import Composite
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_types.messaging import (
    AmqpSequence,
    AmqpValue,
    ApplicationProperties,
    Data,
    Properties,
    Target,
)
from ferrymq_types.transport import Attach, Begin, Detach, End, Role, Transfer
from ferrymq_types.unions import decode_section

# Limits: bytes of one message that are decoded; incomplete messages and links that are remembered.
_MOST: Final = 1 << 20
_MOST_OPEN: Final = 64
_MOST_LINKS: Final = 4096
_MOST_SECTIONS: Final = 50

_CBS: Final = "$cbs"
_BODIES: Final = (Data, AmqpSequence, AmqpValue)


class TracedMessages:
    """The messages that one side of a connection sends."""

    def __init__(self) -> None:
        # By channel and handle: the received part of a message, and its size.
        self._parts: dict[tuple[int, int], tuple[bytes, int]] = {}
        # Links that carry tokens, by channel and handle.
        self._secret: set[tuple[int, int]] = set()

    def meet(self, channel: int, body: Composite) -> None:
        """Learn about links from a performative other than transfer."""
        if isinstance(body, Attach):
            key = (channel, body.handle)
            self._parts.pop(key, None)
            self._secret.discard(key)
            target = body.target
            if body.role is Role.SENDER and isinstance(target, Target):
                if target.address == _CBS and len(self._secret) < _MOST_LINKS:
                    self._secret.add(key)
        elif isinstance(body, Detach):
            self._parts.pop((channel, body.handle), None)
            self._secret.discard((channel, body.handle))
        elif isinstance(body, Begin | End):
            self._secret = {key for key in self._secret if key[0] != channel}
            self._parts = {key: part for key, part in self._parts.items() if key[0] != channel}

    def add(
        self, channel: int, transfer: Transfer, payload: bytes, size: int
    ) -> tuple[int, bytes] | None:
        """Add the payload of a transfer. Return size and bytes of the message that it completes,
        None while the message is incomplete. Of a large message only the beginning is returned."""
        key = (channel, transfer.handle)
        before, total = self._parts.pop(key, (b"", 0))
        if transfer.aborted:
            return None
        total += size
        data = before + payload[: max(0, _MOST - len(before))]
        if transfer.more:
            if len(self._parts) >= _MOST_OPEN:
                # No real peer has so many incomplete messages; forget the oldest.
                del self._parts[next(iter(self._parts))]
            self._parts[key] = (data, total)
            return None
        return total, data

    def is_secret(self, channel: int, transfer: Transfer) -> bool:
        """Return whether the link carries tokens."""
        return (channel, transfer.handle) in self._secret


def sections(data: bytes, full: bool, secret: bool) -> tuple[list[object], str]:
    """Return the sections of a message, and the reason why there are no more of them.

    Without `full`, only the sizes of the body and the annotations are shown. `secret` is for
    messages with tokens: their bodies are never shown.
    """
    found: list[Shown | object] = []
    reader = Reader(data, 0, len(data))
    while reader.remaining():
        if len(found) >= _MOST_SECTIONS:
            return found, f"{reader.remaining()} bytes of further sections"
        start = int(reader.pos)
        try:
            section = decode_section(reader, "message")
        except DecodeError as error:
            return found, f"{error.field}: {error.reason}, at byte {error.offset} of the message"
        if isinstance(section, ApplicationProperties):
            secret = secret or section.value.get("operation") == "put-token"
        found.append(_section(section, int(reader.pos) - start, full, secret))
    return found, ""


def _section(section: Composite, size: int, full: bool, secret: bool) -> object:
    told = shown(section)
    if isinstance(section, _BODIES):
        value = section.value
        if secret:
            return Shown(told.name, {"value": redacted(value)})
        if not full:
            return Shown(told.name, {"bytes": len(value) if isinstance(value, bytes) else size})
        return Shown(told.name, {"value": clean(value)})
    if full or isinstance(section, Properties) or "value" not in told.fields:
        return told
    entries = told.fields["value"]
    count = len(entries) if isinstance(entries, list) else 0
    return Shown(told.name, {"entries": count})
