"""The view of one virtual host, in RabbitMQ's JSON: what the rights of a client let it see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus

from ferrymq_broker.connections.handler import ConnectionHandler
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.connections import ConnectionEntities
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.names import DYNAMIC
from ferrymq_broker.values.rights import ALL, CREATE, DELETE, MANAGE, RECEIVE
from ferrymq_rabbitmq.address_v2 import EXCHANGES, exchange_address, exchange_name, vhost_of
from ferrymq_rabbitmq.arguments import arguments_of, is_internal
from ferrymq_rabbitmq.management.binding_requests import binding_hash
from ferrymq_rabbitmq.management.request_refused import RequestRefused
from ferrymq_rabbitmq.pattern_policies import EXCHANGE, PatternPolicy, policies_of

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.nodes.exchanges.binding import Binding
    from ferrymq_broker.nodes.link_terms import Party
    from ferrymq_rabbitmq.management.host_requests import HostRequests

# The name of the only node of the cluster.
# RabbitMQ's names of protocols where they differ from ours.
_PROTOCOLS: Final = {"AMQP 1.0": "AMQP 1-0"}
NODE: Final = "rabbit@ferrymq"
# The rights with which a client may see the bindings of an exchange.
_BINDINGS: Final = MANAGE | CREATE | DELETE | RECEIVE

Json = dict[str, Any]


class HostView:
    """One virtual host, as a party sees it."""

    def __init__(
        self, broker: Broker, space: AddressSpace, requests: HostRequests, party: Party
    ) -> None:
        self.space = space
        self.vhost = vhost_of(space)
        self.requests = requests
        self.party = party
        self.connections = ConnectionEntities(broker, space)

    @property
    def visible(self) -> bool:
        """Whether the party has any right in the virtual host."""
        return self.party.access.gives_anything()

    @property
    def managed(self) -> bool:
        """Whether the party may manage the broker."""
        return self.party.access.permits(MANAGE, ADDRESS)

    def described(self) -> Json:
        """Return the virtual host itself."""
        queues = [node for node in self._nodes() if isinstance(node, Queue)]
        return {
            "name": self.vhost,
            "description": "",
            "tags": [],
            "default_queue_type": "classic",
            "metadata": {"description": "", "tags": []},
            "tracing": False,
            "cluster_state": {NODE: "running"},
            **_sums(queues),
        }

    # -- queues --------------------------------------------------------------------------

    def queues(self) -> Iterator[Json]:
        """Yield the queues and streams that the party may see, by name."""
        for node in self._nodes():
            yield self._queue(node)

    def queue(self, name: str) -> Json:
        """Return one queue. Raises `RequestRefused`."""
        self.requests.queues.describe(self.party, name)
        return self._queue(self.queue_node(name))

    def queue_node(self, name: str) -> Queue | Stream:
        """Return the node of a queue. Raises `RequestRefused`."""
        node = self.space.find(name)
        if not isinstance(node, Queue | Stream):
            raise RequestRefused.missing("queue", name)
        return node

    def _nodes(self) -> Iterator[Queue | Stream]:
        """Yield queues by name. Others may come and go meanwhile."""
        access = self.party.access
        for address in sorted(self.space.nodes):
            node = self.space.nodes.get(address)
            if (
                isinstance(node, Queue | Stream)
                and not address.startswith("$")
                and access.permits(
                    MANAGE if address.startswith(DYNAMIC) else ALL,
                    self.space.owner_of(address) or address,
                )
            ):
                yield node

    def _queue(self, node: Queue | Stream) -> Json:
        described = self.requests.queues.describe(self.party, node.address)
        ready, held = _counts(node)
        figures = node.figures()
        type = str(described["type"])
        policy = policies_of(self.space).find(type, node.address)
        operator = policies_of(self.space).find(type, node.address, operator=True)
        stats = {"publish": figures["published"]}
        if isinstance(node, Queue):
            stats["deliver_get"] = stats["deliver"] = figures["delivered"]
            stats["ack"] = figures["accepted"]
        return {
            "name": node.address,
            "vhost": self.vhost,
            "type": type,
            "durable": described["durable"],
            "auto_delete": described["auto_delete"],
            "exclusive": described["exclusive"],
            "arguments": described["arguments"],
            "node": NODE,
            "leader": NODE,
            "members": [NODE],
            "online": [NODE],
            "state": "running",
            "policy": None if policy is None else policy.name,
            "operator_policy": None if operator is None else operator.name,
            "effective_policy_definition": _definition(policy, operator),
            "consumers": figures["consumers"],
            "messages": ready + held,
            "messages_ready": ready,
            "messages_unacknowledged": held,
            "message_bytes": figures["bytes"],
            "message_stats": stats,
        }

    # -- exchanges and bindings ----------------------------------------------------------

    def exchanges(self) -> list[Json]:
        """Return the exchanges that the party may see, by name; the default one comes first."""
        access = self.party.access
        found = [
            self._exchange(node)
            for address, node in self.space.nodes.items()
            if isinstance(node, Exchange) and access.permits(ALL, address)
        ]
        return [self._default_exchange(), *sorted(found, key=lambda each: str(each["name"]))]

    def exchange(self, name: str) -> Json:
        """Return one exchange. Raises `RequestRefused`."""
        return self._default_exchange() if not name else self._exchange(self.exchange_node(name))

    def exchange_node(self, name: str) -> Exchange:
        """Return the node of an exchange that the party may see. Raises `RequestRefused`."""
        node = self.space.find(exchange_address(name)) or self.space.find(name)
        if not isinstance(node, Exchange) or not self.party.access.permits(ALL, node.address):
            raise RequestRefused.missing("exchange", name)
        return node

    def _exchange(self, node: Exchange) -> Json:
        name, policy = exchange_name(node.address), node.policy
        found = policies_of(self.space).find(EXCHANGE, name)
        return {
            "name": name,
            "vhost": self.vhost,
            "type": policy.type,
            "durable": policy.durable,
            "auto_delete": policy.auto_delete == 0,
            "internal": is_internal(policy),
            "arguments": arguments_of(policy.labels),
            "policy": None if found is None else found.name,
            "message_stats": {"publish_in": int(node.published)},
        }

    def _default_exchange(self) -> Json:
        return {
            "name": "",
            "vhost": self.vhost,
            "type": "direct",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }

    def bindings(self) -> Iterator[Json]:
        """Yield the bindings that the party may see; first those to the default exchange."""
        for queue in self._nodes():
            yield self._default_binding(queue.address)
        for node in list(self.space.nodes.values()):
            if isinstance(node, Exchange):
                yield from self.bindings_of(node)

    def bindings_of(self, exchange: Exchange) -> list[Json]:
        """Return the bindings of an exchange; none if the party may not see them."""
        if not self.party.access.permits(_BINDINGS, exchange.address):
            return []
        return [self._binding(exchange, binding) for binding in exchange.bindings()]

    def _binding(self, exchange: Exchange, binding: Binding) -> Json:
        destination = binding.destination
        to_exchange = destination.startswith(EXCHANGES)
        return {
            "source": exchange_name(exchange.address),
            "vhost": self.vhost,
            "destination": exchange_name(destination) if to_exchange else destination,
            "destination_type": "exchange" if to_exchange else "queue",
            "routing_key": binding.key,
            "arguments": binding.arguments,
            "properties_key": properties_key(binding),
        }

    def _default_binding(self, queue: str) -> Json:
        return {
            "source": "",
            "vhost": self.vhost,
            "destination": queue,
            "destination_type": "queue",
            "routing_key": queue,
            "arguments": {},
            "properties_key": quote_plus(queue),
        }

    # -- connections ---------------------------------------------------------------------

    def connection_numbers(self) -> dict[str, str]:
        """Return the numbers of the connections that the party may see, by RabbitMQ's names: all,
        or those of the same user."""
        user = self.party.user
        return {
            _connection_name(handler): number
            for number, handler in self.connections.entries().items()
            if self.managed or (user is not None and handler.client.user == user)
        }

    def connection_list(self) -> list[Json]:
        """Return the connections that the party may see, of every protocol, oldest first."""
        handlers = self.connections.entries()
        return [
            self._connection(name, handlers[number])
            for name, number in self.connection_numbers().items()
        ]

    def _connection(self, name: str, handler: Any) -> Json:
        told = self.connections.describe(handler)
        client = handler.client
        host, _, port = client.peer.rpartition(":")
        idle = told.get("idle-time-out")
        return {
            "name": name,
            "vhost": self.vhost,
            "user": client.user or "",
            "user_provided_name": client.container_id,
            "node": NODE,
            "type": "network",
            "protocol": _PROTOCOLS.get(str(told.get("protocol")), told.get("protocol")),
            "state": "blocked" if told.get("blocked") else "running",
            "channels": told.get("channels", told.get("sessions", 0)),
            "peer_host": host,
            "peer_port": int(port) if port.isdigit() else 0,
            "ssl": client.transport.encrypted,
            "auth_mechanism": "" if client.identity is None else client.identity.mechanism,
            "frame_max": told.get("max-frame-size") or 0,
            "channel_max": told.get("channel-max") or 0,
            "timeout": idle // 1000 if isinstance(idle, int) else 0,
            "client_properties": told.get("properties") or {},
        }

    def channels(self) -> list[Json]:
        """Return the channels of these connections; a session of AMQP 1.0 is one, too."""
        names = {number: name for name, number in self.connection_numbers().items()}
        found = []
        for number, handler in self.connections.entries().items():
            if number in names and isinstance(handler, ConnectionHandler):
                for session in handler.connection.channels.by_local.values():
                    consumers = sum(1 for link in session.links.values() if link.is_sender)
                    found.append(
                        self._channel(names[number], handler, int(session.channel), consumers)
                    )
        for number, handler in self.connections.entries().items():
            # Those of a protocol that has channels itself.
            channels: dict[int, Any] = getattr(handler, "channels", {})
            for channel in channels.values() if number in names else ():
                shown = self._channel(
                    names[number], handler, int(channel.number), len(channel.consumers)
                )
                shown["confirm"] = channel.confirms is not None
                shown["transactional"] = channel.transaction is not None
                shown["prefetch_count"] = int(channel.prefetch)
                shown["global_prefetch_count"] = int(channel.total_prefetch)
                shown["messages_unacknowledged"] = len(channel.unacknowledged)
                found.append(shown)
        return found

    def _channel(self, name: str, handler: Any, number: int, consumers: int) -> Json:
        return {
            "name": f"{name} ({number})",
            "number": number,
            "vhost": self.vhost,
            "user": handler.client.user or "",
            "node": NODE,
            "state": "running",
            "confirm": False,
            "transactional": False,
            "prefetch_count": 0,
            "consumer_count": consumers,
            "connection_details": {"name": name},
        }

    def consumers(self) -> Iterator[Json]:
        """Yield the consumers of the queues that the party may see."""
        names = {number: name for name, number in self.connection_numbers().items()}
        for node in self._nodes():
            for consumer in node.consumers_of():
                # A link of AMQP 1.0, or a consumer of a channel.
                link: Any = getattr(consumer, "link", None)
                holder: Any = getattr(consumer, "channel" if link is None else "parts", None)
                name = names.get("" if holder is None else str(holder.client.id), "")
                tag = getattr(consumer, "tag", consumer.id) if link is None else link.name
                settled = (
                    getattr(consumer, "no_ack", False) if link is None else link.always_settled
                )
                yield {
                    "queue": {"name": node.address, "vhost": self.vhost},
                    "consumer_tag": str(tag),
                    "ack_required": not settled,
                    "exclusive": consumer.exclusive,
                    "active": True,
                    "activity_status": "up",
                    "prefetch_count": int(getattr(consumer, "prefetch", 0)),
                    "arguments": {},
                    "channel_details": {"connection_name": name, "node": NODE},
                }

    # -- sums ----------------------------------------------------------------------------

    def totals(self) -> tuple[Json, Json, Json]:
        """Return the numbers of objects, of messages, and of messages so far."""
        nodes = list(self._nodes())
        queues = [node for node in nodes if isinstance(node, Queue)]
        figures = [queue.totals() for queue in queues]
        objects = {
            "queues": len(nodes),
            "exchanges": len(self.exchanges()),
            "connections": len(self.connection_numbers()),
            "channels": len(self.channels()),
            "consumers": sum(len(node.consumers_of()) for node in nodes),
        }
        stats = {
            "publish": sum(each["published"] for each in figures),
            "deliver_get": sum(each["delivered"] for each in figures),
            "ack": sum(each["accepted"] for each in figures),
        }
        return objects, _sums(queues), stats


def properties_key(binding: Binding) -> str:
    """Return RabbitMQ's name of a binding among those between the same two ends."""
    if not binding.key and not binding.arguments:
        return "~"
    key = quote_plus(binding.key).replace("~", "%7E")
    return f"{key}~{binding_hash(binding.arguments)}" if binding.arguments else key


def _connection_name(handler: Any) -> str:
    return f"{handler.client.peer} -> {handler.client.id}"


def _counts(node: Queue | Stream) -> tuple[int, int]:
    """Return how many messages are ready, and how many consumers hold."""
    if isinstance(node, Stream):
        return int(node.message_count()), 0
    held = int(node.entries.acquired)
    return int(node.message_count()) - held, held


def _sums(queues: list[Queue]) -> Json:
    ready = held = 0
    for queue in queues:
        counts = _counts(queue)
        ready, held = ready + counts[0], held + counts[1]
    return {"messages": ready + held, "messages_ready": ready, "messages_unacknowledged": held}


def _definition(policy: PatternPolicy | None, operator: PatternPolicy | None) -> Json:
    definition = {} if policy is None else dict(policy.definition)
    return {**definition, **({} if operator is None else operator.definition)}
