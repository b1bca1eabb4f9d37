"""The registry of a queue's consumers: which ones there are, which are served, and their views and
tiers."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.consumer import OWNER, Consumer
from ferrymq_broker.nodes.entry import AVAILABLE, Entry
from ferrymq_broker.nodes.queues.browsers import Browser
from ferrymq_broker.nodes.queues.filter_views import UNFILTERED, FilterView, ViewTier

if TYPE_CHECKING:
    from ferrymq_broker.nodes.link_terms import SourceTerms
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.nodes.queues.groups import Group
    from ferrymq_broker.values.policy import QueuePolicy

# Above this number of excluded consumers of an entry, those that are gone are removed.
_SLACK: Final = 64


@final
class ConsumerRegistry:
    """The consumers and browsers of the queue `node`, and their views.

    `takers` counts consumers without browsers, `exclusive_consumers` counts those of them that
    accept no other consumer. `plain` is the view without a filter, which always exists; `views` has
    all views by the keys of their filters. `tiers` are in the order of their turns; `sole` is the
    tier if there is only one. `active` is the consumer that is served if the policy is single
    active consumer.
    """

    __slots__ = (
        "entries",
        "policy",
        "consumers",
        "takers",
        "exclusive_consumers",
        "plain",
        "views",
        "tiers",
        "sole",
        "browsers",
        "active",
        "standby",
        "tiers_made",
        "_node",
    )

    def __init__(self, node: Node, entries: QueueEntries, policy: QueuePolicy) -> None:
        self._node = node
        self.entries: QueueEntries = entries
        self.policy: QueuePolicy = policy
        self.consumers: dict[Consumer, None] = {}
        self.takers: i64 = 0
        self.exclusive_consumers: i64 = 0
        self.plain: FilterView = FilterView(entries, None)
        self.views: dict[str, FilterView] = {UNFILTERED: self.plain}
        self.tiers: list[ViewTier] = []
        self.sole: ViewTier | None = None
        self.browsers: dict[Consumer, Browser] = {}
        self.active: Consumer | None = None
        # A heap of the consumers that wait to be active; some of them may have left.
        self.standby: list[tuple[int, int, Consumer]] = []
        self.tiers_made: i64 = 0

    def change_policy(self, policy: QueuePolicy) -> None:
        """Serve one consumer at a time, or all, as the new policy says."""
        single = self.policy.single_active
        self.policy = policy
        if policy.single_active != single:
            self.reassign()

    def grant(self, terms: SourceTerms) -> None:
        """Fill in what a link with these terms is granted. Raises `BrokerError` if no further
        consumer is allowed."""
        terms.filters.decline_position()
        if terms.distribution_mode == "copy":
            terms.granted_mode = "copy"
            terms.browses = True
            return
        self.check_consumer_limit(terms)
        if self.policy.sessions:
            _expect_session(self._node, terms)
        terms.granted_mode = "move"
        terms.granted_priority = terms.priority
        terms.granted_exclusive = terms.exclusive

    def check_consumer_limit(self, terms: SourceTerms) -> None:
        """Raise `BrokerError` if no further consumer is allowed, or no exclusive one."""
        exclusive = terms.exclusive or self.policy.exclusive
        others = self.takers
        if others > 0 and (exclusive or self.exclusive_consumers > 0):
            raise BrokerError(
                "amqp:resource-locked",
                f"{self._node.address!r} has a consumer, and one of the two is exclusive",
            )
        most = self.policy.max_consumers
        if most and others >= most:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"{self._node.address!r} has {most} consumers already, which is its max_consumers",
            )

    def add(self, consumer: Consumer) -> None:
        """Count a new consumer and give it a place, or let it stand by if there is a single active
        consumer."""
        self.consumers[consumer] = None
        if consumer.copies:
            self.browsers[consumer] = Browser(self.entries, consumer)
            return
        self.takers += 1
        if consumer.exclusive:
            self.exclusive_consumers += 1
        sessions = self.entries.sessions
        if sessions is not None:
            # The consumer gets the messages of its session, and takes no turns with others.
            sessions.adopt(consumer)
            return
        if not self.policy.single_active:
            self._assign_tier(consumer)
            return
        self._stand_by(consumer)
        if self.active is None:
            self._activate_next()

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer that leaves the queue, with its place."""
        if consumer in self.consumers:
            del self.consumers[consumer]
            if not consumer.copies:
                self.takers -= 1
                if consumer.exclusive:
                    self.exclusive_consumers -= 1
        browser = self.browsers.pop(consumer, None)
        if browser is not None:
            browser.close()
        self._leave_tier(consumer)
        self._let_groups_go(consumer)
        consumer.ready = False
        sessions = self.entries.sessions
        if sessions is not None:
            sessions.release(consumer)
        if self.active is consumer:
            self.active = None
            self._activate_next()

    def reassign(self) -> None:
        """Give every consumer its place by the present policy."""
        for consumer in self.consumers:
            self._leave_tier(consumer)
        self.active = None
        self.standby = []
        if self.policy.single_active:
            for consumer in self.consumers:
                if not consumer.copies:
                    self._stand_by(consumer)
            active = self._activate_next()
            for consumer in self.consumers:
                if consumer is not active:
                    self._let_groups_go(consumer)
            return
        for consumer in self.consumers:
            if not consumer.copies:
                self._assign_tier(consumer)

    def _activate_next(self) -> Consumer | None:
        """Make the waiting consumer with the highest priority active; of several, the first that
        came.

        Returns that consumer.
        """
        if self._node.deleted:
            return None
        standby = self.standby
        while standby:
            _, _, best = heappop(standby)
            if best in self.consumers:
                self.active = best
                self._assign_tier(best)
                self._node.touch()
                return best
        return None

    def _stand_by(self, consumer: Consumer) -> None:
        """Queue the consumer until it becomes active."""
        heappush(self.standby, (int(-consumer.priority), int(consumer.id), consumer))
        if len(self.standby) > 2 * self.takers + _SLACK:
            self.standby = [one for one in self.standby if one[2] in self.consumers]
            heapify(self.standby)

    def _assign_tier(self, consumer: Consumer) -> None:
        """Give the consumer a place in a view and a tier."""
        view = self._view_of(consumer)
        tier = _tier_of(view, consumer.priority)
        if tier is None:
            self.tiers_made += 1
            tier = ViewTier(view, consumer.priority, self.tiers_made)
            self.tiers.insert(_place_of(self.tiers, tier), tier)
            view.tiers.insert(_place_of(view.tiers, tier), tier)
            self._find_sole()
        tier.members[consumer] = None
        consumer.tier = tier
        own = [record for record in view.aside if record[1].state == AVAILABLE]
        # A sorted list is a heap.
        own.sort(key=_rank_of)
        consumer.own = own or None
        if consumer.ready:
            tier.admit(consumer)

    def _view_of(self, consumer: Consumer) -> FilterView:
        filter = consumer.filter
        if filter is None:
            return self.plain
        view = self.views.get(filter.key)
        if view is None:
            view = FilterView(self.entries, filter)
            self.views[filter.key] = view
        return view

    def _leave_tier(self, consumer: Consumer) -> None:
        """Remove the consumer from its tier; entries that waited for it alone are offered to
        others."""
        tier = consumer.tier
        if tier is None:
            return
        assert isinstance(tier, ViewTier)
        if consumer.ready:
            tier.dismiss(consumer)
        consumer.tier = None
        consumer.own = None
        del tier.members[consumer]
        view = tier.view
        if not tier.members:
            del self.tiers[_place_of(self.tiers, tier)]
            del view.tiers[_place_of(view.tiers, tier)]
            self._find_sole()
        if not view.tiers:
            self._abandon(view)

    def _abandon(self, view: FilterView) -> None:
        """Drop a view without consumers; the view without a filter stays."""
        if view.filter is None:
            view.return_aside()
            return
        del self.views[view.filter.key]
        self.plain.evaluations += view.evaluations
        view.close()

    def _find_sole(self) -> None:
        self.sole = self.tiers[0] if len(self.tiers) == 1 else None

    def _let_groups_go(self, consumer: Consumer) -> None:
        """Release the groups of this consumer; other consumers get them when the messages that it
        still holds are settled."""
        groups = self.entries.groups
        if groups is None:
            return
        owned = groups.owned_by(consumer)
        if owned:
            for entry in consumer.held_entries():
                group = entry.group
                if group is not None and group.consumer is consumer:
                    group.leave_behind(entry)
        for group in owned:
            groups.release(group)
            self.offer_waiting(group)

    def exclude(self, number: i64, entry: Entry) -> None:
        """Do not offer the message of an entry to the consumer with this number any more.

        If the number is valid after a restart, this is stored.
        """
        entry.exclude(number)
        excluded = entry.excluded
        if excluded is not None and len(excluded) > 2 * len(self.consumers) + _SLACK:
            # Most of these consumers are gone, and their numbers are not used again.
            alive = {int(one.id) for one in self.consumers}
            entry.excluded = excluded & (alive | self._node.agenda.remembered)
        if number <= OWNER:
            self.entries.records.put_state(entry)

    # -- entries -----------------------------------------------------------------------------

    def offer_again(self, entry: Entry) -> None:
        """Offer an available entry that cursors may have passed already."""
        session = entry.session
        sessions = self.entries.sessions
        if session is not None and sessions is not None:
            sessions.give_back(session, entry)
            return
        for view in self.views.values():
            view.offer_again(entry)

    def offer_waiting(self, group: Group) -> None:
        """Offer the messages of a group that were passed over: it has another consumer, or none."""
        for entry in group.take_waiting():
            self.offer_again(entry)
        self._node.touch()

    def settle_group(self, entry: Entry) -> None:
        """Continue with the group of a message if the group has waited for this message."""
        group = entry.group
        if group is not None and group.settle(entry):
            self.offer_waiting(group)

    def leave_group(self, entry: Entry) -> None:
        """Remove an entry that has left the queue from its group or session."""
        session = entry.session
        sessions = self.entries.sessions
        if session is not None and sessions is not None:
            sessions.leave(session, entry)
        group = entry.group
        groups = self.entries.groups
        if group is not None and groups is not None:
            waiting = group.waiting and group.consumer is None
            settled = group.settle(entry)
            groups.leave(group)
            if waiting or settled:
                self.offer_waiting(group)

    def count_available(self, consumer: Consumer) -> i64:
        """Return the number of available messages if the consumer or browser may still be offered
        some, else 0."""
        browser = self.browsers.get(consumer)
        tier = consumer.tier
        if browser is not None:
            more = browser.has_more()
        elif self.entries.sessions is not None:
            return self.entries.sessions.count_available(consumer)
        else:
            more = consumer.own is not None or (isinstance(tier, ViewTier) and tier.view.has_more())
        return self.entries.available if more else 0

    def evaluations(self) -> i64:
        """Return how often filters have been asked about messages."""
        return sum(view.evaluations for view in self.views.values())


def _expect_session(node: Node, terms: SourceTerms) -> None:
    """Raise `BrokerError` if the link asks for no session. A session is received whole: other
    filters are refused."""
    filters = terms.filters
    if not filters.session_name:
        raise BrokerError(
            "amqp:not-allowed",
            f"{node.address[:200]!r} has sessions: a consumer needs the filter ferrymq:session",
        )
    if filters.predicate is not None:
        filters.decline_predicate()


def _place_of(tiers: list[ViewTier], tier: ViewTier) -> int:
    """Return the index of the tier among tiers in the order of their turns: by priority, the
    highest first, then by age."""
    low = 0
    high = len(tiers)
    while low < high:
        middle = (low + high) // 2
        other = tiers[middle]
        if other.priority > tier.priority or (
            other.priority == tier.priority and other.number < tier.number
        ):
            low = middle + 1
        else:
            high = middle
    return low


def _tier_of(view: FilterView, priority: i64) -> ViewTier | None:
    """Return the tier of a priority in a view; there is at most one."""
    low = 0
    high = len(view.tiers)
    while low < high:
        middle = (low + high) // 2
        tier = view.tiers[middle]
        if tier.priority == priority:
            return tier
        if tier.priority > priority:
            low = middle + 1
        else:
            high = middle
    return None


def _rank_of(record: tuple[int, Entry]) -> int:
    return record[0]
