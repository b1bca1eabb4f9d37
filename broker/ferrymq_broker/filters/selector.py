"""Selectors as filters, each text parsed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq_broker.filters.expressions import Expression
from ferrymq_broker.filters.filter import Filter
from ferrymq_broker.filters.values import TRUE
from ferrymq_broker.nodes.message_view import view_of

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage

# Selectors by dialect and text. Workers that share a queue often use the same selector.
_known: Final[dict[tuple[bool, str], Selector]] = {}
_KNOWN: Final = 512
# The longest text that is cached: each character may take a hundred bytes in the expressions.
_CHARACTERS: Final = 512


@final
class Selector(Filter):
    """A filter that passes messages for which a condition is true, not false or unknown."""

    __slots__ = ("condition",)

    def __init__(self, condition: Expression) -> None:
        super().__init__("selector " + condition.render())
        self.condition: Expression = condition

    def matches(self, message: BrokerMessage) -> bool:
        """Return whether the condition is true for the message."""
        return self.condition.test(view_of(message)) == TRUE


def selector(text: str, sql: bool = False) -> Selector:
    """Return the filter of a JMS selector, or with `sql` of an SQL filter of the AMQP draft.

    Raises `BrokerError` (amqp:invalid-field), which names the position of the mistake.
    """
    known = _known.get((sql, text))
    if known is None:
        # Imported here, because the import takes time and few brokers need the parser.
        from ferrymq_broker.filters.selector_parser import parse

        known = Selector(parse(text, sql))
        if len(text) > _CHARACTERS:
            return known
        if len(_known) >= _KNOWN:
            _known.clear()
        _known[(sql, text)] = known
    return known
