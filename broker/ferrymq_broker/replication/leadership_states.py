"""The states of a member's part in the lease, as a literal table.

The table maps ``(state, input)`` to the next state. A pair that is not in the table changes
nothing: the cause of the input has come too late. `leadership` has the side effects.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class LeadershipState(Enum):
    """The state of a member's part in the lease."""

    STANDBY = "standby"
    LEADER = "leader"
    # The deadline has passed without a renewal, but nobody else is known to have the lease.
    SUSPENDED = "suspended"
    # The lease is another member's, or was given up. The end of this object.
    LOST = "lost"


class LeadershipInput(Enum):
    """The input that may change the state: something that happens to the lease or to the member."""

    # The lease was taken by this member, or its term was renewed.
    ACQUIRED = auto()
    RENEWED = auto()
    # The deadline has passed.
    EXPIRED = auto()
    # There is another term.
    REPLACED = auto()
    # There was no renewal for too long, or a batch can never be appended.
    GAVE_UP = auto()
    # The lease was given back, or the member ends.
    STEPPED_DOWN = auto()
    STOPPED = auto()


LEADERSHIP_TABLE: Final[dict[tuple[LeadershipState, LeadershipInput], LeadershipState]] = {
    (LeadershipState.STANDBY, LeadershipInput.ACQUIRED): LeadershipState.LEADER,
    (LeadershipState.STANDBY, LeadershipInput.STEPPED_DOWN): LeadershipState.LOST,
    (LeadershipState.STANDBY, LeadershipInput.STOPPED): LeadershipState.LOST,
    (LeadershipState.LEADER, LeadershipInput.RENEWED): LeadershipState.LEADER,
    (LeadershipState.LEADER, LeadershipInput.EXPIRED): LeadershipState.SUSPENDED,
    (LeadershipState.LEADER, LeadershipInput.REPLACED): LeadershipState.LOST,
    (LeadershipState.LEADER, LeadershipInput.GAVE_UP): LeadershipState.LOST,
    (LeadershipState.LEADER, LeadershipInput.STEPPED_DOWN): LeadershipState.LOST,
    (LeadershipState.LEADER, LeadershipInput.STOPPED): LeadershipState.LOST,
    (LeadershipState.SUSPENDED, LeadershipInput.RENEWED): LeadershipState.LEADER,
    (LeadershipState.SUSPENDED, LeadershipInput.REPLACED): LeadershipState.LOST,
    (LeadershipState.SUSPENDED, LeadershipInput.GAVE_UP): LeadershipState.LOST,
    (LeadershipState.SUSPENDED, LeadershipInput.STEPPED_DOWN): LeadershipState.LOST,
    (LeadershipState.SUSPENDED, LeadershipInput.STOPPED): LeadershipState.LOST,
}
