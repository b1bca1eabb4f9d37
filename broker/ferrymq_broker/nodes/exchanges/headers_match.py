"""The comparison that a binding of a headers exchange makes.

``x-match`` says whether all arguments must match (the default) or any one. ``all`` and ``any``
ignore arguments whose names begin with ``x-``; ``all-with-x`` and ``any-with-x`` compare them too.
An argument without a value matches any value of that header. The headers of a message are its
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
    """The arguments of one binding: the `wanted` headers, all of them or `any`. Raises
    `BrokerError` if ``x-match`` has an unknown value."""

    __slots__ = ("any", "wanted")

    def __init__(self, arguments: dict[str, object]) -> None:
        try:
            match = read_match(arguments)
        except ValueError as error:
            raise BrokerError("amqp:invalid-field", str(error)) from None
        self.any: bool = match.startswith("any")
        with_x = match.endswith("-with-x")
        self.wanted: list[tuple[str, object]] = []
        for name, value in arguments.items():
            if name != X_MATCH and (with_x or not is_annotation(name)):
                self.wanted.append((name, value))

    def matches(self, view: MessageView) -> bool:
        """Return whether the message has the headers. Without arguments, *all* matches and *any*
        does not."""
        found = False
        properties = view.application_properties
        for name, value in self.wanted:
            has = name in properties
            if has:
                given = properties[name]
                found = value is None or _equal(value, given)
            elif is_annotation(name):
                annotations = view.message_annotations
                found = name in annotations and (value is None or _equal(value, annotations[name]))
            else:
                found = False
            if found == self.any:
                return found
        return not self.any


def is_annotation(name: str) -> bool:
    """Return whether a header of this name may be a message-annotation."""
    return name.startswith(_OURS)


def _equal(wanted: object, given: object) -> bool:
    """Return whether two values are equal; a boolean equals no number, and NaN does not equal
    NaN."""
    for value in (wanted, given):
        if isinstance(value, Decimal) and value.is_nan():
            # The comparison of a signaling NaN raises.
            return False
    return wanted == given and isinstance(wanted, bool) == isinstance(given, bool)
