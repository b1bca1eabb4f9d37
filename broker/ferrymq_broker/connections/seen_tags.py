"""Tags of accepted messages, for links whose deliveries count once.

A client that loses its link does not know which of its last deliveries have arrived, and sends them
again, with the same tags, over a link of the same name. This module recognises them.

The promise: as long as the broker runs, a delivery that was accepted on an earlier attachment of
the link, and whose sender may not know that, is accepted once more and dropped. A tag is compared
with earlier attachments only: on the same attachment the client sees every outcome before it may
use the tag again. An attach with an unsettled map says which tags may come; without one, any of the
last `WINDOW` tags may come. Nothing of this outlives the process; for a link whose target outlives
it more is remembered (`durable_links/target.py`).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.connections.delivery_mode import EXACTLY_ONCE
from ferrymq_broker.connections.durable_links.link_identity import LinkIdentity
from ferrymq_broker.connections.durable_links.tags import Tags
from ferrymq_types.messaging import Accepted

if TYPE_CHECKING:
    from ferrymq.engine.delivery import IncomingDelivery
    from ferrymq.engine.link import Link
    from ferrymq_broker.connections.connected_client import ConnectedClient, LinkKey
    from ferrymq_broker.store.changes import Changes
    from ferrymq_broker.transactions.txn_publish import TxnPublish
    from ferrymq_types.unions import Outcome

# The number of tags remembered for each link. The credit of such a link is never higher: a client
# that got credit after a message has been sent the outcome of that message before.
WINDOW: Final = 1024
# How many detached links are remembered: of one user, and of all users of a virtual host; and the
# most tags of the latter together, with some 100 bytes each.
ABSENT: Final = 1024
ABSENT_OF_SPACE: Final = 16 * ABSENT
TAGS_OF_SPACE: Final = ABSENT * WINDOW
# How many outdated places of users may stay in the heap.
_SLACK: Final = 64


@final
class SeenTags(Tags):
    """The tags of one link: `earlier` are of earlier attachments, `current` of this one.

    `provisional` has the messages of open transactions.
    """

    __slots__ = ("owner", "identity", "earlier", "current", "provisional")

    def __init__(self, owner: SeenTagsOfLinks, identity: LinkIdentity) -> None:
        self.owner: SeenTagsOfLinks = owner
        self.identity: LinkIdentity = identity
        self.earlier: dict[bytes, None] = {}
        self.current: dict[bytes, None] = {}
        self.provisional: dict[bytes, TxnPublish] = {}

    def __len__(self) -> int:
        return len(self.earlier) + len(self.current)

    def is_resent(self, tag: bytes) -> bool:
        """Return whether the delivery was accepted before the link was lost; true only once."""
        if tag in self.earlier:
            del self.earlier[tag]
            # The outcome may get lost again.
            self._remember(tag)
            return True
        return False

    def add(self, delivery: IncomingDelivery, outcome: Outcome, kept: bool) -> None:
        """Remember a delivery that is accepted."""
        if isinstance(outcome, Accepted):
            self._remember(delivery.tag)

    def posting(self, tag: bytes) -> TxnPublish | None:
        """Return the message with this tag that is part of an open transaction."""
        return self.provisional.get(tag)

    def add_posting(self, tag: bytes, posting: TxnPublish) -> None:
        """Remember a message that is part of a transaction."""
        self.provisional[tag] = posting

    def end_posting(self, tag: bytes) -> None:
        """Forget a message of a transaction that is over."""
        self.provisional.pop(tag, None)

    def _remember(self, tag: bytes) -> None:
        current = self.current
        current[tag] = None
        if len(current) > WINDOW:
            del current[next(iter(current))]

    def forget(self, tag: bytes) -> None:
        """Forget a delivery whose outcome the sender knows."""
        self.current.pop(tag, None)

    def leave(self, lost: bool, closed: bool) -> None:
        """Note that the link is gone."""
        self.owner.leave(self.identity.key, closed)

    def reattach(self, unsettled: dict[object, object] | None) -> None:
        """Begin a new attachment by a sender with this unsettled map, None without one."""
        earlier = self.earlier
        earlier.update(self.current)
        if unsettled is not None:
            earlier = {tag: None for tag in earlier if tag in unsettled}
        while len(earlier) > WINDOW:
            del earlier[next(iter(earlier))]
        self.earlier = earlier
        self.current = {}


@final
class _Owner:
    """The detached links of one user of a virtual host, in the order in which they left, and their
    number of tags."""

    __slots__ = ("absent", "tags")

    def __init__(self) -> None:
        self.absent: dict[LinkKey, SeenTags] = {}
        self.tags: i64 = 0

    def put(self, key: LinkKey, seen: SeenTags) -> None:
        """Add a link that was detached."""
        self.take(key)
        self.absent[key] = seen
        self.tags += len(seen)

    def take(self, key: LinkKey) -> SeenTags | None:
        """Remove a link that is attached again or forgotten, and return its tags; None if it is not
        known."""
        seen = self.absent.pop(key, None)
        if seen is not None:
            self.tags -= len(seen)
        return seen

    def forget_first(self) -> None:
        """Forget the link that has been detached longest."""
        self.take(next(iter(self.absent)))


@final
class _Tenant:
    """The users of one virtual host, and what is remembered for them.

    `heap` has a place for every user with the amount at that time: the user with the highest amount
    is first. An outdated place is dropped when it comes to the front.
    """

    __slots__ = ("owners", "links", "tags", "heap")

    def __init__(self) -> None:
        self.owners: dict[str | None, _Owner] = {}
        self.links: i64 = 0
        self.tags: i64 = 0
        self.heap: list[tuple[int, str]] = []

    def put(self, user: str | None, key: LinkKey, seen: SeenTags, most: i64) -> None:
        """Add a detached link of the user; the user may have `most` detached links."""
        owner = self.owners.get(user)
        if owner is None:
            owner = _Owner()
            self.owners[user] = owner
        links, tags = len(owner.absent), owner.tags
        owner.put(key, seen)
        while len(owner.absent) > most:
            owner.forget_first()
        self.links += len(owner.absent) - links
        self.tags += owner.tags - tags
        self._place(user, owner)

    def take(self, user: str | None, key: LinkKey) -> SeenTags | None:
        """Remove a link of the user that is attached again, and return its tags; None if it is not
        known."""
        owner = self.owners.get(user)
        seen = None if owner is None else owner.take(key)
        if owner is None or seen is None:
            return None
        self.links -= 1
        self.tags -= len(seen)
        if owner.absent:
            self._place(user, owner)
        else:
            del self.owners[user]
        return seen

    def _place(self, user: str | None, owner: _Owner) -> None:
        heap = self.heap
        heappush(heap, (-_weight(owner), _sortable(user)))
        if len(heap) > 2 * len(self.owners) + _SLACK:
            self.heap = [(-_weight(one), _sortable(name)) for name, one in self.owners.items()]
            heapify(self.heap)

    def make_room(self, links: i64, tags: i64) -> None:
        """Forget links until there are at most `links` with `tags` tags together: always the oldest
        link of the user who has most."""
        while self.links > links or self.tags > tags:
            weight, name = self.heap[0]
            user = name[1:] if name else None
            owner = self.owners.get(user)
            if owner is None or -_weight(owner) != weight:
                heappop(self.heap)
                continue
            before = owner.tags
            owner.forget_first()
            self.links -= 1
            self.tags -= before - owner.tags
            if owner.absent:
                self._place(user, owner)
            else:
                del self.owners[user]


def _weight(owner: _Owner) -> int:
    """Return how much the user makes the broker remember; a link without tags counts, too."""
    return int(owner.tags) + len(owner.absent)


def _sortable(user: str | None) -> str:
    """Return a user in a form that can be ordered: ``""`` is the anonymous one."""
    return "" if user is None else f"={user}"


@final
class SeenTagsOfLinks:
    """The tags of every link whose deliveries count once.

    Of detached links, at most `absent` of a user are remembered, and at most `links` of a virtual
    host, with `tags` tags together. If there are too many, the user who has most loses the oldest
    one: no user makes the broker forget the few tags of another user, and virtual hosts do not
    affect each other.
    """

    __slots__ = ("absent", "links", "tags", "_attached", "_tenants")

    def __init__(self) -> None:
        self.absent: i64 = ABSENT
        self.links: i64 = ABSENT_OF_SPACE
        self.tags: i64 = TAGS_OF_SPACE
        self._attached: dict[LinkKey, SeenTags] = {}
        self._tenants: dict[str, _Tenant] = {}

    def __len__(self) -> int:
        return len(self._attached) + sum(int(one.links) for one in self._tenants.values())

    def open(
        self,
        client: ConnectedClient,
        link: Link,
        unsettled: dict[object, object] | None,
        address: str,
        changes: Changes,
    ) -> SeenTags:
        """Return the tags of a link to `address` that is being attached.

        The tags of a link of another identity are forgotten.
        """
        key = client.tags_key(link, address)
        identity = LinkIdentity(key, address, 0, EXACTLY_ONCE)
        seen = self._take(key)
        if seen is None or not seen.identity.matches(identity):
            seen = SeenTags(self, identity)
        else:
            # A repeated delivery is accepted at once, so the first one must be on disk.
            changes.claim()
            seen.reattach(unsettled)
        self._attached[key] = seen
        return seen

    def forget(self, client: ConnectedClient, link: Link, address: str) -> None:
        """Forget the tags under the name of a link that is attached without this delivery mode."""
        if self._tenants:
            self._take(client.tags_key(link, address))

    def _take(self, key: LinkKey) -> SeenTags | None:
        tenant = self._tenants.get(key[0])
        return None if tenant is None else tenant.take(key[1], key)

    def leave(self, key: LinkKey, closed: bool) -> None:
        """Note that a link is detached, lost or `closed`: a closed link never returns."""
        seen = self._attached.pop(key, None)
        if seen is None or closed:
            return
        tenant = self._tenants.get(key[0])
        if tenant is None:
            tenant = _Tenant()
            self._tenants[key[0]] = tenant
        tenant.put(key[1], key, seen, self.absent)
        tenant.make_room(self.links, self.tags)
