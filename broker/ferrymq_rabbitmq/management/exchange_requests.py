"""Requests about exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from ferrymq_broker.config.nodes import policy_attributes
from ferrymq_broker.management.authorisation import expect_of_node
from ferrymq_broker.management.exchanges import ExchangeEntities
from ferrymq_broker.management.operation import Call
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_rabbitmq.address_v2 import RESERVED, exchange_address
from ferrymq_rabbitmq.arguments import exchange_policy
from ferrymq_rabbitmq.management.request_refused import (
    RequestRefused,
    arguments_in,
    flag_in,
    text_in,
)
from ferrymq_rabbitmq.pattern_policies import policies_of

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.link_terms import Party


class ExchangeRequests:
    """The handlers of requests about the exchanges of one virtual host."""

    def __init__(self, space: AddressSpace) -> None:
        self._space = space
        self._exchanges = ExchangeEntities(space)

    def declare(self, party: Party, name: str, body: Mapping[str, object]) -> None:
        """Make an exchange, or check that it exists as declared."""
        address = exchange_address(name)
        if not name or (name.startswith(RESERVED) and self._space.find(address) is None):
            raise _reserved(name)
        arguments = arguments_in(body)
        completed = policies_of(self._space).exchange_arguments(name, arguments)
        own, policy = (
            exchange_policy(
                text_in(body, "type", "direct"),
                each,
                flag_in(body, "durable", True),
                flag_in(body, "auto_delete", False),
                flag_in(body, "internal", False),
            )
            for each in (arguments, completed)
        )
        # The arguments that the client gave are what is told, and compared, later.
        policy = replace(policy, labels=own.labels)
        call = Call(party, address, policy_attributes(policy))
        self._exchanges.authorise("CREATE", call)
        self._exchanges.create(call)

    def delete(self, party: Party, name: str) -> None:
        """Delete an exchange; do nothing if it does not exist."""
        if not name or name.startswith(RESERVED):
            raise _reserved(name)
        address = exchange_address(name)
        expect_of_node(Call(party, address), "DELETE", self._space, "exchange")
        node = self._space.nodes.get(address)
        if isinstance(node, Exchange):
            self._space.remove(node)


def _reserved(name: str) -> RequestRefused:
    which = (
        f"the name {name[:200]!r} is reserved" if name else "the default exchange stays as it is"
    )
    return RequestRefused(HTTPStatus.FORBIDDEN, which)
