"""The lease: elections, deadlines, and what becomes of a leader."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from ferrymq_broker.replication.errors import LeaseLost
from ferrymq_broker.replication.leadership_states import (
    LEADERSHIP_TABLE,
    LeadershipInput,
    LeadershipState,
)
from tests.broker.replication.leadership_kit import (
    DELAY,
    LEASE,
    STEP_DOWN_AFTER,
    Cluster,
    Seat,
    new_cluster,
)

STANDBY, LEADER = LeadershipState.STANDBY, LeadershipState.LEADER
SUSPENDED, LOST = LeadershipState.SUSPENDED, LeadershipState.LOST


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with new_cluster() as one:
        yield one


# -- the full product of states and inputs --------------------------------------------------------


def bring(cluster: Cluster, state: LeadershipState) -> Seat:
    """A member in this state; a standby sees another leader."""
    if state is STANDBY:
        other = cluster.leader("other")
        other.journal.reachable = True
        seat = cluster.seat()
        seat.leadership.start()
        cluster.run(3 * DELAY)
        return seat
    seat = cluster.leader()
    if state is SUSPENDED:
        seat.journal.reachable = False
        cluster.run(LEASE)
    if state is LOST:
        cluster.database.fence()
        cluster.run(3 * DELAY)
    assert seat.leadership.state is state
    seat.told.events.clear()
    return seat


def give(cluster: Cluster, seat: Seat, given: LeadershipInput) -> None:
    """Let happen what causes an input, as far as the state allows."""
    database = cluster.database
    match given:
        case LeadershipInput.ACQUIRED:
            database.holder = seat.leadership.options.name
            if seat.leadership.state is STANDBY:
                database.holder = ""
            database.changed()
        case LeadershipInput.RENEWED:
            seat.journal.reachable = True
            cluster.run(LEASE / 3)
        case LeadershipInput.EXPIRED:
            seat.journal.reachable = False
            cluster.run(LEASE)
        case LeadershipInput.REPLACED:
            seat.journal.reachable = True
            database.fence()
            database.holder, database.ends = "third", cluster.loop.time() + LEASE
            cluster.run(LEASE / 3)
        case LeadershipInput.GAVE_UP:
            seat.journal.reachable = False
            cluster.run(STEP_DOWN_AFTER)
        case LeadershipInput.STEPPED_DOWN:
            seat.leadership.step_down(lambda: seat.told.events.append("stepped down"))
        case LeadershipInput.STOPPED:
            seat.leadership.stop()
    cluster.run(3 * DELAY)


A, R, E = LeadershipInput.ACQUIRED, LeadershipInput.RENEWED, LeadershipInput.EXPIRED
P, G = LeadershipInput.REPLACED, LeadershipInput.GAVE_UP
D, S = LeadershipInput.STEPPED_DOWN, LeadershipInput.STOPPED
# The state after the cause of an input, and what the member is told.
OUTCOMES: dict[tuple[LeadershipState, LeadershipInput], tuple[LeadershipState, list[str]]] = {
    (STANDBY, A): (LEADER, ["elected 2"]),
    (STANDBY, R): (STANDBY, []),
    (STANDBY, E): (STANDBY, []),
    (STANDBY, P): (STANDBY, []),
    (STANDBY, G): (STANDBY, []),
    (STANDBY, D): (LOST, ["stepped down"]),
    (STANDBY, S): (LOST, []),
    (LEADER, A): (LEADER, []),
    (LEADER, R): (LEADER, []),
    (LEADER, E): (SUSPENDED, ["suspended"]),
    (LEADER, P): (LOST, ["lost"]),
    (LEADER, G): (LOST, ["suspended", "lost"]),
    (LEADER, D): (LOST, ["stepped down"]),
    (LEADER, S): (LOST, []),
    (SUSPENDED, A): (SUSPENDED, []),
    (SUSPENDED, R): (LEADER, ["resumed"]),
    (SUSPENDED, E): (SUSPENDED, []),
    (SUSPENDED, P): (LOST, ["lost"]),
    (SUSPENDED, G): (LOST, ["lost"]),
    (SUSPENDED, D): (LOST, ["stepped down"]),
    (SUSPENDED, S): (LOST, []),
    (LOST, A): (LOST, []),
    (LOST, R): (LOST, []),
    (LOST, E): (LOST, []),
    (LOST, P): (LOST, []),
    (LOST, G): (LOST, []),
    (LOST, D): (LOST, ["stepped down"]),
    (LOST, S): (LOST, []),
}


@pytest.mark.parametrize(
    ("state", "given"),
    list(product(LeadershipState, LeadershipInput)),
    ids=lambda one: str(one.name),
)
def test_every_input_in_every_state(
    cluster: Cluster, state: LeadershipState, given: LeadershipInput
) -> None:
    seat = bring(cluster, state)
    give(cluster, seat, given)
    after, events = OUTCOMES[state, given]
    assert (seat.leadership.state, seat.told.events) == (after, events)
    assert seat.leadership.may_write() == (after is LEADER)
    assert LEADERSHIP_TABLE.get((state, given), state) is after


# -- elections -------------------------------------------------------------------------------------


def test_one_of_several_standbys_takes_a_free_lease(cluster: Cluster) -> None:
    seats = [cluster.seat(name, delay) for name, delay in (("a", 0.0), ("b", 0.0), ("c", 0.3))]
    for seat in seats:
        seat.leadership.start()
    cluster.run(1.0)
    assert [seat.leadership.state for seat in seats] == [LEADER, STANDBY, STANDBY]
    assert seats[1].told.leases[-1].holder == "a"
    assert not seats[1].leadership.may_write()


def test_a_lease_that_ends_is_taken_at_once(cluster: Cluster) -> None:
    leader = cluster.leader()
    standby = cluster.seat("two", delay=0.2)
    standby.leadership.start()
    cluster.run(1.0)
    leader.leadership.stop()
    remaining = cluster.database.lease().remaining
    cluster.run(remaining + 0.2 + 4 * DELAY)
    assert standby.told.events == ["elected 2"]


def test_a_lease_of_the_same_name_is_not_its_own(cluster: Cluster) -> None:
    """Two brokers got the same name by mistake: one of them is leader."""
    seats = [cluster.seat("same"), cluster.seat("same")]
    for seat in seats:
        seat.leadership.start()
    cluster.run(2 * LEASE)
    assert [seat.leadership.state for seat in seats] == [LEADER, STANDBY]


def test_a_member_whose_answer_was_lost_waits_for_the_end(cluster: Cluster) -> None:
    seat = cluster.seat()
    seat.leadership.start()
    cluster.database.acquire("one", "", LEASE)
    cluster.run(LEASE - 1)
    assert seat.told.events == []
    cluster.run(1.0 + 4 * DELAY)
    assert seat.told.events == ["elected 2"]


# -- the deadline ----------------------------------------------------------------------------------


def test_the_deadline_counts_from_the_sending(cluster: Cluster) -> None:
    """The answer took long: the lease has less left than it says."""
    cluster.database.delay = LEASE / 4
    seat = cluster.seat()
    seat.leadership.start()
    # The lease was read, then taken.
    cluster.run(LEASE / 2 + DELAY)
    assert seat.leadership.may_write()
    seat.journal.reachable = False
    cluster.run(3 * LEASE / 4 - 2 * DELAY)
    assert seat.leadership.may_write()
    cluster.run(DELAY)
    assert not seat.leadership.may_write()
    assert cluster.database.lease().remaining > 0


def test_an_answer_after_the_deadline_elects_a_suspended_leader(cluster: Cluster) -> None:
    cluster.database.delay = LEASE + 1
    seat = cluster.seat()
    seat.leadership.start()
    cluster.run(2 * LEASE + 2 + DELAY)
    assert seat.told.events == ["elected 1", "suspended"]
    cluster.database.delay = DELAY
    # The renewal that was sent at the election took as long.
    cluster.run(LEASE + 1 + 3 * DELAY)
    assert seat.told.events == ["elected 1", "suspended", "resumed"]


def test_a_machine_that_sleeps_writes_nothing_after_it_wakes(cluster: Cluster) -> None:
    seat = cluster.leader()
    seat.clock.slept += LEASE
    cluster.slept += LEASE
    # No timer was called yet.
    assert not seat.leadership.may_write()
    assert seat.leadership.state is LEADER
    cluster.run(LEASE / 3 + 2 * DELAY)
    assert seat.told.events == ["suspended", "resumed"]
    assert seat.leadership.may_write()


def test_a_process_that_was_stopped_for_long_renews_before_it_gives_up(cluster: Cluster) -> None:
    seat = cluster.leader()
    seat.clock.slept += 2 * STEP_DOWN_AFTER
    cluster.slept += 2 * STEP_DOWN_AFTER
    cluster.run(LEASE)
    assert seat.told.events == ["suspended", "resumed"]


def test_no_standby_takes_the_lease_before_the_deadline(cluster: Cluster) -> None:
    leader = cluster.leader()
    standby = cluster.seat("two")
    standby.leadership.start()
    cluster.run(LEASE)
    leader.journal.reachable = False
    while leader.leadership.may_write():
        assert standby.leadership.state is STANDBY
        cluster.run(DELAY)
    cluster.run(LEASE)
    assert standby.told.events == ["elected 2"]
    assert leader.told.events == ["suspended"]
    leader.journal.reachable = True
    cluster.run(LEASE / 3)
    assert leader.told.events == ["suspended", "lost"]
    assert [lease and lease.address for lease in leader.told.lost_to] == ["amqp://two"]


# -- appends ---------------------------------------------------------------------------------------


def test_an_append_is_committed(cluster: Cluster) -> None:
    seat = cluster.leader()
    seat.append(1, b"first")
    cluster.run(2 * DELAY)
    seat.append(2, b"second")
    cluster.run(2 * DELAY)
    assert seat.appended == [None, None]
    assert [one.data for one in cluster.database.read(0, 1 << 20)] == [b"first", b"second"]
    assert seat.told.events == []


@pytest.mark.parametrize("happened", [False, True])
def test_an_append_with_an_unknown_result_is_written_once(cluster: Cluster, happened: bool) -> None:
    seat = cluster.leader()
    seat.journal.reachable = False
    seat.append(1)
    if happened:
        cluster.database.append(1, 1, 1, b"data")
    cluster.run(2.0)
    assert seat.appended == []
    assert seat.told.events == ["waiting True"]
    seat.journal.reachable = True
    cluster.run(1.0 + 3 * DELAY)
    assert seat.appended == [None]
    assert seat.told.events == ["waiting True", "waiting False"]
    assert cluster.database.last() == (1, 1)


def test_a_short_interruption_is_not_told(cluster: Cluster) -> None:
    seat = cluster.leader()
    seat.journal.reachable = False
    seat.append(1)
    cluster.run(0.1)
    seat.journal.reachable = True
    cluster.run(0.5)
    assert (seat.appended, seat.told.events) == ([None], [])


def test_an_append_of_an_old_term_ends_the_leadership(cluster: Cluster) -> None:
    """The append comes to know of the new term before the renewal does."""
    seat = cluster.leader()
    cluster.database.watchers.clear()
    cluster.database.fence()
    seat.append(1)
    cluster.run(3 * DELAY)
    assert [type(error) for error in seat.appended] == [LeaseLost]
    assert seat.told.events == ["lost"]
    seat.append(2)
    cluster.run(DELAY)
    assert [type(error) for error in seat.appended] == [LeaseLost, LeaseLost]
    assert not cluster.database.batches


def test_an_append_that_waits_ends_with_the_lease(cluster: Cluster) -> None:
    seat = cluster.leader()
    seat.journal.reachable = False
    seat.append(1)
    cluster.run(STEP_DOWN_AFTER + 1)
    assert [type(error) for error in seat.appended] == [LeaseLost]
    assert seat.told.events == ["waiting True", "suspended", "lost"]


def test_a_batch_that_nobody_can_append_ends_the_leadership(cluster: Cluster) -> None:
    """The numbers have a gap: another member has to try with other records."""
    seat = cluster.leader()
    seat.append(7)
    cluster.run(3 * DELAY)
    assert [str(error) for error in seat.appended] == ["batch 7 follows batch 0"]
    assert seat.told.events == ["lost"]
    assert cluster.database.lease().holder == ""


def test_a_stop_confirms_nothing(cluster: Cluster) -> None:
    seat = cluster.leader()
    seat.append(1)
    seat.leadership.stop()
    cluster.run(STEP_DOWN_AFTER)
    assert (seat.appended, seat.told.events) == ([], [])
    assert cluster.database.lease().holder == "one"


# -- handing over ----------------------------------------------------------------------------------


def test_a_named_successor_takes_over_at_once(cluster: Cluster) -> None:
    leader = cluster.leader()
    others = [cluster.seat("a"), cluster.seat("two", delay=0.5)]
    for seat in others:
        seat.leadership.start()
    cluster.run(1.0)
    cluster.database.name_successor("two")
    cluster.run(3 * DELAY)
    assert leader.told.events == ["hand over to two"]
    leader.append(1)
    leader.leadership.step_down(lambda: leader.told.events.append("stepped down"))
    assert leader.leadership.may_write()
    cluster.run(6 * DELAY)
    assert leader.appended == [None]
    assert leader.told.events == ["hand over to two", "stepped down"]
    assert others[1].told.events == ["elected 2"]
    cluster.run(LEASE)
    assert others[0].told.events == []


def test_a_successor_is_asked_for_once(cluster: Cluster) -> None:
    leader = cluster.leader()
    cluster.database.name_successor("one")
    cluster.run(LEASE)
    assert leader.told.events == []
    cluster.database.name_successor("two")
    cluster.run(LEASE)
    assert leader.told.events == ["hand over to two"]


def test_stepping_down_ends_also_if_the_lease_is_lost_meanwhile(cluster: Cluster) -> None:
    leader = cluster.leader()
    leader.journal.reachable = False
    leader.append(1)
    leader.leadership.step_down(lambda: leader.told.events.append("stepped down"))
    cluster.database.fence()
    cluster.run(1.0)
    leader.journal.reachable = True
    cluster.run(2.0)
    assert leader.told.events == ["waiting True", "lost", "stepped down"]
