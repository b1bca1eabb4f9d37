"""A terminus of the broker's that outlives its links (AMQP 1.0 §3.5.5–6).

The terminus is known by what its link is known by (`LinkKey`), and resumed by a link of the same
identity alone (`link_identity.py`). When its link is gone, the expiry policy says which event lets
its time run, and `timeout` how long that runs. The time is a duration; through a restart of the
broker the wall clock counts. A closing detach ends the terminus at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from ferrymq_broker.connections.durable_links.link_identity import LinkIdentity
from ferrymq_broker.connections.durable_links.records import encode_terminus
from ferrymq_broker.store.changes import LAST, Changes
from ferrymq_broker.store.map_values import encode_map
from ferrymq_broker.store.tables import DELIVERY, TERMINUS
from ferrymq_broker.timers import Timer

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq_broker.connections.durable_links.registry import TerminusOwner, TerminusRegistry
    from ferrymq_types.messaging import Source, Target


class Terminus(Timer):
    """A terminus of either direction. `store_id` is 0 if it ends with the process.

    `told` is what the client was told of it last: what it asks for when it does not say.
    `attached` is whether a link has it, `gone` whether it has come to its end. `since` is when its
    time began to run, in milliseconds since the epoch, 0 while it does not; `awaits` the number of
    the session or the connection whose end lets it run, or 0. `lost` is whether the last link was
    lost rather than detached.
    """

    __slots__ = (
        "key",
        "identity",
        "termini",
        "owner",
        "told",
        "store_id",
        "durable",
        "expiry_policy",
        "timeout",
        "attached",
        "gone",
        "since",
        "awaits",
        "lost",
        "link",
    )

    def __init__(
        self, identity: LinkIdentity, termini: TerminusRegistry, told: Source | Target
    ) -> None:
        super().__init__()
        self.key = identity.key
        self.identity = identity
        self.termini = termini
        # The termini of its user; None before the terminus is registered.
        self.owner: TerminusOwner | None = None
        self.told = told
        self.store_id: i64 = 0
        self.durable: i64 = identity.durable
        self.expiry_policy = "link-detach"
        # In seconds.
        self.timeout: i64 = 0
        self.attached = False
        self.gone = False
        self.since: i64 = 0
        self.awaits: i64 = 0
        self.lost = False
        # The last link that had the terminus; dispositions for that link may still come.
        self.link: Link | None = None

    # -- what each direction has of its own --------------------------------------------------

    def unsettled(self) -> int:
        """Return how many deliveries it remembers."""
        return 0

    def most_unsettled(self) -> i64:
        """Return how many unsettled deliveries it may have before it takes no more."""
        most = self.termini.unsettled
        owner = self.owner
        return owner.share if owner is not None and owner.share < most else most

    def is_void(self) -> bool:
        """Return whether there is nothing left of it but its name."""
        return False

    def details(self) -> dict[str, object]:
        """Further fields of its record."""
        return {}

    def is_orphan(self) -> bool:
        """Return whether the node of the terminus is gone, so that no link can resume it."""
        return False

    def release(self) -> None:
        """Release what the terminus holds. Called when it ends while it has no link."""

    # -- its life --------------------------------------------------------------------------------

    def changes(self) -> Changes:
        """Return where the terminus writes what is to be on disk."""
        return self.termini.agenda.changes

    def grant(self, expiry_policy: str, timeout: i64) -> None:
        """Keep it for so long from now on."""
        self.expiry_policy = expiry_policy
        self.timeout = timeout

    def attach(self, link: Link) -> None:
        """Give the terminus to a link; its time does not run."""
        # The answer tells what is unsettled and what is not, and so does what is resent.
        self.changes().claim()
        before = self.link
        if before is not None and before is not link:
            # A disposition for the earlier link comes too late.
            self.forget_link(before)
        self.link = link
        self.attached = True
        self.since = 0
        self.termini.rest(self)

    def keep(self) -> None:
        """Write the record of the terminus as it is now, if it has one."""
        id = self.store_id
        if id == 0:
            return
        space, user, container, name, sends = self.key
        fields: dict[str, object] = {
            "space": space,
            "user": user,
            "container": container,
            "link": name,
            "sends": sends,
            "address": self.identity.address,
            "mode": self.identity.mode,
            "durable": int(self.durable),
            "expiry-policy": self.expiry_policy,
            "timeout": int(self.timeout),
            "since": int(self.since),
            "told": encode_terminus(self.told),
        }
        fields.update(self.details())
        self.changes().put(TERMINUS, id, 0, encode_map(fields))

    def leave(self, session: i64, connection: i64, lost: bool) -> None:
        """Take the terminus from its link, which is gone.

        The numbers are those of the session and the connection that the link was in.
        """
        if self.gone:
            return
        self.attached = False
        self.lost = lost
        policy = self.expiry_policy
        if policy == "link-detach":
            self.run()
        elif policy == "session-end":
            self.termini.wait(self, session)
        elif policy == "connection-close":
            self.termini.wait(self, connection)

    def run(self) -> None:
        """Run the time of the terminus."""
        if self.timeout == 0:
            self.end()
            return
        termini = self.termini
        self.since = termini.agenda.wall
        self.keep()
        termini.timers.set(self, termini.agenda.now + self.timeout * 1000)

    def on_time(self, now: i64) -> None:
        """End the terminus: its time is over."""
        self.end()

    def forget_link(self, link: Link) -> None:
        """Forget a link: nothing can be said any more about its deliveries."""
        if self.link is link:
            self.link = None
        if link.context is self:
            link.context = None
        link.expire()

    def end(self) -> None:
        """End the terminus."""
        if self.gone:
            return
        self.gone = True
        self.termini.remove(self)
        self.release()
        id = self.store_id
        if id != 0:
            changes = self.changes()
            changes.drop(TERMINUS, id, 0)
            changes.drop_range(DELIVERY, id, 0, LAST)
        if self.link is not None:
            self.forget_link(self.link)

    def describe(self) -> dict[str, object]:
        """Return what management tells of the terminus."""
        _, user, container, name, sends = self.key
        agenda = self.termini.agenda
        return {
            "link-name": name,
            "container": container,
            "user": "" if user is None else user,
            "direction": "out" if sends else "in",
            "address": self.told.address or "",
            "durable": int(self.durable),
            "expiry-policy": self.expiry_policy,
            "timeout": int(self.timeout),
            "attached": self.attached,
            "expires": int(agenda.date_of(self.due)) if self.due != 0 else 0,
            "unsettled": self.unsettled(),
        }
