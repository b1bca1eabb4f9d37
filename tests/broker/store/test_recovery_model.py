"""Whatever happens, what is found is what some batch left; none that was acknowledged is lost."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.broker.store.kit import Contents, Interrupted, Owner, SimulatedMachine

TABLES = st.sampled_from((5, 6, 12))
IDS = st.integers(1, 2)
NUMBERS = st.integers(0, 12)
# From nothing to more than a segment.
SIZES = st.sampled_from((0, 1, 100, 5000, 30_000, 70_000))


class RecoveryModel(RuleBasedStateMachine):
    """A store that is written to, killed and opened again beside what it should have."""

    @initialize(seed=st.integers(0, 1 << 32))
    def begin(self, seed: int) -> None:
        self.machine = SimulatedMachine(seed)
        self.owner = self.machine.open()
        # What each batch has left; that of number 0 is nothing.
        self.states: dict[int, Contents] = {0: {}}
        self.now: Contents = {}
        self.values = 0

    # -- changes -----------------------------------------------------------------------------

    @rule(table=TABLES, id=IDS, number=NUMBERS, size=SIZES)
    def put(self, table: int, id: int, number: int, size: int) -> None:
        self.values += 1
        value = (b"%d " % self.values) + bytes(size)
        self.owner.changes.put(table, id, number, value)
        self.now[table, id, number] = value

    @rule(table=TABLES, id=IDS, number=NUMBERS)
    def drop(self, table: int, id: int, number: int) -> None:
        self.owner.changes.drop(table, id, number)
        self.now.pop((table, id, number), None)

    @rule(table=TABLES, id=IDS, first=NUMBERS, last=NUMBERS)
    def drop_range(self, table: int, id: int, first: int, last: int) -> None:
        self.owner.changes.drop_range(table, id, first, last)
        for key in list(self.now):
            if key[:2] == (table, id) and first <= key[2] <= last:
                del self.now[key]

    # -- time passes -------------------------------------------------------------------------

    @rule()
    def push(self) -> None:
        before = self.owner.changes.number
        self.owner.store.push()
        self._note(before)

    def _note(self, before: int) -> None:
        """A batch that was taken has everything up to now."""
        if self.owner.changes.number > before:
            self.states[before] = dict(self.now)

    def _let(self, make: object) -> None:
        before = self.owner.changes.number
        assert callable(make)
        make()
        self._note(before)

    @rule()
    def write_ends(self) -> None:
        self._let(lambda: self.owner.executor.make(self.owner.executor.writes))

    @rule()
    def commit_ends(self) -> None:
        self._let(lambda: self.owner.executor.make(self.owner.executor.commits))

    @rule()
    def loop_goes_on(self) -> None:
        self._let(self.owner.executor.step)

    @rule()
    def all_goes_on(self) -> None:
        while True:
            before = self.owner.changes.number
            executor = self.owner.executor
            if not (
                executor.step() or executor.make(executor.writes) or executor.make(executor.commits)
            ):
                return
            self._note(before)

    # -- ends and beginnings -----------------------------------------------------------------

    @rule(power=st.booleans())
    def is_killed(self, power: bool) -> None:
        acknowledged = self.owner.changes.stable
        self.machine.kill(self.owner, power)
        self._open(acknowledged)

    @rule(power=st.booleans(), steps=st.integers(0, 60))
    def is_killed_while_it_recovers(self, power: bool, steps: int) -> None:
        acknowledged = self.owner.changes.stable
        self.machine.kill(self.owner, power)
        self.machine.disk.steps_left = steps
        try:
            self.machine.open()
        except Interrupted:
            pass
        self.machine.disk.steps_left = None
        if power:
            self.machine.disk.lose_power()
        self.machine.disk.kill()
        self._open(acknowledged)

    @rule()
    def is_closed(self) -> None:
        before = self.owner.changes.number
        self.owner.store.close()
        self._note(before)
        last = self.owner.changes.number - 1
        self._open(last)
        assert self.owner.changes.stable == last
        # There was nothing to recover.
        assert not [name for name in self.machine.disk.names if name.startswith("journal-")]

    def _open(self, acknowledged: int) -> None:
        self.owner = owner = self.machine.open()
        found = owner.changes.stable
        assert owner.changes.number == found + 1
        assert found >= acknowledged
        assert owner.contents() == self.states[found]
        self.now = dict(self.states[found])
        self.states = {found: dict(self.now)}

    # -- always ------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "owner"))
    @invariant()
    def nothing_has_failed(self) -> None:
        assert not self.owner.failures
        assert self.owner.stable == sorted(set(self.owner.stable))

    @precondition(lambda self: hasattr(self, "owner"))
    @invariant()
    def reads_are_of_the_batch_that_was_applied(self) -> None:
        state = self.states.get(self.owner.store.applied)
        if state is not None:
            assert self.owner.contents() == state


RecoveryModel.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestRecovery = RecoveryModel.TestCase


def test_what_was_not_pushed_is_not_there() -> None:
    machine = SimulatedMachine()
    owner: Owner = machine.open()
    owner.write(1, b"one")
    owner.put(2, b"two")
    machine.kill(owner)
    assert machine.open().contents() == {(5, 1, 1): b"one"}
