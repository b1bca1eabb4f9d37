"""Tags of messages taken in, for links whose deliveries are to count once.

A client that loses its link does not know which of its last deliveries have arrived, and sends them
again, with the same tags, over a link of the same name. Those are told here.

What is promised: as long as the broker runs, a delivery that was accepted on an earlier attachment
of the link, and may be unknown to its sender to have been, is accepted once more and dropped. A tag
is compared with earlier attachments alone: on one attachment the client has seen every outcome
before the tag may come again. An attach with an unsettled map says which tags may come; without one
any of the last `WINDOW` may. Nothing of this outlives the process; of a link whose target outlives
it more is known (`remembered/target.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.connections.names import Key, tags_key_of
from ferrymq_broker.connections.remembered.tags import Tags
from ferrymq_types.messaging import Accepted

if TYPE_CHECKING:
    from ferrymq.engine.delivery import IncomingDelivery
    from ferrymq.engine.link import Link
    from ferrymq_broker.connections.handler import ConnectionHandler
    from ferrymq_types.unions import Outcome

# Tags remembered for each link. The credit of such a link is never larger: a client that was given
# credit after a message has been sent the outcome of that message before.
WINDOW: Final = 1024
# Links that are remembered while they are not attached; the longest absent is forgotten first.
ABSENT: Final = 1024


@final
class SeenTags(Tags):
    """The tags of one link: `earlier` are of attachments before, `current` of this one."""

    __slots__ = ("owner", "key", "earlier", "current")

    def __init__(self, owner: SeenTagsOfLinks, key: Key) -> None:
        self.owner = owner
        self.key = key
        self.earlier: dict[bytes, None] = {}
        self.current: dict[bytes, None] = {}

    def is_resent(self, tag: bytes) -> bool:
        """Whether the delivery was accepted before the link was lost; told once."""
        if tag in self.earlier:
            del self.earlier[tag]
            # The outcome may get lost once more.
            self._remember(tag)
            return True
        return False

    def add(self, delivery: IncomingDelivery, outcome: Outcome) -> None:
        """The delivery gets this outcome: what was accepted is remembered."""
        if isinstance(outcome, Accepted):
            self._remember(delivery.tag)

    def _remember(self, tag: bytes) -> None:
        current = self.current
        current[tag] = None
        if len(current) > WINDOW:
            del current[next(iter(current))]

    def forget(self, tag: bytes) -> None:
        """The sender knows the outcome."""
        self.current.pop(tag, None)

    def leave(self, handler: ConnectionHandler, lost: bool, closed: bool) -> None:
        """The link is gone."""
        self.owner.leave(self.key, closed)

    def reattach(self, unsettled: dict[object, object] | None) -> None:
        """The link is attached again by a sender that has these unsettled, None if it says
        nothing."""
        earlier = self.earlier
        earlier.update(self.current)
        if unsettled is not None:
            earlier = {tag: None for tag in earlier if tag in unsettled}
        while len(earlier) > WINDOW:
            del earlier[next(iter(earlier))]
        self.earlier = earlier
        self.current = {}


@final
class SeenTagsOfLinks:
    """The tags of every link that wants its deliveries to count once.

    At most `absent` links are remembered while they are not attached.
    """

    __slots__ = ("absent", "_attached", "_absent")

    def __init__(self) -> None:
        self.absent: i64 = ABSENT
        self._attached: dict[Key, SeenTags] = {}
        # In the order in which they left.
        self._absent: dict[Key, SeenTags] = {}

    def __len__(self) -> int:
        return len(self._attached) + len(self._absent)

    def open(
        self,
        handler: ConnectionHandler,
        link: Link,
        unsettled: dict[object, object] | None,
        address: str = "",
    ) -> SeenTags:
        """The tags of a link to `address` that is being attached."""
        key = tags_key_of(handler, link, address)
        seen = self._absent.pop(key, None)
        if seen is None:
            seen = SeenTags(self, key)
        else:
            # What comes again is accepted at once: that it came before is to be on disk.
            handler.changes.claim()
            seen.reattach(unsettled)
        self._attached[key] = seen
        return seen

    def leave(self, key: Key, closed: bool) -> None:
        """The link is `closed`, and never comes back, or only detached or lost."""
        seen = self._attached.pop(key, None)
        if seen is None or closed:
            return
        absent = self._absent
        absent[key] = seen
        if len(absent) > self.absent:
            del absent[next(iter(absent))]
