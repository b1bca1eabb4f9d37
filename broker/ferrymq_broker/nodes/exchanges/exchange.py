"""The exchange: keeps nothing, hands each message to the nodes its bindings name.

The routing key of a message is the part of the address it was sent to, ``EXCHANGE::KEY``; without
one its properties.subject, its annotation ``x-opt-routing-key``, or nothing, in this order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.backpressure import BackpressureGroup
from ferrymq_broker.nodes.exchanges.binding import Binding, Destination, identity_of
from ferrymq_broker.nodes.exchanges.binding_tables import FanoutTable, HeadersTable, make_table
from ferrymq_broker.nodes.exchanges.routing_key import key_of
from ferrymq_broker.nodes.exchanges.routing_key_target import RoutingKeyTarget
from ferrymq_broker.nodes.narrowing import narrow
from ferrymq_broker.nodes.node import BOUNDLESS, PERMANENT, Node, Refusal, Space
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.map_values import encode_map
from ferrymq_broker.store.tables import BINDING
from ferrymq_broker.timers import Timer
from ferrymq_broker.values.bindings import MAX_KEY
from ferrymq_broker.values.policy import ExchangePolicy
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage

# Of one exchange; and how long one may be, destination, key and arguments together.
MAX_BINDINGS: Final = 100_000
_MAX_IDENTITY: Final = 65_536
_BINDABLE: Final = ("queue", "topic", "stream", "exchange")


@final
class _Idle(Timer):
    """The timer that deletes an exchange which nobody uses."""

    __slots__ = ("exchange",)

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self.exchange = exchange

    def on_time(self, now: i64) -> None:
        """Delete the exchange, which has not been used since."""
        self.exchange.end_unused()


@final
class Exchange(Node):
    """An exchange.

    `published` counts messages that came in, to it or through another exchange; of these,
    `unroutable` matched no binding and `refused` were not taken by a node they were for.
    `entrances` are those with links.
    """

    __slots__ = (
        "policy",
        "published",
        "unroutable",
        "refused",
        "entrances",
        "_table",
        "_targets",
        "_bindings",
        "_order",
        "_number",
        "_chained",
        "_backpressures",
        "_idle",
    )

    def __init__(
        self, address: str, space: Space, policy: ExchangePolicy, lifetime: i64 = PERMANENT
    ) -> None:
        super().__init__(address, space, lifetime)
        self.policy = policy
        self.published: i64 = 0
        self.unroutable: i64 = 0
        self.refused: i64 = 0
        self.entrances: dict[RoutingKeyTarget, None] = {}
        self._table = make_table(policy.type)
        self._targets: dict[Node, Destination] = {}
        self._bindings: dict[str, Binding] = {}
        self._order: i64 = 0
        # Of the last routing.
        self._number: i64 = 0
        # How many destinations are exchanges.
        self._chained: i64 = 0
        self._backpressures = BackpressureGroup(self)
        self._idle = _Idle(self)
        if policy.alternate:
            space.alternates[self] = policy.alternate
        # Without any patience it goes with its last link or binding, not before.
        if space.agenda.now > 0 and policy.auto_delete > 0:
            self._consider_idle()

    def __repr__(self) -> str:
        return f"<exchange {self.address!r} {len(self._bindings)}>"

    @property
    def kind(self) -> str:
        """``exchange``."""
        return "exchange"

    # -- bindings ------------------------------------------------------------------------

    def bind(
        self, destination: str, key: str = "", arguments: dict[str, object] | None = None
    ) -> bool:
        """Hand messages on to the node at this address; False if there is such a binding already.

        Raises `BrokerError`: `amqp:not-found` without such a node, `amqp:invalid-field` for what
        cannot be bound.
        """
        arguments = {} if arguments is None else arguments
        node = self.space.find(destination)
        if node is None:
            raise BrokerError("amqp:not-found", f"there is no node {destination[:200]!r} to bind")
        if node.kind not in _BINDABLE:
            raise BrokerError(
                "amqp:invalid-field",
                f"{destination[:200]!r} is a {node.kind}; nothing is bound to it",
            )
        if len(key) > MAX_KEY:
            raise BrokerError(
                "amqp:invalid-field", f"a key of {len(key)} characters; {MAX_KEY} are allowed"
            )
        self._table.check(key, arguments)
        identity = identity_of(node.address, key, arguments)
        if identity in self._bindings:
            return False
        if len(identity) > _MAX_IDENTITY:
            raise BrokerError(
                "amqp:invalid-field",
                f"a binding of {len(identity)} characters; {_MAX_IDENTITY} are allowed",
            )
        if len(self._bindings) >= MAX_BINDINGS:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"{self.address[:200]!r} has {MAX_BINDINGS} bindings, which is the most",
            )
        self._order += 1
        binding = self._connect(node, key, dict(arguments), self._order)
        if self.store_id != 0 and node.store_id != 0:
            binding.stored = True
            self.agenda.changes.put(
                BINDING,
                self.store_id,
                binding.order,
                encode_map({"node": int(node.store_id), "key": key, "arguments": arguments}),
            )
        return True

    def restore_binding(
        self, number: i64, node: Node, key: str, arguments: dict[str, object]
    ) -> None:
        """Restore a binding that was stored with this number, after those of lower numbers.
        Raises `BrokerError` if it makes no sense."""
        self._table.check(key, arguments)
        self._order = number
        self._connect(node, key, arguments, number).stored = True

    def _connect(self, node: Node, key: str, arguments: dict[str, object], order: i64) -> Binding:
        target = self._targets.get(node)
        if target is None:
            target = Destination(node)
            self._targets[node] = target
            if isinstance(node, Exchange):
                self._chained += 1
            watchers = node.watchers
            if watchers is None:
                node.watchers = [self]
            else:
                watchers.append(self)
        target.bindings += 1
        binding = Binding(target, key, arguments, order)
        self._bindings[binding.identity()] = binding
        self._table.add(binding)
        self.space.timers.cancel(self._idle)
        if node.room() != BOUNDLESS:
            # Who publishes here has had credit without a bound, perhaps.
            narrow(self)
        return binding

    def unbind(
        self, destination: str, key: str = "", arguments: dict[str, object] | None = None
    ) -> bool:
        """Take a binding back; False if there is none like it."""
        node = self.space.find(destination)
        address = destination if node is None else node.address
        binding = self._bindings.pop(identity_of(address, key, arguments or {}), None)
        if binding is None:
            return False
        self._drop_stored(binding)
        self._table.remove(binding)
        target = binding.target
        target.bindings -= 1
        if target.bindings == 0:
            self._forget(target)
            watchers = target.node.watchers
            if watchers is not None and self in watchers:
                watchers.remove(self)
            self._relieve_all()
        self._consider_idle()
        return True

    def bindings(self) -> list[Binding]:
        """Return all bindings, the oldest first."""
        return list(self._bindings.values())

    def node_gone(self, node: Node) -> None:
        """Remove the bindings of a destination that has been deleted."""
        target = self._targets.get(node)
        if target is None:
            return
        kept: dict[str, Binding] = {}
        for identity, binding in self._bindings.items():
            if binding.target is target:
                self._drop_stored(binding)
                self._table.remove(binding)
            else:
                kept[identity] = binding
        self._bindings = kept
        self._forget(target)
        self._relieve_all()
        self._consider_idle()

    def _drop_stored(self, binding: Binding) -> None:
        if binding.stored and self.store_id != 0:
            self.agenda.changes.drop(BINDING, self.store_id, binding.order)

    def _forget(self, target: Destination) -> None:
        del self._targets[target.node]
        if isinstance(target.node, Exchange):
            self._chained -= 1

    # -- messages in -----------------------------------------------------------------------

    def target(self, part: str) -> Node:
        """Return the exchange, or an entrance with the part as the routing key. Raises
        `BrokerError`."""
        if not part:
            return self
        if len(part) > MAX_KEY:
            raise BrokerError(
                "amqp:invalid-field", f"a key of {len(part)} characters; {MAX_KEY} are allowed"
            )
        return RoutingKeyTarget(self, part)

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Hand the message on, with the key it brings itself."""
        if self._table.keyed or self._chained:
            return self.route(message, key_of(message))
        return self.route(message, "")

    def route(self, message: BrokerMessage, key: str) -> Refusal | None:
        """Hand the message to all it is for, to each once, through other exchanges as well.

        The refusal says `released` if there is nobody it is for. If one of them does not take it,
        it is rejected; those that did keep it.
        """
        found: list[Destination] = []
        self.published += 1
        self._number += 1
        self._table.match(key, message, self._number, found)
        if self._chained or not found:
            return self._route_on(message, key, found)
        if len(found) == 1:
            refusal = found[0].node.publish(message)
            if refusal is not None:
                self.refused += 1
            return refusal
        nodes = [target.node for target in found]
        return self._hand_out(message, nodes)

    def _route_on(
        self, message: BrokerMessage, key: str, found: list[Destination]
    ) -> Refusal | None:
        """Follow bindings to other exchanges, and alternates where nothing matched."""
        nodes = self._follow(message, key, found, 1)
        if not nodes:
            return self._unroutable(key)
        return self._hand_out(message, nodes)

    def keeps(self, message: BrokerMessage) -> bool:
        """See `keeps_with`."""
        return self.keeps_with(message, key_of(message))

    def keeps_with(self, message: BrokerMessage, key: str) -> bool:
        """Return whether one of those keeps the message through a crash that it is handed to. If it
        came again for the sake of the others, that one would have it twice."""
        found: list[Destination] = []
        self._number += 1
        self._table.match(key, message, self._number, found)
        return any(node.keeps(message) for node in self._follow(message, key, found, 0))

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Keep room for the message in all nodes it would be handed to."""
        if self._table.keyed or self._chained:
            return self.reserve_for(message, key_of(message), holders)
        return self.reserve_for(message, "", holders)

    def reserve_for(self, message: BrokerMessage, key: str, holders: list[Node]) -> Refusal | None:
        """Keep room for a message with this key; `amqp:not-found` if there is nobody it is for."""
        if self.deleted:
            return Refusal("amqp:not-found", f"{self.address!r} has been deleted")
        found: list[Destination] = []
        self._number += 1
        self._table.match(key, message, self._number, found)
        nodes = self._follow(message, key, found, 0)
        refusal: Refusal | None = None if nodes else self._unroutable(key)
        for node in nodes:
            refusal = node.reserve(message, holders)
            if refusal is not None:
                self.refused += 1
                break
        if refusal is not None:
            # The message has come, and will not be published.
            self.published += 1
            self._follow(message, key, found, 1)
        return refusal

    def _unroutable(self, key: str) -> Refusal:
        return Refusal(
            "amqp:not-found",
            f"no binding of {self.address!r} is for the key {key[:200]!r}",
            True,
        )

    def _follow(
        self, message: BrokerMessage, key: str, found: list[Destination], counts: i64
    ) -> list[Node]:
        """Return where the message goes that has `found` these destinations here, `counts`
        times."""
        nodes: dict[Node, None] = {}
        visited: dict[Exchange, None] = {self: None}
        waiting: list[Exchange] = []
        exchange = self
        while True:
            following: Node | None = None
            if not found:
                exchange.unroutable += counts
                alternate = exchange.policy.alternate
                following = exchange.space.find(alternate) if alternate else None
            for target in found:
                node = target.node
                if not isinstance(node, Exchange):
                    nodes[node] = None
                elif node not in visited:
                    visited[node] = None
                    waiting.append(node)
            if isinstance(following, Exchange):
                if following not in visited:
                    visited[following] = None
                    waiting.append(following)
            elif following is not None:
                nodes[following] = None
            if not waiting:
                break
            exchange = waiting.pop()
            exchange.published += counts
            exchange._number += 1
            found = []
            exchange._table.match(key, message, exchange._number, found)
        return list(nodes)

    def _hand_out(self, message: BrokerMessage, nodes: list[Node]) -> Refusal | None:
        """Publish to all; if any refuses, the answer is no."""
        refused: Refusal | None = None
        refusals = 0
        where = ""
        if message.durable and len(nodes) > 1:
            message.shared = True
        for node in nodes:
            refusal = node.publish(message)
            if refusal is not None:
                refusals += 1
                if refused is None:
                    refused = refusal
                    where = node.address
        if refused is None:
            return None
        self.refused += 1
        if len(nodes) == 1:
            return refused
        info: dict[str, object] = dict(refused.info) if refused.info is not None else {}
        info.setdefault("queue", where)
        return Refusal(
            refused.condition,
            f"{refusals} of {len(nodes)} nodes did not take it, {where!r}: {refused.description}",
            False,
            info,
            refusals < len(nodes),
        )

    # -- room --------------------------------------------------------------------------------

    def room(self) -> i64:
        """Return what the fullest node has left that a message could go to, whatever its key."""
        return self._backpressures.room(self.reachable(None))

    def reachable(self, key: str | None) -> list[Node]:
        """Return the nodes that messages with this key, or any, may go to; no exchanges."""
        nodes: dict[Node, None] = {}
        visited: dict[Exchange, None] = {self: None}
        waiting: list[Exchange] = [self]
        while waiting:
            exchange = waiting.pop()
            found: list[Destination] = []
            if key is None:
                found.extend(exchange._targets.values())
            else:
                exchange._number += 1
                exchange._table.match(key, None, exchange._number, found)
            reached = [target.node for target in found]
            alternate = exchange._possible_alternate(key, bool(found))
            if alternate is not None:
                reached.append(alternate)
            for node in reached:
                if not isinstance(node, Exchange):
                    nodes[node] = None
                elif node not in visited:
                    visited[node] = None
                    waiting.append(node)
        return list(nodes)

    def _possible_alternate(self, key: str | None, bound: bool) -> Node | None:
        """Return the alternate, if a message with this key, or any, may go there; `bound` is
        whether there are bindings that it could match."""
        alternate = self.policy.alternate
        if not alternate:
            return None
        if bound:
            table = self._table
            if isinstance(table, FanoutTable):
                return None
            # A key tells what matches, but for headers.
            if key is not None and not isinstance(table, HeadersTable):
                return None
        return self.space.find(alternate)

    def ways_in(self) -> list[Node]:
        """Return those of any node, and the entrances, which have their room here."""
        return [*self.entrances, *super().ways_in()]

    def regain_room(self) -> None:
        """Tell the nodes behind: producers that send to them by other ways may wait there."""
        super().regain_room()
        self._backpressures.regain_room()

    def grant_room(self) -> None:
        """Share room that a node behind has again among the producers here and at the entrances."""
        super().grant_room()
        for entrance in list(self.entrances):
            entrance.grant_room()

    def _relieve_all(self) -> None:
        """Wake producers that wait for a node that was bound here, and those in front of
        exchanges that this one is bound to."""
        visited: dict[Exchange, None] = {self: None}
        waiting: list[Exchange] = [self]
        while waiting:
            exchange = waiting.pop()
            exchange.grant_room()
            for watcher in exchange.watchers or []:
                if isinstance(watcher, Exchange) and watcher not in visited:
                    visited[watcher] = None
                    waiting.append(watcher)

    # -- the exchange's own life -------------------------------------------------------------

    def change_policy(self, policy: ExchangePolicy) -> None:
        """Follow another policy from now on. The type stays: bindings are arranged by it."""
        before = self.policy
        self.policy = policy
        self.space.timers.cancel(self._idle)
        if policy.auto_delete > 0:
            self._consider_idle()
        if policy.alternate != before.alternate:
            self.space.alternates.pop(self, None)
            if policy.alternate:
                self.space.alternates[self] = policy.alternate
            narrow(self)
            self._relieve_all()

    def link_opened(self) -> None:
        """Count a link: the exchange is in use."""
        super().link_opened()
        self.space.timers.cancel(self._idle)

    def link_closed(self) -> None:
        """Count a link that is gone: perhaps the exchange is not in use any more."""
        super().link_closed()
        self._consider_idle()

    def _consider_idle(self) -> None:
        after = self.policy.auto_delete
        if after >= 0 and self.links == 0 and not self._bindings and not self.deleted:
            self.space.timers.set(self._idle, self.agenda.now + after)

    def delete(self, error: Error) -> None:
        """End every link with `error`, take back every binding."""
        self.deleted = True
        if self.store_id != 0:
            self.agenda.changes.drop_range(BINDING, self.store_id, 0, LAST)
        self.space.timers.cancel(self._idle)
        self.space.alternates.pop(self, None)
        self._backpressures.withdraw()
        for target in self._targets.values():
            watchers = target.node.watchers
            if watchers is not None and self in watchers:
                watchers.remove(self)
        self._targets = {}
        self._bindings = {}
        self._chained = 0
        self._table = make_table(self.policy.type)
        super().delete(error)

    def parts(self) -> list[Node]:
        """Return what is there for those who name a key in the address."""
        return list(self.entrances)

    def describe(self) -> dict[str, object]:
        """Return its settings and figures."""
        policy = self.policy
        return {
            "name": self.address,
            "type": self.kind,
            "routing": policy.type,
            "alternate": policy.alternate,
            "auto-delete": policy.auto_delete,
            "bindings": len(self._bindings),
            "links": self.links,
            "producers": self.links,
            "published": self.published,
            "unroutable": self.unroutable,
            "refused": self.refused,
        }
