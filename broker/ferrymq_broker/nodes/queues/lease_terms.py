"""The link property `ferrymq:lease` of a receiver that reads a lease: a map of `holder`, `number`,
and the positions `first` and `until` (not included)."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError

LEASE_PROPERTY: Final = "ferrymq:lease"
_KEYS: Final = ("holder", "number", "first", "until")


@final
class LeaseTerms:
    """The part of a lease that a link reads: lease `number` of `holder`, from the position `first`
    to before `until`; -1 for its end."""

    __slots__ = ("holder", "number", "first", "until")

    def __init__(self, value: object) -> None:
        """Read the link property. Raises `BrokerError`."""
        fields: dict[str, object] = {}
        if isinstance(value, dict):
            fields = {str(key): item for key, item in value.items()}
        holder = fields.get("holder")
        if not isinstance(holder, str) or any(key not in _KEYS for key in fields):
            raise BrokerError(
                "amqp:invalid-field",
                f"the link property {LEASE_PROPERTY} must be a map of holder, number, and first "
                "and until where not all messages are wanted",
            )
        self.holder: str = str(holder)
        self.number: i64 = _number(fields, "number", -1)
        self.first: i64 = _number(fields, "first", 0)
        self.until: i64 = _number(fields, "until", -1)


def _number(fields: dict[str, object], key: str, default: int) -> int:
    value = fields.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise BrokerError(
            "amqp:invalid-field", f"{key} in the link property {LEASE_PROPERTY} must be a number"
        )
    return int(value)
