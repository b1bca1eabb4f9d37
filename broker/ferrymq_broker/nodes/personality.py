"""The port of a personality: how a virtual host serves the clients of another broker.

A package outside the broker makes one personality for each virtual host. Addresses are *native*
(those of the broker's nodes) or those *of the client*. The base class changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.link_terms import SourceTerms, TargetTerms
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.nodes.service import ServiceNode
    from ferrymq_types.messaging import Source, Target
    from ferrymq_types.unions import Outcome


# The most bytes that `Personality.stamp` may add to a delivery.
MOST_STAMPED: Final = 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class Personality:
    """The answers of a virtual host to what its clients expect beyond AMQP 1.0.

    Each method may raise `BrokerError`, except `named`, `stamp` and `error`,
    which answer with their arguments if these are strange to them.
    """

    # -- entities ------------------------------------------------------------------------

    def declare(self) -> None:
        """Make the nodes that the settings of the personality declare.

        Called once, when stored nodes exist and the configuration of the broker has been applied.
        Raises `ConfigError` for what cannot be declared.
        """

    def can_take(self, settings: Mapping[str, object]) -> bool:
        """Return whether the virtual host can have other settings of the configuration while it
        runs. Raises ValueError for wrong settings."""
        return False

    def take(self, settings: Mapping[str, object]) -> None:
        """Use other settings, after `can_take` has returned True for them."""

    def definitions(self, settings: dict[str, object]) -> dict[str, object]:
        """Return the settings that make what was changed while the broker runs, by their keys.
        `settings` are those of the configuration, with those of other virtual hosts."""
        return {}

    # Whether the annotation with the offset of a record is a string.
    text_offsets: bool = False
    # The name of a further annotation with the offset of a record, an ulong; empty without one.
    offset_annotation: str = ""
    # Whether a message that is too large is rejected; otherwise it ends its link (AMQP 1.0 §2.7.3).
    rejects_large: bool = False

    def open_properties(self) -> dict[str, object]:
        """Return properties of the broker's open, which count more than those of the broker."""
        return {}

    def desired(self, capability: str) -> str:
        """Return the link property of the broker that a desired capability asks for; empty for an
        unknown one."""
        return ""

    def last_record(self, offset: int, time: int, now: int) -> dict[str, object]:
        """Return the annotations of a delivery that tells of the last record of its partition; see
        `streams.last_record`."""
        return {}

    # -- addresses -----------------------------------------------------------------------

    def native(self, address: str) -> str:
        """Return the native address for an address of a client.

        The result must not change if it is translated again. Aliases are resolved afterwards.
        """
        return address

    def named(self, address: str) -> str:
        """Return the address that a client is told for a native address."""
        return address

    def service(self, address: str) -> ServiceNode | None:
        """Return a new service for a native address without a node; None if there is to be none.

        The service is deleted with its last link, and made again for the next one.
        """
        return None

    def entity_of_service(self, address: str) -> str:
        """Return the native address of the entity that the service at a native address is about;
        empty if `service` makes none for this address.

        A client with any right at the entity may have a link to the service, which has to check
        the right that each request needs.
        """
        return ""

    # -- links ---------------------------------------------------------------------------

    def source(self, asked: Source, properties: dict[str, object]) -> Source:
        """Return the source that an attach means, in the broker's own terms: its filters (also
        those that are not described), capabilities and other fields.

        The address is not read from the result: see `native`. `asked` must stay as it is.
        `properties` are those of the link; they are a copy and may be changed.
        """
        return asked

    def source_granted(self, terms: SourceTerms) -> None:
        """Add what the clients look for to the granted terms, before an attach is answered.

        `terms.filters.granted` has the filters of the answer, `terms.asked` the source that came.
        """

    def target(self, asked: Target, properties: dict[str, object]) -> Target:
        """Return the target that an attach means, as `source` does."""
        return asked

    def target_granted(self, terms: TargetTerms) -> None:
        """Add what the clients look for to the granted terms, before an attach is answered."""

    # -- messages ------------------------------------------------------------------------

    def admit(self, message: BrokerMessage, node: Node) -> BrokerMessage:
        """Return the message that is published instead of the message of a client.

        `node` is the node that the message was sent to.
        """
        return message

    def stamp(self, node: Node, entry: Entry, head: bytes, start: i64) -> tuple[bytes, i64]:
        """Return the head of a delivery, and where the payload goes on after it.

        Without this method the delivery would consist of `head` and the payload of the entry's
        message from `start` on. `entry.lock` is the lock of the delivery, if it has one. At most
        `MOST_STAMPED` bytes may be added.
        """
        return head, start

    def dead_letter(self, entry: Entry, annotations: dict[str | int, object]) -> None:
        """Add to the annotations that a message gets when it leaves a queue as a dead letter."""

    def outcome(self, node: Node, entry: Entry, state: Outcome, ending: bool) -> Outcome:
        """Return the outcome that is applied instead of the outcome of a client.

        `ending` is whether the link is being drained or has been detached.
        """
        return state

    def amended(self, message: BrokerMessage, changes: dict[str, object]) -> BrokerMessage:
        """Return the message with the annotations of an outcome, when that is applied. Raises
        `CodecError` if they cannot be merged."""
        return message.annotated(changes)

    # -- errors --------------------------------------------------------------------------

    def error(self, condition: str, description: str, info: dict[str, object] | None) -> Error:
        """Return the error that a client is told."""
        return Error(condition=condition, description=description, info=info)
