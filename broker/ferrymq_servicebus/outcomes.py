"""Outcomes of the vendor's clients, in the broker's terms.

| a client | sends | here |
|---|---|---|
| completes | accepted | accepted |
| abandons | modified; the client for JavaScript leaves delivery-failed out | modified, failed |
| defers | modified with undeliverable-here | the same |
| dead-letters | rejected with the condition for it | rejected |
| rejects without that condition | rejected | modified, failed |
| releases | released | modified, failed; released while the link ends |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_broker.nodes.message_draft import draft_of
from ferrymq_servicebus.dead_letters import DEAD_LETTER
from ferrymq_types.messaging import Modified, Rejected, Released

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_types.unions import Outcome


def meant_outcome(state: Outcome, ending: bool) -> Outcome:
    """Return what a client means by an outcome. `ending`: while the link is drained or ends."""
    if isinstance(state, Modified):
        return Modified(
            delivery_failed=not state.undeliverable_here,
            undeliverable_here=state.undeliverable_here,
            message_annotations=state.message_annotations,
        )
    if isinstance(state, Rejected):
        error = state.error
        if error is None or error.condition != DEAD_LETTER:
            return Modified(delivery_failed=True)
    elif isinstance(state, Released) and not ending:
        return Modified(delivery_failed=True)
    return state


def with_properties(message: BrokerMessage, properties: dict[str, object]) -> BrokerMessage:
    """Return the message with application-properties, which these clients send as annotations of
    the outcome."""
    draft = draft_of(message)
    if draft is None:
        return message
    for name, value in properties.items():
        draft.set_application_property(name, value)
    return draft.message()
