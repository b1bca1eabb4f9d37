"""Attach: the steps from the client's attach to the broker's answer (AMQP 1.0 §2.6.3, §3.5).

`LinkAttach.run` is the list of steps, in their order, with one undo stack. The steps for a link on
which the broker sends are in `attach_source.py`, those for a link on which the broker receives in
`attach_target.py`, and those for a control link in `attach_coordinator.py`.

The answer must be true. The requests of the client become terms, the node fills in what it grants,
and the answer has only what is granted. Addresses are repeated verbatim; filters, durability,
capabilities and properties that are not honoured are left out.
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
    """An attach of a client on its way through the steps, with the results of the steps so far.

    `request` is the client's attach, `session` the number of its session. `node` is the node of the
    link, None before it is resolved and for a link without a node; `made` is the node if it was
    created for this attach and is not dynamic. `address` is the address of the link with aliases
    resolved, `right` is the right that the link needs there. `waits` says that the attach has to
    wait for what the link will own: the steps from `claim` on follow later (`resume`), or `undo`.

    Each step may raise `BrokerError`: then the link is refused.
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
        "waits",
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
        self.parts: ConnectionParts = parts
        self.holder: LinkHolder = holder
        self.dynamic_nodes: DynamicNodes = dynamic_nodes
        self.link: Link = link
        attach = link.remote_attach
        assert attach is not None
        self.request: Attach = attach
        self.session: i64 = session
        self.node: Node | None = None
        self.made: Node | None = None
        self.address: str = ""
        self.right: i64 = 0
        self.waits: bool = False
        self._undo: list[Callable[[], object]] = []

    def run(self) -> None:
        """Run all steps, or those before `claim` if the attach `waits`. If a step fails, undo the
        earlier ones, the last first.

        The link is attached once it is answered: `begin` is not undone.
        """
        try:
            self.enter_connection()
            self.read_request()
            self.authorise()
            self.resolve_node()
            self.negotiate_terms()
            self.take_name()
            self.open_node()
        except BaseException:
            self.undo()
            raise
        self._complete()

    def resume(self) -> None:
        """Run the rest of the steps of an attach that waits. The client must still have the
        right."""
        try:
            self.authorise()
        except BaseException:
            self.undo()
            raise
        self._complete()

    def _complete(self) -> None:
        try:
            self.waits = not self.claim()
            if self.waits:
                # Others may use the node meanwhile.
                self.made = None
                return
            self.restore_terminus()
            self.answer()
        except BaseException:
            self.undo()
            raise
        self._undo.clear()
        self.begin()

    def undo(self) -> None:
        """Undo the steps that were done, the last first."""
        while self._undo:
            self._undo.pop()()

    def on_failure(self, undo: Callable[[], object]) -> None:
        """Have a function called if a later step fails."""
        self._undo.append(undo)

    # -- the steps, in their order ---------------------------------------------------------------

    def enter_connection(self) -> None:
        """Count the link against the limits of the connection."""
        self.on_failure(self._leave_connection)
        self.parts.allowance.enter(self.link)

    def read_request(self) -> None:
        """Find the terminus that the client asks for, and check the request.

        A link whose attach has no terminus gets the terminus that it had before.
        """

    def authorise(self) -> None:
        """Check that the client may have a link to the address."""

    def resolve_node(self) -> None:
        """Find or create the node of the address."""

    def negotiate_terms(self) -> None:
        """Make the terms from the request, and agree on the delivery mode."""

    def take_name(self) -> None:
        """Take the name of the link: another link with this name is ended (AMQP 1.0 §2.6.1).

        That link must have released everything that this link will have.
        """
        self.on_failure(self._release_name)
        self.parts.shared.names.take(self.holder, self.link, self.address, self.right)
        node = self.node
        if node is not None and node.deleted:
            # The node existed only for the link that had the name.
            raise BrokerError(
                "amqp:not-found",
                f"{node.address[:200]!r} was deleted together with an earlier link of this name",
            )

    def open_node(self) -> None:
        """Ask the node for terms, and check those that the client insists on."""

    def claim(self) -> bool:
        """Take what the link will own, here a session of a queue; return false if the attach has to
        wait for it."""
        return True

    def restore_terminus(self) -> None:
        """Find or create the terminus that outlives the link, and compare unsettled deliveries."""

    def answer(self) -> None:
        """Answer with the granted terms."""

    def begin(self) -> None:
        """Begin the link: give it to its node and, if the broker receives, give the client
        credit."""

    # -- shared by several steps -----------------------------------------------------------------

    def expect_pair(self, paired: bool, granted: dict[str, object]) -> None:
        """Raise `BrokerError` if the link must be part of a link pair and the node makes no
        responses (Link Pairing 1.0 §2.2.1)."""
        if paired and granted.get(PAIRED) is not True:
            node = self.node
            name = "the anonymous terminus" if node is None else repr(node.address[:200])
            raise BrokerError("amqp:not-implemented", f"{name} does not support link pairing")

    def find_node(self, address: str, capabilities: list[str]) -> tuple[Node, str]:
        """Find or create the node of an address, and return it with the part that is meant."""
        client = self.parts.client
        nodes = client.space.nodes
        count = len(nodes)
        client.space.make_service(address)
        node, part = client.space.resolve(address, capabilities, client.access)
        if len(nodes) > count:
            self.made = node
        self.on_failure(self.withdraw_node)
        return node, part

    def make_dynamic(self, asked: dict[str, object] | None, capabilities: list[str]) -> Node:
        """Create the dynamic node of the link."""
        node = self.dynamic_nodes.create(self.link, asked, capabilities)
        self.on_failure(self.withdraw_node)
        return node

    # -- undo -------------------------------------------------------------------------------------

    def withdraw_node(self) -> None:
        """Remove the node that was created for the link."""
        self.dynamic_nodes.withdraw(self.link, self.made)

    def _release_name(self) -> None:
        self.parts.shared.names.release(self.holder, self.link)

    def _leave_connection(self) -> None:
        self.parts.allowance.leave(self.link)
