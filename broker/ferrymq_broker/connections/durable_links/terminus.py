"""A terminus of the broker that outlives its links (AMQP 1.0 §3.5.5–6).

The key of the terminus is that of its link (`LinkKey`), and only a link of the same identity
resumes it (`link_identity.py`). When its link is gone, the expiry policy says which event starts
the expiry time, and `timeout` how long that is. The time is a duration; across a restart of the
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

    `told` is the terminus in the last answer to the client; it is used if an attach has none.
    `attached` is whether a link has it, `gone` whether it has ended. `since` is when its expiry
    time began, in milliseconds since the epoch, 0 if it has not; `awaits` is the number of the
    session or connection whose end starts it, or 0. `lost` is whether the last link was lost
    instead of detached.
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
        self.key: tuple[str, str | None, str, str, bool] = identity.key
        self.identity: LinkIdentity = identity
        self.termini: TerminusRegistry = termini
        # The owner of the termini of its user; None before the terminus is registered.
        self.owner: TerminusOwner | None = None
        self.told: Source | Target = told
        self.store_id: i64 = 0
        self.durable: i64 = identity.durable
        self.expiry_policy: str = "link-detach"
        # In seconds.
        self.timeout: i64 = 0
        self.attached: bool = False
        self.gone: bool = False
        self.since: i64 = 0
        self.awaits: i64 = 0
        self.lost: bool = False
        # The last link of the terminus; dispositions for that link may still come.
        self.link: Link | None = None

    # -- what each direction implements --------------------------------------------------------

    def unsettled(self) -> int:
        """Return the number of remembered deliveries."""
        return 0

    def most_unsettled(self) -> i64:
        """Return the most unsettled deliveries that it may have."""
        most = self.termini.unsettled
        owner = self.owner
        return owner.share if owner is not None and owner.share < most else most

    def is_void(self) -> bool:
        """Return whether nothing of it is left except its name."""
        return False

    def details(self) -> dict[str, object]:
        """Return further fields of its record."""
        return {}

    def is_orphan(self) -> bool:
        """Return whether the node of the terminus is deleted, so that no link can resume it."""
        return False

    def release(self) -> None:
        """Release what the terminus holds. Called when it ends without a link."""

    # -- lifetime ------------------------------------------------------------------------------

    def changes(self) -> Changes:
        """Return the object that takes changes for the disk."""
        return self.termini.agenda.changes

    def grant(self, expiry_policy: str, timeout: i64) -> None:
        """Set the expiry policy and the timeout in seconds."""
        self.expiry_policy = expiry_policy
        self.timeout = timeout

    def attach(self, link: Link) -> None:
        """Give the terminus to a link and stop the expiry time."""
        # The answer shows which deliveries are unsettled, and so do resumed deliveries.
        self.changes().claim()
        before = self.link
        if before is not None and before is not link:
            # A disposition for the earlier link would be too late.
            self.forget_link(before)
        self.link = link
        self.attached = True
        self.since = 0
        self.termini.rest(self)

    def keep(self) -> None:
        """Store the present state of the terminus, if it is stored."""
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

        The numbers are those of the link's session and connection.
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
        """Start the expiry time of the terminus."""
        if self.timeout == 0:
            self.end()
            return
        termini = self.termini
        self.since = termini.agenda.wall
        self.keep()
        termini.timers.set(self, termini.agenda.now + self.timeout * 1000)

    def on_time(self, now: i64) -> None:
        """End the terminus, which has expired."""
        self.end()

    def forget_link(self, link: Link) -> None:
        """Forget a link: no dispositions for its deliveries can come any more."""
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
        """Return the fields of the terminus for management."""
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
