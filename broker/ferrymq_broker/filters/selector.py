"""Selectors as filters, each text parsed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq_broker.filters.expressions import Expression
from ferrymq_broker.filters.filter import Filter
from ferrymq_broker.filters.values import TRUE
from ferrymq_broker.nodes.message_view import view_of

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage

# Selectors by their dialect and text. Workers that share a queue all come with the same one.
_known: Final[dict[tuple[bool, str], Selector]] = {}
_KNOWN: Final = 512
# Longer ones are not kept: each character may be a hundred bytes of what it was made into.
_CHARACTERS: Final = 512


@final
class Selector(Filter):
    """Passes messages for which a condition is true, neither false nor unknown."""

    __slots__ = ("condition",)

    def __init__(self, condition: Expression) -> None:
        super().__init__("selector " + condition.render())
        self.condition = condition

    def matches(self, message: BrokerMessage) -> bool:
        """Whether the condition is true for the message."""
        return self.condition.test(view_of(message)) == TRUE


def selector(text: str, sql: bool = False) -> Selector:
    """The filter that a selector of JMS describes, or with `sql` a filter of the AMQP draft.

    Raises `BrokerError` (amqp:invalid-field) which says where it is wrong.
    """
    known = _known.get((sql, text))
    if known is None:
        # Here, because it takes time and few brokers ever see a selector.
        from ferrymq_broker.filters.selector_parser import parse

        known = Selector(parse(text, sql))
        if len(text) > _CHARACTERS:
            return known
        if len(_known) >= _KNOWN:
            _known.clear()
        _known[(sql, text)] = known
    return known
