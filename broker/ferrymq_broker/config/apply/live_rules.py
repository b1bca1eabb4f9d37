"""Access rules that change while the broker runs.

Open connections have the new rules at once. Their links are checked again, and those that are not
allowed any more are detached. A connection without any right is closed, because it could not be
opened either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.event_log import log
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ferrymq_broker.access.rules import Rule
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.connections.client_handler import ClientHandler

_ERROR: Final = Error(
    condition="amqp:unauthorized-access", description="the rules have changed; log in again"
)


def replace_rules(
    broker: Broker, rules: Mapping[str, list[Rule]], changed: Mapping[str, Sequence[Rule]]
) -> None:
    """Give the virtual hosts other rules, by their names. `changed` are those that were there or
    are there now; clients that none of these is about keep their rights. Called within a pass."""
    for name, space in broker.spaces.items():
        space.rules = rules.get(name, [])
    guarded = broker.takes_tokens or any(space.rules for space in broker.spaces.values())
    turned = guarded != broker.guarded
    broker.guarded = guarded
    if turned:
        for space in broker.spaces.values():
            space.strangers = None if guarded else ConnectionAccess(UserIdentity(None), None)
    for handler in list(broker.handlers):
        space = handler.client.space
        # Without an open the client has no rights yet.
        if int(handler.client.id) in space.publishers:
            concerned = handler.client.access.is_subject_of(changed.get(space.name, ()))
            if turned or concerned:
                _follow(handler, guarded, turned)


def _follow(handler: ClientHandler, guarded: bool, turned: bool) -> None:
    client = handler.client
    broker = handler.broker
    access = client.access
    access.follow(client.space.rules_for if guarded else None)
    if (turned and client.user is None) or not (broker.takes_tokens or access.gives_anything()):
        # What belongs to a client without a name depends on whether there are rules.
        log.warning("connection closed because the rules have changed", peer=client.peer)
        handler.close_soon(_ERROR)
        return
    handler.holder().reauthorize()
    handler.output.touch()
