"""The exchange: it keeps no messages and sends each one to the nodes that its bindings name.

The routing key of a message is the second part of the address it was sent to (``EXCHANGE::KEY``).
If the address has no second part, the key is properties.subject, else the annotation
``x-opt-routing-key``, else empty. A personality may name an annotation with further keys; the
message goes to each destination of all its keys once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.backpressure import BackpressureGroup
from ferrymq_broker.nodes.exchanges.binding import Binding, Destination, identity_of
from ferrymq_broker.nodes.exchanges.binding_tables import FanoutTable, HeadersTable, make_table
from ferrymq_broker.nodes.exchanges.routing_key import further_keys_of, key_of
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

# The most bindings of one exchange, and the most characters of one binding (destination, key and
# arguments together).
MAX_BINDINGS: Final = 100_000
_MAX_IDENTITY: Final = 65_536
_BINDABLE: Final = ("queue", "topic", "stream", "exchange")


@final
class _Idle(Timer):
    """The timer that deletes an unused exchange."""

    __slots__ = ("exchange",)

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self.exchange = exchange

    def on_time(self, now: i64) -> None:
        """Delete the exchange, which has not been used since the timer was set."""
        self.exchange.end_unused()


@final
class Exchange(Node):
    """An exchange.

    `published` counts messages that came to it directly or through another exchange. Of these,
    `unroutable` counts those that matched no binding, and `refused` those that a destination did
    not take. `entrances` has the routing-key targets with links.
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
        self.policy: ExchangePolicy = policy
        self.published: i64 = 0
        self.unroutable: i64 = 0
        self.refused: i64 = 0
        self.entrances: dict[RoutingKeyTarget, None] = {}
        self._table = make_table(policy.type)
        self._targets: dict[Node, Destination] = {}
        self._bindings: dict[str, Binding] = {}
        self._order: i64 = 0
        # The number of the last routing.
        self._number: i64 = 0
        # The number of destinations that are exchanges.
        self._chained: i64 = 0
        self._backpressures = BackpressureGroup(self)
        self._idle = _Idle(self)
        if policy.alternate:
            space.alternates[self] = policy.alternate
        # With an `auto_delete` time of 0, the exchange is deleted with its last link or binding,
        # not before.
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
        """Bind the node at this address to the exchange; return false if the same binding exists.

        Raises `BrokerError`: `amqp:not-found` if there is no such node, `amqp:invalid-field` if the
        node or the binding is invalid.
        """
        arguments = {} if arguments is None else arguments
        node = self.space.find(destination)
        if node is None:
            raise BrokerError(
                "amqp:not-found", f"there is no node {destination[:200]!r} to bind; create it first"
            )
        if node.kind not in _BINDABLE:
            raise BrokerError(
                "amqp:invalid-field",
                f"{destination[:200]!r} is a {node.kind}; an exchange cannot be bound to it",
            )
        if len(key) > MAX_KEY:
            raise BrokerError(
                "amqp:invalid-field",
                f"the binding key has {len(key)} characters; at most {MAX_KEY} are allowed",
            )
        self._table.check(key, arguments)
        identity = identity_of(node.address, key, arguments)
        if identity in self._bindings:
            return False
        if len(identity) > _MAX_IDENTITY:
            raise BrokerError(
                "amqp:invalid-field",
                f"the binding has {len(identity)} characters (destination, key and arguments); "
                f"at most {_MAX_IDENTITY} are allowed",
            )
        if len(self._bindings) >= MAX_BINDINGS:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"{self.address[:200]!r} has {MAX_BINDINGS} bindings already, which is the "
                "limit; remove some first",
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
        """Restore a stored binding that has this number, in the order of numbers. Raises
        `BrokerError` if the binding is invalid."""
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
            # Producers of this exchange may have unlimited credit so far.
            narrow(self)
        return binding

    def unbind(
        self, destination: str, key: str = "", arguments: dict[str, object] | None = None
    ) -> bool:
        """Remove a binding; return false if there is no such binding."""
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
        `BrokerError` if the key is too long."""
        if not part:
            return self
        if len(part) > MAX_KEY:
            raise BrokerError(
                "amqp:invalid-field",
                f"the routing key has {len(part)} characters; at most {MAX_KEY} are allowed",
            )
        return RoutingKeyTarget(self, part)

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Route the message by the key that it brings itself."""
        if self._table.keyed or self._chained:
            return self.route_by_all(message, key_of(message, self.space.routing_annotation))
        return self.route(message, "")

    def route_by_all(self, message: BrokerMessage, key: str) -> Refusal | None:
        """Send the message to every destination of this key and of the further keys in the message
        once."""
        more = further_keys_of(message, self.space.copies_annotation)
        if not more:
            return self.route(message, key)
        nodes: dict[Node, None] = {}
        for each in (key, *more):
            nodes.update(dict.fromkeys(self.destinations(message, each)))
        return self._hand_out(message, list(nodes)) if nodes else self._unroutable(key)

    def route(self, message: BrokerMessage, key: str) -> Refusal | None:
        """Send the message to every destination once, through other exchanges as well.

        The refusal says `released` if there is no destination. If one destination does not take the
        message, it is rejected; the other destinations keep it.
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
        """Follow bindings to other exchanges, and alternate exchanges where nothing matched."""
        nodes = self._follow(message, key, found, 1)
        if not nodes:
            return self._unroutable(key)
        return self._hand_out(message, nodes)

    def destinations(self, message: BrokerMessage, key: str) -> list[Node]:
        """Return the nodes that a message with this key goes to, and count the message."""
        found: list[Destination] = []
        self.published += 1
        self._number += 1
        self._table.match(key, message, self._number, found)
        return self._follow(message, key, found, 1)

    def keeps(self, message: BrokerMessage) -> bool:
        """See `keeps_with`."""
        return self.keeps_by_all(message, key_of(message, self.space.routing_annotation))

    def keeps_by_all(self, message: BrokerMessage, key: str) -> bool:
        """See `keeps_with`, for this key and the further keys in the message."""
        more = further_keys_of(message, self.space.copies_annotation)
        return any(self.keeps_with(message, each) for each in (key, *more))

    def keeps_with(self, message: BrokerMessage, key: str) -> bool:
        """Return whether a destination of the message keeps it through a crash. If the message were
        sent again because of the other destinations, that destination would have it twice."""
        found: list[Destination] = []
        self._number += 1
        self._table.match(key, message, self._number, found)
        return any(node.keeps(message) for node in self._follow(message, key, found, 0))

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Keep room for the message in all nodes that would get it."""
        if self._table.keyed or self._chained:
            return self.reserve_by_all(
                message, key_of(message, self.space.routing_annotation), holders
            )
        return self.reserve_for(message, "", holders)

    def reserve_by_all(
        self, message: BrokerMessage, key: str, holders: list[Node]
    ) -> Refusal | None:
        """Keep room for the message by this key and the further keys in it; `amqp:not-found` if
        none of them has a destination."""
        refusal = self.reserve_for(message, key, holders)
        for each in further_keys_of(message, self.space.copies_annotation):
            if refusal is not None and not refusal.released:
                break
            further = self.reserve_for(message, each, holders)
            if further is None or not further.released:
                refusal = further
        return refusal

    def reserve_for(self, message: BrokerMessage, key: str, holders: list[Node]) -> Refusal | None:
        """Keep room for a message with this key; `amqp:not-found` if it has no destination."""
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
            # The message does not come to this node after all.
            self.published += 1
            self._follow(message, key, found, 1)
        return refusal

    def _unroutable(self, key: str) -> Refusal:
        return Refusal(
            "amqp:not-found",
            f"no binding of {self.address!r} matches the key {key[:200]!r}",
            True,
        )

    def _follow(
        self, message: BrokerMessage, key: str, found: list[Destination], counts: i64
    ) -> list[Node]:
        """Return the nodes that get a message which `found` these destinations here, and count the
        message `counts` times."""
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
        """Publish the message to all nodes; return a refusal if any node refuses it."""
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
            f"{refusals} of {len(nodes)} nodes did not take the message, among them {where!r}: "
            f"{refused.description}",
            False,
            info,
            refusals < len(nodes),
        )

    # -- room --------------------------------------------------------------------------------

    def room(self) -> i64:
        """Return the room of the fullest node that a message could go to, whatever its key."""
        return self._backpressures.room(self.reachable(None))

    def reachable(self, key: str | None) -> list[Node]:
        """Return the nodes, without exchanges, that messages with this key, or with any key, may go
        to."""
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
        """Return the alternate if a message with this key, or with any key, may go there; `bound`
        is whether there are bindings that the message could match."""
        alternate = self.policy.alternate
        if not alternate:
            return None
        if bound:
            table = self._table
            if isinstance(table, FanoutTable):
                return None
            # The key decides what matches, except in a headers exchange.
            if key is not None and not isinstance(table, HeadersTable):
                return None
        return self.space.find(alternate)

    def ways_in(self) -> list[Node]:
        """Return the ways into this node, with the entrances, whose room is counted here."""
        return [*self.entrances, *super().ways_in()]

    def regain_room(self) -> None:
        """Tell the nodes behind, where producers that publish to them in other ways may wait."""
        super().regain_room()
        self._backpressures.regain_room()

    def grant_room(self) -> None:
        """Share the new room of a node behind among the producers here and at the entrances."""
        super().grant_room()
        for entrance in list(self.entrances):
            entrance.grant_room()

    def _relieve_all(self) -> None:
        """Wake producers that wait for a node that was bound here, also in exchanges in front of
        this one."""
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
        """Use another policy from now on. The type cannot change: bindings are indexed by it."""
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
        """Count a link that is gone; the exchange may be unused now."""
        super().link_closed()
        self._consider_idle()

    def _consider_idle(self) -> None:
        after = self.policy.auto_delete
        if after >= 0 and self.links == 0 and not self._bindings and not self.deleted:
            self.space.timers.set(self._idle, self.agenda.now + after)

    def delete(self, error: Error) -> None:
        """End every link with `error` and remove every binding."""
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
        """Return the targets of links that name a key in the address."""
        return list(self.entrances)

    def describe(self) -> dict[str, object]:
        """Return the settings and figures of the exchange."""
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
