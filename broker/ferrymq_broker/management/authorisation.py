"""Authorisation of management requests.

Each type of entity defines the right that each operation needs, at which address
(`EntityType.authorise`), and the entities that a party may see (`EntityType.visible`). The answer
to a party without the right is the same whether the entity exists or not, and nothing is looked up
before the check.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.management.errors import FORBIDDEN, ManagementError
from ferrymq_broker.values.rights import (
    ALL,
    BROWSE,
    CREATE,
    DEAD_LETTER,
    DELETE,
    MANAGE,
    RECEIVE,
    SEND,
)

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.management.operation import Call
    from ferrymq_broker.nodes.link_terms import Party

# Any right: a party that may use an entity may see it.
ANY: Final = ALL

# Settings with addresses that messages go to, and those that take messages out of a queue.
_ADDRESSES: Final = ("dead-letter", "expired", "forward-to", "forward-failed", "alternate")
_DEAD_LETTERS: Final = ("dead-letter", "expired", "forward-failed")
_DRAINS: Final = (*_DEAD_LETTERS, "forward-to")
# The setting that contains settings.
_INNER: Final = "subscription"


def forbidden(operation: str, type: str, name: str) -> ManagementError:
    """Return the error for a party without the right to do something."""
    of = f"{type} {name[:200]!r}" if name else type
    return ManagementError(FORBIDDEN, f"{operation} of {of} is not allowed to you")


def canonical(space: AddressSpace, address: str) -> str:
    """Return the address at which rights are checked: with aliases resolved."""
    try:
        return space.canonical(address)
    except BrokerError:
        # The aliases form a loop: check the address itself.
        return address


def may(party: Party, right: int, space: AddressSpace, address: str) -> bool:
    """Return whether the party has the right, or one of several, at an address with aliases
    resolved."""
    access = party.access
    return access.open or access.permits(right, canonical(space, address))


def expect_send(party: Party, space: AddressSpace, address: str) -> None:
    """Raise `BrokerError` (``amqp:unauthorized-access``) if the party may not send to an address.
    Then it may not direct other messages there either."""
    access = party.access
    if not access.open:
        access.require_send(canonical(space, address), address)


def expect_ways(party: Party, space: AddressSpace, settings: Mapping[str, object]) -> None:
    """Check the right to send to every address in a node's settings, as `expect_send` does.

    An address for dead or expired messages needs the right to manage it too, because its readers
    need another right from then on.
    """
    if party.access.open:
        return
    for key in _ADDRESSES:
        address = settings.get(key)
        if isinstance(address, str) and address and not _is_own(settings, address):
            expect_send(party, space, address)
            if key in _DEAD_LETTERS:
                party.access.require(MANAGE, canonical(space, address), address)
    inner = settings.get(_INNER)
    if isinstance(inner, Mapping):
        expect_ways(party, space, inner)


def _is_own(settings: Mapping[str, object], address: str) -> bool:
    """Return whether an address in settings, ``/NAME``, is a sub-queue that they make as well."""
    names = settings.get("sub-queues")
    return address.startswith("/") and isinstance(names, list) and address[1:] in names


def drains(settings: Mapping[str, object]) -> bool:
    """Return whether settings make a queue move messages to another address."""
    inner = settings.get(_INNER)
    return any(settings.get(key) for key in _DRAINS) or (
        isinstance(inner, Mapping) and drains(inner)
    )


def reading(space: AddressSpace, address: str) -> int:
    """Return the right that is needed to take messages out of the node at an address."""
    return DEAD_LETTER if space.dead_letter_index.has(address) else RECEIVE


def looking(space: AddressSpace, address: str) -> int:
    """Return the rights to read a stream without removing records, one of which is enough.

    Receiving from a stream only reads it. A stream with dead letters needs another right.
    """
    return DEAD_LETTER if space.dead_letter_index.has(address) else BROWSE | RECEIVE


def expect_of_node(call: Call, operation: str, space: AddressSpace, type: str) -> None:
    """Raise `ManagementError` if the party may not do the operation with the node of a request.

    CREATE and DELETE use the name as it is; other operations resolve aliases.
    """
    access = call.party.access
    if access.open:
        return
    name = call.meant()
    right = _OF_NODES.get(operation, MANAGE)
    address = name if operation in ("CREATE", "DELETE") else canonical(space, name)
    if operation in _OF_MESSAGES:
        if space.dead_letter_index.has(address):
            right = DEAD_LETTER
        else:
            right = _OF_MESSAGES[operation]
            if type == "stream":
                # Receiving from a stream only reads it.
                right |= RECEIVE
    address = space.owner_of(address) or address
    if not access.permits(right, address):
        raise forbidden(operation, type, name)
    if operation in ("CREATE", "UPDATE"):
        expect_ways(call.party, space, call.arguments)
    if operation == "UPDATE" and drains(call.arguments):
        # The new setting would let the party read all present and future messages.
        access.require(reading(space, address), address, name)
    if operation in ("MOVE", "REQUEUE"):
        target = call.arguments.get("target")
        if isinstance(target, str):
            expect_send(call.party, space, target)


# The operations of receivers, which need the right to receive, with queues and subscriptions.
OF_RECEIVERS: Final = (
    "RENEW-LOCKS",
    "SETTLE",
    "RECEIVE-DEFERRED",
    "RENEW-SESSION",
    "GET-SESSION-STATE",
    "SET-SESSION-STATE",
    "LIST-SESSIONS",
    "LEASE",
    "RENEW-LEASES",
    "SETTLE-LEASES",
    "RELEASE-LEASES",
    "LIST-LEASES",
)

# The rights that operations need at the node; others need `MANAGE`.
_OF_NODES: Final = {
    "READ": ANY,
    "HISTORY": ANY,
    "CREATE": CREATE,
    "DELETE": DELETE,
    "CANCEL-SCHEDULED": SEND,
}
# The rights that operations on messages need, if the messages are no dead letters.
_OF_MESSAGES: Final = {
    "PEEK": BROWSE,
    "PEEK-SCHEDULED": BROWSE,
    "MOVE": RECEIVE,
    "REQUEUE": RECEIVE,
    "REMOVE": RECEIVE,
    **dict.fromkeys(OF_RECEIVERS, RECEIVE),
}
