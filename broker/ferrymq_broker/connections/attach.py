"""Attach: the steps from the client's attach to the broker's answer (AMQP 1.0 §2.6.3, §3.5).

`LinkAttach.run` is the list of steps, in their order, with the one stack of what is to be undone.
What a step does for a link on which the broker sends is in `attach_source.py`, for one on which
the broker receives in `attach_target.py`, and for a control link in `attach_coordinator.py`.

A broker must not lie. What the client asks for becomes terms, the node fills in what it grants, and
the answer is made of that alone. Addresses come back verbatim; filters, durability, capabilities
and properties that are not honoured do not come back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mypy_extensions import i64

from ferrymq.engine.pairing import PAIRED
from ferrymq_broker.errors import BrokerError

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq_broker.connections.dynamic_nodes import DynamicNodes
    from ferrymq_broker.connections.link_names import LinkHolder
    from ferrymq_broker.connections.parts import ConnectionParts
    from ferrymq_broker.nodes.node import Node
    from ferrymq_types.transport import Attach


class LinkAttach:
    """An attach of a client on its way through the steps, with what they have found so far.

    `request` is the attach that has come, `session` the number of its session. `node` is the node
    of the link, None before it is resolved and for a link that has none; `made` is the node if it
    was made for this attach, unless it is a dynamic one. `address` is that of the link with aliases
    followed, `right` what it takes there to have such a link.

    Each step may raise `BrokerError`: the link is refused then.
    """

    __slots__ = (
        "parts",
        "holder",
        "dynamic_nodes",
        "link",
        "request",
        "session",
        "node",
        "made",
        "address",
        "right",
        "_undo",
    )

    def __init__(
        self,
        parts: ConnectionParts,
        holder: LinkHolder,
        dynamic_nodes: DynamicNodes,
        link: Link,
        session: i64,
    ) -> None:
        self.parts = parts
        self.holder = holder
        self.dynamic_nodes = dynamic_nodes
        self.link = link
        attach = link.remote_attach
        assert attach is not None
        self.request: Attach = attach
        self.session: i64 = session
        self.node: Node | None = None
        self.made: Node | None = None
        self.address = ""
        self.right: i64 = 0
        self._undo: list[Callable[[], object]] = []

    def run(self) -> None:
        """Go through all steps. If one of them fails, what was done is undone, the last first.

        The link is attached once it is answered: what `begin` does is not undone.
        """
        try:
            self.enter_connection()
            self.read_request()
            self.authorise()
            self.resolve_node()
            self.negotiate_terms()
            self.take_name()
            self.open_node()
            self.restore_terminus()
            self.answer()
        except BaseException:
            while self._undo:
                self._undo.pop()()
            raise
        self._undo.clear()
        self.begin()

    def on_failure(self, undo: Callable[[], object]) -> None:
        """Have a function called if a later step fails."""
        self._undo.append(undo)

    # -- the steps, in their order ---------------------------------------------------------------

    def enter_connection(self) -> None:
        """Count the link with what the connection may have."""
        self.on_failure(self._leave_connection)
        self.parts.allowance.enter(self.link)

    def read_request(self) -> None:
        """Find out which terminus the client asks for, and whether it may be asked for like that.

        A link whose attach does not say is for the terminus it has had before.
        """

    def authorise(self) -> None:
        """Expect that the client may have a link to the address."""

    def resolve_node(self) -> None:
        """Find the node of the address, or make it."""

    def negotiate_terms(self) -> None:
        """Make the terms of what the client asks for, and agree on the delivery mode."""

    def take_name(self) -> None:
        """Take the name of the link: the link that has had it is ended (AMQP 1.0 §2.6.1).

        What this link is to have, that one must have let go of.
        """
        self.on_failure(self._release_name)
        self.parts.shared.names.take(self.holder, self.link, self.address, self.right)
        node = self.node
        if node is not None and node.deleted:
            # The node was there only for the link that had the name.
            raise BrokerError("amqp:not-found", f"{node.address[:200]!r} has gone with its link")

    def open_node(self) -> None:
        """Have the node grant terms, and expect those that the client insists on."""

    def restore_terminus(self) -> None:
        """Find or make the terminus that outlives the link, and compare what is unsettled."""

    def answer(self) -> None:
        """Answer with what has been granted."""

    def begin(self) -> None:
        """Begin the link: give it to its node and, if the broker receives, give the client
        credit."""

    # -- what several steps need -----------------------------------------------------------------

    def expect_pair(self, paired: bool, granted: dict[str, object]) -> None:
        """Raise `BrokerError` if the link is to be half of a pair and the node makes no responses
        (Link Pairing 1.0 §2.2.1)."""
        if paired and granted.get(PAIRED) is not True:
            node = self.node
            name = "the anonymous terminus" if node is None else repr(node.address[:200])
            raise BrokerError("amqp:not-implemented", f"{name} does not support link pairing")

    def find_node(self, address: str, capabilities: list[str]) -> tuple[Node, str]:
        """Find or make the node of an address, and return it with the part that is meant."""
        client = self.parts.client
        nodes = client.space.nodes
        count = len(nodes)
        node, part = client.space.resolve(address, capabilities, client.access)
        if len(nodes) > count:
            self.made = node
        self.on_failure(self.withdraw_node)
        return node, part

    def make_dynamic(self, asked: dict[str, object] | None, capabilities: list[str]) -> Node:
        """Make the dynamic node of the link."""
        node = self.dynamic_nodes.create(self.link, asked, capabilities)
        self.on_failure(self.withdraw_node)
        return node

    # -- what is undone --------------------------------------------------------------------------

    def withdraw_node(self) -> None:
        """Remove the node that was made for the link."""
        self.dynamic_nodes.withdraw(self.link, self.made)

    def _release_name(self) -> None:
        self.parts.shared.names.release(self.holder, self.link)

    def _leave_connection(self) -> None:
        self.parts.allowance.leave(self.link)
