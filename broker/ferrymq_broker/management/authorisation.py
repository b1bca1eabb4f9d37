"""Who may do what by management.

Every type of entity says for each of its operations which right it takes at which address, and
which of its entities somebody may see (`EntityType.authorise`, `EntityType.visible`). What is said
to who may not is the same whether there is such an entity or not, and nothing is looked up before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ferrymq_broker.access.rights import (
    ALL,
    BROWSE,
    CREATE,
    DEAD_LETTER,
    DELETE,
    MANAGE,
    RECEIVE,
    SEND,
)
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.management.errors import FORBIDDEN, ManagementError

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.management.operation import Call
    from ferrymq_broker.nodes.link_terms import Party

# What is asked for where any right will do: who may use it may see it.
ANY: Final = ALL

# Settings that name where messages go; those of them that take messages out of a queue.
_WAYS: Final = ("dead-letter", "expired", "alternate")
_LETTERS: Final = ("dead-letter", "expired")
# Settings that have settings in them.
_INNER: Final = "subscription"


def forbidden(operation: str, type: str, name: str) -> ManagementError:
    """What who may not do something is told."""
    of = f"{type} {name[:200]!r}" if name else type
    return ManagementError(FORBIDDEN, f"{operation} of {of} is not allowed to you")


def canonical(space: AddressSpace, address: str) -> str:
    """The address that rights are asked for at: aliases are followed."""
    try:
        return space.canonical(address)
    except BrokerError:
        # It leads in a circle: it stands for itself.
        return address


def may(party: Party, right: int, space: AddressSpace, address: str) -> bool:
    """Whether the party has the right, or one of several, at an address or what it is an alias
    of."""
    access = party.access
    return access.open or access.permits(right, canonical(space, address))


def expect_send(party: Party, space: AddressSpace, address: str) -> None:
    """Raise `BrokerError` (``amqp:unauthorized-access``) if the party may not send there: then it
    may not have messages go there either."""
    access = party.access
    if not access.open:
        access.require_send(canonical(space, address), address)


def expect_ways(party: Party, space: AddressSpace, settings: Mapping[str, object]) -> None:
    """As `expect_send`, for every address that settings of a node lead messages to.

    What is named for dead or expired messages has another right for its readers from then on: that
    is for who manages it to say.
    """
    if party.access.open:
        return
    for key in _WAYS:
        address = settings.get(key)
        if isinstance(address, str) and address:
            expect_send(party, space, address)
            if key in _LETTERS:
                party.access.require(MANAGE, canonical(space, address), address)
    inner = settings.get(_INNER)
    if isinstance(inner, Mapping):
        expect_ways(party, space, inner)


def drains(settings: Mapping[str, object]) -> bool:
    """Whether settings have a queue give its messages to another address."""
    inner = settings.get(_INNER)
    return any(settings.get(key) for key in _LETTERS) or (
        isinstance(inner, Mapping) and drains(inner)
    )


def reading(space: AddressSpace, address: str) -> int:
    """The right to take messages out of what is at an address."""
    return DEAD_LETTER if space.dead_letter_index.has(address) else RECEIVE


def looking(space: AddressSpace, address: str) -> int:
    """The rights to read a stream without taking anything, one of which will do.

    To receive from one is to look at what stays; what dead letters are in has a right of its own.
    """
    return DEAD_LETTER if space.dead_letter_index.has(address) else BROWSE | RECEIVE


def expect_of_node(call: Call, operation: str, space: AddressSpace, type: str) -> None:
    """Raise `ManagementError` if the party may not do that with the node, which a request names.

    CREATE and DELETE mean the very name, everything else follows aliases.
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
                # To receive from one is to look at what stays.
                right |= RECEIVE
    if not access.permits(right, address):
        raise forbidden(operation, type, name)
    if operation in ("CREATE", "UPDATE"):
        expect_ways(call.party, space, call.arguments)
    if operation == "UPDATE" and drains(call.arguments):
        # It is a way to read what is there, and all that is to come.
        access.require(reading(space, address), address, name)
    if operation == "MOVE":
        target = call.arguments.get("target")
        if isinstance(target, str):
            expect_send(call.party, space, target)


# What it takes at the node; `MANAGE` for anything else.
_OF_NODES: Final = {
    "READ": ANY,
    "CREATE": CREATE,
    "DELETE": DELETE,
    "CANCEL-SCHEDULED": SEND,
}
# What it takes at a node that has messages, if they are no dead letters.
_OF_MESSAGES: Final = {
    "PEEK": BROWSE,
    "PEEK-SCHEDULED": BROWSE,
    "MOVE": RECEIVE,
}
