"""Redaction of secrets: credentials in SASL frames, tokens, and values with the name of a secret.
The length of a value is shown in its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ferrymq_codec.composite import Composite
from ferrymq_codec.containers import Array, PairMap, Repeated
from ferrymq_codec.errors import CodecError
from ferrymq_codec.limits import MAX_U32
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import TerminusDurability, TerminusExpiryPolicy
from ferrymq_types.registry import typed
from ferrymq_types.transport import ReceiverSettleMode, SenderSettleMode

# Values with these names are secrets in any place: `security_token`, `x-opt-password`, …
_NAMES: Final = re.compile(
    r"token|passw|secret|signature|credential|authorization|api.?key|access.?key|private.?key", re.I
)
# Values of this form are secrets in any place: shared access signatures, JSON web tokens, HTTP
# credentials.
_VALUES: Final = re.compile(
    r"SharedAccessSignature|SharedAccessKey|\bsig=|\beyJ[\w-]{8,}\.|\bBearer\s"
    r"|-----BEGIN [A-Z ]*KEY",
    re.I,
)
# A search in longer texts would be slow, and later characters are never shown.
_SEARCHED: Final = 65536

# Fields with these default values are not shown. False is different from them.
_NO_DEFAULT: Final = object()
_DEFAULTS: Final[dict[str, object]] = {
    "max_frame_size": MAX_U32,
    "channel_max": 0xFFFF,
    "handle_max": MAX_U32,
    "snd_settle_mode": SenderSettleMode.MIXED,
    "rcv_settle_mode": ReceiverSettleMode.FIRST,
    "durable": TerminusDurability.NONE,
    "expiry_policy": TerminusExpiryPolicy.SESSION_END,
    "timeout": 0,
    "message_format": 0,
    "priority": 4,
}


@dataclass(frozen=True, slots=True)
class Redacted:
    """Placeholder of a redacted value. `size` is in bytes, None if the value is not one text."""

    size: int | None

    def __str__(self) -> str:
        return "<redacted>" if self.size is None else f"<redacted, {self.size} bytes>"


@dataclass(frozen=True, slots=True)
class Shown:
    """Described value with named fields: those that are set, without secrets."""

    name: str
    fields: dict[str, object]


def redacted(value: object) -> Redacted:
    """Return the placeholder of a value."""
    if isinstance(value, str):
        return Redacted(len(value.encode("utf-8", "replace")))
    return Redacted(len(value) if isinstance(value, bytes) else None)


def shown(composite: Composite) -> Shown:
    """Return a composite's fields by the names of the specification, in their order."""
    kind = type(composite)
    sasl = kind.__name__.startswith("Sasl")
    fields: dict[str, object] = {}
    for attribute in getattr(kind, "__dataclass_fields__", ()):
        value = getattr(composite, attribute)
        if value is None or value is False or _DEFAULTS.get(attribute, _NO_DEFAULT) == value:
            continue
        # A challenge alone is no secret, but together with the answer it allows guessing the
        # password.
        hidden = sasl and isinstance(value, bytes)
        fields[attribute.replace("_", "-")] = redacted(value) if hidden else clean(value)
    return Shown(_kebab(kind.__name__), fields)


def clean(value: object) -> object:
    """Return a value without its secrets."""
    if isinstance(value, str):
        return redacted(value) if _VALUES.search(str(value)[:_SEARCHED]) else value
    if isinstance(value, bytes):
        text = value[:_SEARCHED].decode("latin-1")
        return redacted(value) if _VALUES.search(text) else value
    if isinstance(value, Composite):
        return shown(value)
    if isinstance(value, Described):
        try:
            known = typed(value)
        except CodecError:
            known = value
        if isinstance(known, Composite):
            return shown(known)
        return Shown(f"@{value.descriptor}", {"value": clean(value.value)})
    if isinstance(value, PairMap):
        return Pairs([(_key(key), _named(key, item)) for key, item in value.items()])
    if isinstance(value, Mapping):
        return Pairs([(_key(key), _named(key, item)) for key, item in value.items()])
    if isinstance(value, Array) and isinstance(value.items, Repeated):
        # There may be thousands of millions of elements that take no bytes.
        one = [clean(item) for item in islice(value.items, 1)]
        return Shown(f"array-of-{value.element_type}", {"count": len(value), "each": one})
    if isinstance(value, list | tuple | Array):
        return [clean(item) for item in value]
    return value


class Pairs(list[tuple[object, object]]):
    """Entries of a map, which may have keys that a dict cannot hold."""


def _named(key: object, value: object) -> object:
    text = key.decode("latin-1") if isinstance(key, bytes) else str(key)
    return redacted(value) if _NAMES.search(text[:_SEARCHED]) else clean(value)


def _key(key: object) -> object:
    return clean(key)


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
