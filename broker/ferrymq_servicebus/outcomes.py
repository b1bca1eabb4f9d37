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
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.node import Node
    from ferrymq_types.unions import Outcome


def meant_outcome(node: Node, entry: Entry, state: Outcome, ending: bool) -> Outcome:
    """Return what a client means by an outcome. `ending`: while the link is drained or ends."""
    if isinstance(state, Modified):
        if state.message_annotations:
            change_properties(node, entry, state.message_annotations)
        return Modified(
            delivery_failed=not state.undeliverable_here,
            undeliverable_here=state.undeliverable_here,
        )
    if isinstance(state, Rejected):
        error = state.error
        if error is None or error.condition != DEAD_LETTER:
            return Modified(delivery_failed=True)
    elif isinstance(state, Released) and not ending:
        return Modified(delivery_failed=True)
    return state


def change_properties(node: Node, entry: Entry, properties: dict[str, object]) -> None:
    """Set application-properties, which these clients send as annotations of the outcome."""
    message = node.message_of(entry)
    draft = None if message is None else draft_of(message)
    if draft is None:
        return
    for name, value in properties.items():
        draft.set_application_property(name, value)
    node.amend(entry, draft.message())
