"""The broker: which address is which node, and how a pass over one read ends.

Everything the broker does is done in *passes*. A pass starts with bytes from one connection, or a
timer. Handlers call nodes, nodes put themselves on the agenda, consumers put the handlers they
wrote to on another; `finish_pass` works both off. So a read that brings a thousand messages causes
one dispatch for each queue concerned and one write for each connection.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.connections.names import LinkNames
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.node import Agenda, Node
from ferrymq_broker.nodes.queue import Queue
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler

MAX_ADDRESS_LENGTH: Final = 1024
# The addresses of dynamic nodes begin so. They name their node or, once it is gone, none.
_DYNAMIC: Final = "dynamic."
# 144 random bits: nobody guesses the address of another's dynamic node.
_TOKEN_BYTES: Final = 18


@final
class Broker:
    """All nodes and all connections of one broker.

    `auto_create` makes a queue for an address that has none when a link asks for it, as long as
    there are at most `max_nodes` nodes. `schedule` is called with a function to be called soon, by
    the event loop, in a pass of its own.
    """

    __slots__ = (
        "auto_create",
        "max_nodes",
        "nodes",
        "agenda",
        "dirty_handlers",
        "handlers",
        "link_names",
        "_congested",
        "_schedule",
        "_next_consumer_id",
    )

    def __init__(
        self,
        schedule: Callable[[Callable[[], None]], object],
        auto_create: bool = True,
        max_nodes: int = 100_000,
    ) -> None:
        self.auto_create = auto_create
        self.max_nodes = max_nodes
        self.nodes: dict[str, Node] = {}
        self.agenda = Agenda()
        self.dirty_handlers: list[ConnectionHandler] = []
        # Every connection, in the order they came.
        self.handlers: dict[ConnectionHandler, None] = {}
        self.link_names = LinkNames()
        self._congested: list[ConnectionHandler] = []
        self._schedule = schedule
        self._next_consumer_id: i64 = 0

    # -- nodes ---------------------------------------------------------------------------

    def declare_queue(self, address: str) -> Queue:
        """The queue at `address`, made if there is none.

        Raises `BrokerError` when something else has the address or the limit is reached.
        """
        node = self.nodes.get(address)
        if node is None:
            self._expect_room(address)
            queue = Queue(address, self.agenda)
            self.nodes[address] = queue
            return queue
        if not isinstance(node, Queue):
            raise BrokerError("amqp:not-allowed", f"{address!r} is not a queue")
        return node

    def resolve(self, address: str) -> Node:
        """The node at `address`, made if that is allowed. Raises `BrokerError` if there is none."""
        node = self.nodes.get(address)
        if node is not None:
            return node
        if not address:
            raise BrokerError("amqp:invalid-field", "an empty address names no node")
        if not self.auto_create or address.startswith(("$", _DYNAMIC)):
            raise BrokerError("amqp:not-found", f"there is no node {address[:200]!r}")
        if len(address) > MAX_ADDRESS_LENGTH:
            raise BrokerError(
                "amqp:invalid-field",
                f"address of {len(address)} characters; at most {MAX_ADDRESS_LENGTH} are allowed",
            )
        return self.declare_queue(address)

    def find(self, address: str) -> Node:
        """The node at `address`, never made on the way. Raises `BrokerError` if there is none."""
        node = self.nodes.get(address)
        if node is None:
            raise BrokerError("amqp:not-found", f"there is no node {address[:200]!r}")
        return node

    def create_dynamic(self) -> Queue:
        """A queue for one link, with an address nobody can guess (AMQP 1.0 §3.5.3)."""
        address = f"{_DYNAMIC}{secrets.token_urlsafe(_TOKEN_BYTES)}"
        self._expect_room(address)
        queue = Queue(address, self.agenda, True)
        self.nodes[address] = queue
        return queue

    def delete(self, node: Node) -> None:
        """Remove a node; its links are closed with `amqp:resource-deleted`."""
        if self.nodes.get(node.address) is node:
            del self.nodes[node.address]
        if not node.deleted:
            node.delete(
                Error(
                    condition="amqp:resource-deleted",
                    description=f"the node {node.address!r} has been deleted",
                )
            )

    def clear(self) -> None:
        """Drop all nodes and messages; for the end of the process, when no link is left."""
        for node in list(self.nodes.values()):
            self.delete(node)

    def _expect_room(self, address: str) -> None:
        if len(self.nodes) >= self.max_nodes:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"no room for {address[:200]!r}: there are {self.max_nodes} nodes already",
            )

    def new_consumer_id(self) -> i64:
        """An id no consumer has had."""
        self._next_consumer_id += 1
        return self._next_consumer_id

    # -- passes --------------------------------------------------------------------------

    def finish_pass(self) -> None:
        """Let nodes dispatch and write what came of it, until there is nothing left to do."""
        agenda = self.agenda
        while True:
            if agenda.nodes:
                agenda.run()
            handlers = self.dirty_handlers
            if not handlers:
                return
            self.dirty_handlers = []
            for handler in handlers:
                handler.flush()

    def continue_later(self, handler: ConnectionHandler) -> None:
        """The connection has had its share of this pass; it goes on in another."""
        if not self._congested:
            self._schedule(self._continue)
        self._congested.append(handler)

    def _continue(self) -> None:
        congested = self._congested
        self._congested = []
        for handler in congested:
            handler.decongest()
        self.finish_pass()
