"""Messages to filter."""

from __future__ import annotations

from ferrymq_broker.filters.selector import selector
from ferrymq_broker.nodes.message import BrokerMessage, admit
from ferrymq_types.messaging import (
    ApplicationProperties,
    Data,
    Header,
    MessageAnnotations,
    Properties,
)
from ferrymq_types.unions import Section
from tests.broker.harness import encode


def message(
    *,
    header: Header | None = None,
    annotations: dict[str | int, object] | None = None,
    properties: Properties | None = None,
    application: dict[str, object] | None = None,
    origin: int = 0,
) -> BrokerMessage:
    """A message of these sections, as the broker has taken it in."""
    sections: list[Section] = []
    if header is not None:
        sections.append(header)
    if annotations is not None:
        sections.append(MessageAnnotations(value=annotations))
    if properties is not None:
        sections.append(properties)
    if application is not None:
        sections.append(ApplicationProperties(value=application))
    made = admit(encode(*sections, Data(value=b"body")), 0)
    made.origin = origin
    return made


def verdict(text: str, subject: BrokerMessage, sql: bool = False) -> bool | None:
    """What a selector is for a message: true, false or unknown, of which only true passes."""
    if selector(text, sql).matches(subject):
        return True
    if selector(f"(({text}) AND TRUE) IS NULL", sql).matches(subject):
        return None
    assert selector(f"NOT ({text})", sql).matches(subject)
    return False
