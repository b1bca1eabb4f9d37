"""What a link takes.

All of it is asked of addresses with aliases followed, before a node is looked up or made. Who may
do nothing of the kind somewhere is told the same whether there is such a node or not. Who may do
something there gets to know what it is that he lacks: the broker may look at the node for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker import audit
from ferrymq_broker.access.access import DYNAMIC, NEW_DYNAMIC, UNAUTHORIZED, refusal
from ferrymq_broker.access.patterns import PART
from ferrymq_broker.access.rights import BROWSE, CREATE, DEAD_LETTER, MANAGE, RECEIVE
from ferrymq_broker.nodes.policy import QueuePolicy, TopicPolicy
from ferrymq_broker.nodes.topics.identity import is_open_to

if TYPE_CHECKING:
    from ferrymq_broker.addresses.space import AddressSpace
    from ferrymq_broker.connections.handler import ConnectionHandler
    from ferrymq_broker.errors import BrokerError

# Services that ask for rights themselves, at every request: whoever got in may speak to them.
_SERVICES: Final = ("$management", "$cbs")


def require_source(
    handler: ConnectionHandler,
    address: str,
    named: str,
    copy: bool,
    capabilities: Sequence[str] = (),
) -> None:
    """Raise `BrokerError` if a link may not receive from an address, with aliases followed.

    `named` is what the client calls it, `copy` whether it asks for distribution mode copy.
    """
    access = handler.access
    if access.open or address in _SERVICES:
        return
    space = handler.space
    if address.startswith(DYNAMIC):
        node = space.nodes.get(address)
        if node is not None and node.owner == handler.id:
            return
    rights = access.rights(address)
    if (rights & (RECEIVE | BROWSE | DEAD_LETTER)) == 0:
        raise refusal(BROWSE if copy else RECEIVE, named)
    right = reading_right(space, address, copy, capabilities)
    if (rights & right) == 0:
        raise refusal(right, named)
    if (rights & MANAGE) == 0 and is_foreign(address, handler.user):
        raise refusal(MANAGE, named)


def require_target(handler: ConnectionHandler, address: str, named: str) -> None:
    """Raise `BrokerError` if a link may not send to an address, with aliases followed."""
    access = handler.access
    if not access.open and address not in _SERVICES:
        access.require_send(address, named)


def require_dynamic(handler: ConnectionHandler) -> None:
    """Raise `BrokerError` if no node is to be made for a link."""
    handler.access.require(CREATE, NEW_DYNAMIC)


def reading_right(
    space: AddressSpace, address: str, copy: bool, capabilities: Sequence[str] = ()
) -> i64:
    """What it takes to receive from an address, or to get copies of what is there: `RECEIVE`,
    `BROWSE`, or `DEAD_LETTER` where a queue's dead or expired messages go."""
    if space.letter_boxes.has(address):
        return DEAD_LETTER
    return BROWSE if copy and _is_browsed(space, address, capabilities) else RECEIVE


def _is_browsed(space: AddressSpace, address: str, capabilities: Sequence[str]) -> bool:
    """Whether copies leave everything as it is: those of a queue, or of a subscription by its
    address, do; a topic or a stream gives nothing but copies."""
    cut = -1
    node = space.nodes.get(address)
    if node is None:
        cut = address.rfind(PART)
        if cut > 0:
            address = address[:cut]
            node = space.nodes.get(address)
    if node is not None:
        return node.kind == "queue" or (cut > 0 and node.kind == "topic")
    policy = space.policy_for(address, capabilities)
    return isinstance(policy, QueuePolicy) or (cut > 0 and isinstance(policy, TopicPolicy))


def is_foreign(address: str, user: str | None) -> bool:
    """Whether an address would be that of a subscription of somebody else."""
    cut = address.rfind(PART)
    return cut > 0 and not is_open_to(address[cut + len(PART) :], user)


def put_on_record(handler: ConnectionHandler, error: BrokerError, via: str) -> None:
    """Somebody was refused something: the audit log has it if that was for want of a right. `via`
    is how he tried: by a ``link``, a ``message``, a ``transaction``."""
    if error.condition == UNAUTHORIZED:
        audit.access_refused(
            handler.peer, handler.user, error.description, handler.space.name, via=via
        )
