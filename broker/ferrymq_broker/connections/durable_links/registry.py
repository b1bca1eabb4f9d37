"""The registry of termini that outlive their links, by the keys of the links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.connections.connected_client import LinkKey
from ferrymq_broker.errors import BrokerError

if TYPE_CHECKING:
    from ferrymq_broker.connections.durable_links.terminus import Terminus
    from ferrymq_broker.nodes.node import Agenda
    from ferrymq_broker.number_sequence import NumberSequence
    from ferrymq_broker.timers import TimerHeap

# The most deliveries of a terminus that its client may leave without an outcome, or unsettled.
UNSETTLED: Final = 100_000
# The most such deliveries of all termini of a user, which share them. Each terminus has a minimum
# share, which is more than a link needs whose sender settles first (`target.py`).
UNSETTLED_OF_USER: Final = 1_000_000
LEAST: Final = 4096


@final
class TerminusOwner:
    """A user of a virtual host: how many termini the user has, and how many unsettled deliveries
    each may have."""

    __slots__ = ("count", "share")

    def __init__(self) -> None:
        self.count: i64 = 0
        self.share: i64 = UNSETTLED_OF_USER

    def change(self, by: i64) -> None:
        """Add `by` to the number of termini, and share the allowed deliveries among them."""
        self.count += by
        if self.count > 0:
            share = UNSETTLED_OF_USER // self.count
            self.share = share if share > LEAST else LEAST


@final
class TerminusRegistry:
    """The termini of one broker that outlive their links.

    A virtual host has at most as many termini as nodes; a user in it has at most `per_user`, 0 for
    any number. A terminus with `unsettled` deliveries, or with its share of its user's deliveries,
    takes no more.
    """

    __slots__ = (
        "agenda",
        "timers",
        "numbers",
        "unsettled",
        "per_user",
        "_by_key",
        "_counts",
        "_owners",
        "_awaiting",
    )

    def __init__(self, agenda: Agenda, timers: TimerHeap, numbers: NumberSequence) -> None:
        self.agenda: Agenda = agenda
        self.timers: TimerHeap = timers
        self.numbers: NumberSequence = numbers
        self.unsettled: i64 = UNSETTLED
        self.per_user: i64 = 0
        self._by_key: dict[LinkKey, Terminus] = {}
        # By virtual host.
        self._counts: dict[str, int] = {}
        # By virtual host and user.
        self._owners: dict[tuple[str, str | None], TerminusOwner] = {}
        # The key is the number of the session or connection at whose end the expiry time begins.
        self._awaiting: dict[int, dict[Terminus, None]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, key: LinkKey) -> Terminus | None:
        """Return the terminus of a link, None without one."""
        return self._by_key.get(key)

    def of(self, space: str) -> list[Terminus]:
        """Return the termini of a virtual host, in the order of creation."""
        return [terminus for key, terminus in self._by_key.items() if key[0] == space]

    def expect_room(self, space: str, user: str | None, most: i64) -> None:
        """Raise `BrokerError` if the virtual host, or this user in it, may have no more termini."""
        owner = self._owners.get((space, user))
        if owner is not None and 0 < self.per_user <= owner.count:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"the user has {self.per_user} termini already that outlive their links, which "
                "is the limit",
            )
        if self._counts.get(space, 0) >= most:
            for terminus in self.of(space):
                if terminus.is_void():
                    terminus.end()
        if self._counts.get(space, 0) >= most:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"there are {most} termini already that outlive their links, which is the "
                "limit of the virtual host (max_nodes)",
            )

    def add(self, terminus: Terminus) -> None:
        """Add a terminus that is new or was restored."""
        space = terminus.key[0]
        self._by_key[terminus.key] = terminus
        self._counts[space] = self._counts.get(space, 0) + 1
        owner = self._owners.get(terminus.key[:2])
        if owner is None:
            owner = TerminusOwner()
            self._owners[terminus.key[:2]] = owner
        owner.change(1)
        terminus.owner = owner

    def remove(self, terminus: Terminus) -> None:
        """Remove a terminus that has ended."""
        self.rest(terminus)
        if self._by_key.get(terminus.key) is terminus:
            del self._by_key[terminus.key]
            self._counts[terminus.key[0]] -= 1
            owner = self._owners[terminus.key[:2]]
            owner.change(-1)
            if owner.count == 0:
                del self._owners[terminus.key[:2]]

    def end_orphans(self) -> None:
        """End termini whose queues are deleted."""
        for terminus in list(self._by_key.values()):
            if terminus.is_orphan():
                terminus.end()

    # -- time ------------------------------------------------------------------------------------

    def wait(self, terminus: Terminus, number: i64) -> None:
        """Start the expiry time of a terminus when the session or connection of this number has
        ended."""
        terminus.awaits = number
        waiting = self._awaiting.get(number)
        if waiting is None:
            self._awaiting[number] = {terminus: None}
        else:
            waiting[terminus] = None

    def rest(self, terminus: Terminus) -> None:
        """Stop the expiry time of a terminus."""
        self.timers.cancel(terminus)
        number = terminus.awaits
        if number != 0:
            terminus.awaits = 0
            waiting = self._awaiting[number]
            del waiting[terminus]
            if not waiting:
                del self._awaiting[number]

    def party_gone(self, number: i64) -> None:
        """Start the expiry time of the termini that wait for the end of this session or connection.
        It has ended, after all its links."""
        for terminus in self._awaiting.pop(number, {}):
            terminus.awaits = 0
            terminus.run()
