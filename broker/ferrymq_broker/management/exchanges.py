"""Exchanges and bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from ferrymq_broker.config.nodes import ExchangeSettings
from ferrymq_broker.management.authorisation import expect_send, forbidden, may
from ferrymq_broker.management.entity import IndexedType, deleted
from ferrymq_broker.management.errors import (
    BAD_REQUEST,
    CONFLICT,
    CREATED,
    NOT_FOUND,
    ManagementError,
)
from ferrymq_broker.management.nodes import DeclaredNodes
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import Steps, finish, sift
from ferrymq_broker.nodes.exchanges.binding import Binding, identity_of
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.values.policy import ExchangePolicy, NodePolicy
from ferrymq_broker.values.rights import CREATE, DELETE, MANAGE

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.link_terms import Party

# Characters that are not percent-encoded in the identity of a binding.
_SAFE: Final = "*#:.-_~ $@"
_BINDING: Final = ("exchange", "destination", "key", "arguments")
# The rights that operations need at the exchange, any one of several.
_READ: Final = MANAGE | CREATE | DELETE
_RIGHTS: Final = {"READ": _READ, "CREATE": MANAGE | CREATE, "DELETE": MANAGE | DELETE}


class ExchangeEntities(DeclaredNodes):
    """The exchanges, by address."""

    short = "exchange"
    sampled = False
    settings: tuple[str, ...] = tuple(
        field.alias or name for name, field in ExchangeSettings.model_fields.items()
    )

    def change(self, node: Node, policy: NodePolicy) -> None:
        """Change the policy. The type of routing cannot change."""
        assert isinstance(node, Exchange) and isinstance(policy, ExchangePolicy)
        if policy.type != node.policy.type:
            raise ManagementError(
                CONFLICT,
                f"routing: {node.address[:200]!r} has the type {node.policy.type}, which "
                "cannot be changed",
            )
        node.change_policy(policy)


class BindingEntities(IndexedType[tuple[Exchange, Binding]]):
    """The bindings, as EXCHANGE/KEY/DESTINATION, with ``/ARGUMENTS`` if there are any.

    The parts are percent-encoded where needed to tell them apart. The broker makes the name; CREATE
    has exchange, destination, key and arguments instead of a name.
    """

    short = "binding"
    attributes: tuple[str, ...] = ("name", *_BINDING)

    def __init__(self, space: AddressSpace) -> None:
        self._space = space

    def operations(self) -> dict[str, Operation]:
        """Return CREATE, READ and DELETE. A binding cannot be changed."""
        return {
            "CREATE": Operation(self.create, _BINDING),
            "READ": Operation(self.read),
            "DELETE": Operation(self.delete, _BINDING),
        }

    def authorise(self, operation: str, call: Call) -> None:
        """Check the rights at the exchange, and for CREATE the right to send to the destination."""
        party = call.party
        if party.access.open:
            return
        exchange = call.arguments.get("exchange")
        if operation == "READ" or not isinstance(exchange, str):
            # The exchange is the first part of the name.
            exchange = unquote(call.meant().partition("/")[0])
        if not may(party, _RIGHTS.get(operation, MANAGE), self._space, exchange):
            raise forbidden(operation, self.short, call.meant() or exchange)
        destination = call.arguments.get("destination")
        if operation == "CREATE" and isinstance(destination, str):
            expect_send(party, self._space, destination)

    def visible(self, party: Party) -> list[str]:
        """Return the result of `sight` at once."""
        return finish(self.sight(party))

    def sight(self, party: Party) -> Steps[list[str]]:
        """Return the bindings of exchanges that the party may bind nodes to, or manage. A party
        that may only publish must not learn which nodes are bound."""
        access = party.access
        entries = self.entries()
        return (
            yield from sift(entries, lambda name: access.permits(_READ, entries[name][0].address))
        )

    def entries(self) -> dict[str, tuple[Exchange, Binding]]:
        """Return the bindings sorted by name."""
        found: dict[str, tuple[Exchange, Binding]] = {}
        for node in self._space.nodes.values():
            if isinstance(node, Exchange):
                for binding in node.bindings():
                    found[binding_name(node, binding)] = (node, binding)
        return dict(sorted(found.items()))

    def describe(self, entry: tuple[Exchange, Binding]) -> dict[str, object]:
        """Return the attributes of a binding."""
        exchange, binding = entry
        return {
            "exchange": exchange.address,
            "destination": binding.destination,
            "key": binding.key,
            "arguments": binding.arguments,
        }

    def create(self, call: Call) -> Result:
        """Handle CREATE: bind the destination to the exchange."""
        call.expect_only(*_BINDING, "name", "identity", "type")
        exchange, destination, key, arguments = self._meant(call)
        made = exchange.bind(destination, key, arguments)
        node = self._space.find(destination)
        identity = identity_of(destination if node is None else node.address, key, arguments)
        for binding in exchange.bindings():
            if binding.identity() == identity:
                shown = self.complete(
                    binding_name(exchange, binding), self.describe((exchange, binding))
                )
                if made:
                    return Result(shown, CREATED, "created")
                self._space.agenda.changes.claim()
                return Result(shown, description="exists already")
        raise self.missing(identity)

    def delete(self, call: Call) -> Result:
        """Handle DELETE: remove a binding, given by name or by exchange and destination."""
        call.expect_only(*_BINDING)
        if call.name and "exchange" not in call.arguments:
            found = self.entries().get(call.name)
            if found is None:
                raise self.missing(call.name)
            exchange, binding = found
            exchange.unbind(binding.destination, binding.key, binding.arguments)
            return deleted()
        exchange, destination, key, arguments = self._meant(call)
        if not exchange.unbind(destination, key, arguments):
            raise ManagementError(
                NOT_FOUND,
                f"{exchange.address[:200]!r} has no binding of {destination[:200]!r}"
                f" with the key {key[:200]!r} and these arguments",
            )
        return deleted()

    def _meant(self, call: Call) -> tuple[Exchange, str, str, dict[str, object]]:
        address = call.text("exchange")
        exchange = self._space.find(address)
        if not isinstance(exchange, Exchange):
            raise ManagementError(NOT_FOUND, f"there is no exchange {address[:200]!r}")
        destination, key = call.text("destination"), call.text("key", "")
        arguments = call.arguments.get("arguments") or {}
        if not isinstance(arguments, dict) or not all(isinstance(k, str) for k in arguments):
            raise ManagementError(BAD_REQUEST, "arguments: a map with string keys is needed")
        return exchange, destination, key, {str(k): v for k, v in arguments.items()}


def binding_name(exchange: Exchange, binding: Binding) -> str:
    """Return the name of a binding, which depends only on its parts."""
    parts = [exchange.address, binding.key, binding.destination]
    if binding.arguments:
        parts.append(
            ";".join(
                f"{quote(key, _SAFE)}={_value(value)}"
                for key, value in sorted(binding.arguments.items())
            )
        )
        return "/".join([quote(part, _SAFE) for part in parts[:3]] + parts[3:])
    return "/".join(quote(part, _SAFE) for part in parts)


def _value(value: object) -> str:
    # A value that is no string gets a mark, so that 5 and "5" have different names.
    return quote(value, _SAFE) if isinstance(value, str) else f"!{quote(repr(value), _SAFE)}"
