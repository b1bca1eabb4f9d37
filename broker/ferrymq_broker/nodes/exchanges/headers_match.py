"""The comparison that a binding of a headers exchange makes.

``x-match`` says whether all arguments must match (the default) or any; ``all`` and ``any`` leave
out those whose names begin with ``x-``, ``all-with-x`` and ``any-with-x`` do not. An argument
without a value matches whatever value the message has. The headers of a message are its
application-properties and, for names that begin with ``x-``, its message-annotations.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.message_view import MessageView
from ferrymq_broker.values.bindings import X_MATCH, read_match

_OURS: Final = "x-"


@final
class HeadersMatch:
    """The arguments of one binding. Raises `BrokerError` if they ask for an unknown match."""

    __slots__ = ("any", "_wanted")

    def __init__(self, arguments: dict[str, object]) -> None:
        try:
            match = read_match(arguments)
        except ValueError as error:
            raise BrokerError("amqp:invalid-field", str(error)) from None
        self.any = match.startswith("any")
        with_x = match.endswith("-with-x")
        self._wanted: list[tuple[str, object]] = []
        for name, value in arguments.items():
            if name != X_MATCH and (with_x or not name.startswith(_OURS)):
                self._wanted.append((name, value))

    def matches(self, view: MessageView) -> bool:
        """Return whether the message has them: of none at all, it has all and not any."""
        found = False
        properties = view.application_properties
        for name, value in self._wanted:
            has = name in properties
            if has:
                given = properties[name]
                found = value is None or _equal(value, given)
            elif name.startswith(_OURS):
                annotations = view.message_annotations
                found = name in annotations and (value is None or _equal(value, annotations[name]))
            else:
                found = False
            if found == self.any:
                return found
        return not self.any


def _equal(wanted: object, given: object) -> bool:
    """Return whether two values are the same; a boolean is no number, and NaN not even itself."""
    for value in (wanted, given):
        if isinstance(value, Decimal) and value.is_nan():
            # Comparing a signaling one raises.
            return False
    return wanted == given and isinstance(wanted, bool) == isinstance(given, bool)
