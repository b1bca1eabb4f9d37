"""The judge is judged: each kind of broken promise is found in a ledger that shows it, and a
broker that keeps its promises is not accused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.checks import check
from tests.crash.ledger import Entry, Ledger

LAYOUT = {
    "dead": {"work": "work.dead", "plain": "plain.dead"},
    "streams": ["log"],
    "limits": {"work": 1},
}
Line = tuple[str, dict[str, Any]]


def line(what: str, /, **about: Any) -> Line:
    return what, about


def sent(id: str, *to: str, **more: Any) -> Line:
    return line("sent", id=id, to=list(to or ("q",)), **more)


def answered(id: str, outcome: str = "accepted") -> Line:
    return line("answered", id=id, outcome=outcome)


def got(id: str, node: str = "q", **more: Any) -> Line:
    return line("got", id=id, node=node, **more)


def gives(id: str, outcome: str = "accepted", node: str = "q", **more: Any) -> Line:
    return line("gives", id=id, node=node, outcome=outcome, **more)


def confirmed(id: str, node: str = "q") -> Line:
    return line("confirmed", id=id, node=node)


def read(id: str, offset: int, **more: Any) -> Line:
    about: dict[str, Any] = {"time": 1000 + offset, "partition": 0, "drained": True, **more}
    return line("read", id=id, node="log", offset=offset, **about)


def taken(id: str, node: str = "q", outcome: str = "accepted", **more: Any) -> list[Line]:
    """Received, given an outcome, confirmed."""
    return [got(id, node, **more), gives(id, outcome, node), confirmed(id, node)]


def drained(*ids: str, node: str = "q") -> list[Line]:
    return [line for id in ids for line in taken(id, node, drained=True)]


def txn(kind: str, name: str = "t1") -> Line:
    return line(kind, txn=name)


def exchange(**more: Any) -> list[Line]:
    """In a transaction one message is accepted, another sent to `a`."""
    return [
        sent("p.1", **more),
        got("p.1"),
        sent("t.1", "a", txn="t1"),
        gives("p.1", txn="t1"),
    ]


def failing(id: str) -> list[Line]:
    """One delivery in vain more than is allowed."""
    return [sent(id, "work"), *taken(id, "work", "failed"), *taken(id, "work", "failed")]


def cut_off(id: str) -> list[Line]:
    """Rejected, and nobody knows whether that was heard."""
    return [sent(id, "work"), got(id, "work"), gives(id, "rejected", "work"), DIES]


def leased(until: int, *more: Line) -> list[Line]:
    """Sent, and read twice by a lease."""
    there = [got("p.1", lease="h/1")] * 2
    return [sent("p.1"), line("leased", lease="h/1", node="q", until=until), *there, *more]


DIES = line("dies", how="killed")
DRAINS = line("drains")


def rules(*lines: Line | list[Line]) -> list[str]:
    """What is wrong with a ledger of these lines, a millisecond each."""
    entries = [Entry("opens", 0, LAYOUT)]
    for item in lines:
        for what, about in [item] if isinstance(item, tuple) else item:
            entries.append(Entry(what, len(entries), about))
    return [violation.rule for violation in check(entries)]


GOOD: dict[str, list[Line | list[Line]]] = {
    "acknowledged and there": [sent("p.1"), answered("p.1"), DIES, drained("p.1")],
    "acknowledged and taken": [sent("p.1"), answered("p.1"), taken("p.1"), DIES, DRAINS],
    "not acknowledged, gone": [sent("p.1"), DIES, DRAINS],
    "not acknowledged, there": [sent("p.1"), DIES, drained("p.1")],
    "refused": [sent("p.1"), answered("p.1", "rejected"), DRAINS],
    "accepted in vain": [sent("p.1"), got("p.1"), gives("p.1"), DIES, drained("p.1")],
    "accepted in time": [sent("p.1"), got("p.1"), gives("p.1"), DIES, DRAINS],
    "returned": [sent("p.1"), taken("p.1", outcome="released"), drained("p.1")],
    "volatile": [sent("p.1", volatile=True), answered("p.1"), DIES, DRAINS],
    "rejected to the dead": [
        sent("p.1", "work"),
        taken("p.1", "work", "rejected"),
        drained("p.1", node="work.dead"),
    ],
    "rejected in vain": [
        cut_off("p.1"),
        drained("p.1", node="work"),
    ],
    "failed too often": [
        failing("p.1"),
        drained("p.1", node="work.dead"),
    ],
    "rejected where there are no dead letters": [sent("p.1"), taken("p.1", outcome="rejected")],
    "committed": [
        exchange(),
        txn("commits"),
        txn("committed"),
        DIES,
        drained("t.1", node="a"),
    ],
    "commit unanswered, done": [
        exchange(),
        txn("commits"),
        DIES,
        drained("t.1", node="a"),
    ],
    "commit unanswered, not done": [
        exchange(),
        txn("commits"),
        DIES,
        drained("p.1"),
    ],
    "never committed": [
        exchange(),
        DIES,
        drained("p.1"),
    ],
    "a commit unanswered, not done, of what is not durable": [
        exchange(volatile=True),
        txn("commits"),
        DIES,
        DRAINS,
    ],
    "a stream": [sent("p.1", "log"), answered("p.1"), read("p.1", 0), read("p.1", 0)],
    "a topic, neither": [sent("p.1", "t::a", "t::b"), DIES, DRAINS],
    "in order": [sent("p.1"), sent("p.2"), drained("p.1", "p.2")],
    "once": [sent("p.1", once=True), answered("p.1"), taken("p.1", once=True)],
    "once, released": [
        sent("p.1"),
        taken("p.1", outcome="released", once=True),
        taken("p.1", once=True),
    ],
    "sent again": [sent("p.1"), DIES, sent("p.1"), answered("p.1"), drained("p.1")],
    "leased and settled": [leased(1000, gives("p.1", lease="h/1"), confirmed("p.1")), DIES],
    "leased and released": [leased(1000, line("ends", lease="h/1")), DIES, drained("p.1")],
    "leased and lapsed": [leased(3), DIES, drained("p.1")],
    "settled in vain": [leased(1000, gives("p.1", lease="h/1")), DIES, drained("p.1")],
    "declared": [
        line("declares", type="queue", name="x", settings={"max-length": 5}),
        line("declared", type="queue", name="x", settings={"max-length": 5}),
        line("found", type="queue", name="x", settings={"max-length": 5, "name": "x"}),
    ],
    "declared without an answer": [
        line("declares", type="queue", name="x", settings={}),
        line("missing", type="queue", name="x"),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_may_happen_is_not_held_against_the_broker(name: str) -> None:
    assert rules(*GOOD[name]) == []


BAD: dict[str, tuple[str, list[Line | list[Line]]]] = {
    "acknowledged, gone": ("lost", [sent("p.1"), answered("p.1"), DIES, DRAINS]),
    "received, returned, gone": ("lost", [sent("p.1"), got("p.1"), DIES, DRAINS]),
    "released, gone": ("lost", [sent("p.1"), taken("p.1", outcome="released"), DIES, DRAINS]),
    "scheduled, gone": ("lost", [sent("p.1", due=9000), answered("p.1"), DIES, DRAINS]),
    "accepted in a rolled back transaction, gone": (
        "lost",
        [
            sent("p.1"),
            got("p.1"),
            gives("p.1", txn="t1"),
            txn("commits"),
            txn("rolled-back"),
            DIES,
            DRAINS,
        ],
    ),
    "accepted in a transaction that was left, gone": (
        "lost",
        [sent("p.1"), got("p.1"), gives("p.1", txn="t1"), DIES, DRAINS],
    ),
    "rejected, not among the dead": (
        "lost",
        [sent("p.1", "work"), taken("p.1", "work", "rejected"), DRAINS],
    ),
    "accepted, there again": (
        "redelivered",
        [sent("p.1"), taken("p.1"), DIES, drained("p.1")],
    ),
    "drained, there again": (
        "redelivered and lost",
        [sent("p.1"), drained("p.1"), DIES, got("p.1")],
    ),
    "twice in a queue": ("redelivered", [sent("p.1"), drained("p.1"), drained("p.1")]),
    "rejected, there again": (
        "redelivered",
        [
            sent("p.1", "work"),
            taken("p.1", "work", "rejected"),
            drained("p.1", node="work"),
            drained("p.1", node="work.dead"),
        ],
    ),
    "accepted, then dead": (
        "redelivered",
        [
            sent("p.1", "work"),
            taken("p.1", "work", "failed"),
            taken("p.1", "work"),
            drained("p.1", node="work.dead"),
        ],
    ),
    "in both queues": (
        "in two places",
        [
            cut_off("p.1"),
            drained("p.1", node="work.dead"),
            drained("p.1", node="work"),
        ],
    ),
    "failed too often, there again": (
        "over the limit",
        [
            failing("p.1"),
            drained("p.1", node="work"),
        ],
    ),
    "never sent": ("foreign", [got("p.1")]),
    "in another queue": (
        "foreign",
        [sent("p.1", "q"), answered("p.1"), drained("p.1"), got("p.1", "r")],
    ),
    "refused, there": ("ghost", [sent("p.1"), answered("p.1", "rejected"), drained("p.1")]),
    "rolled back, there": (
        "ghost",
        [
            sent("t.1", "a", txn="t1"),
            txn("commits"),
            txn("rolled-back"),
            drained("t.1", node="a"),
        ],
    ),
    "never committed, there": ("ghost", [sent("t.1", "a", txn="t1"), drained("t.1", node="a")]),
    "there before the commit": (
        "early",
        [
            sent("t.1", "a", txn="t1"),
            taken("t.1", "a"),
            txn("commits"),
            txn("committed"),
        ],
    ),
    "committed, half of it": (
        "half and lost",
        [
            sent("t.1", "a", txn="t1"),
            sent("t.2", "b", txn="t1"),
            txn("commits"),
            txn("committed"),
            DIES,
            drained("t.2", node="b"),
        ],
    ),
    "in doubt, half of what was posted": (
        "half",
        [
            sent("t.1", "a", txn="t1"),
            sent("t.2", "b", txn="t1"),
            txn("commits"),
            DIES,
            drained("t.2", node="b"),
        ],
    ),
    "in doubt, posted and not retired": (
        "half",
        [
            exchange(),
            txn("commits"),
            DIES,
            drained("p.1"),
            drained("t.1", node="a"),
        ],
    ),
    "in doubt, retired and not posted": (
        "half",
        [
            exchange(),
            txn("commits"),
            DIES,
            DRAINS,
        ],
    ),
    "in doubt, the record of the stream alone": (
        "half",
        [
            sent("t.1", "log", txn="t1"),
            sent("t.2", "b", txn="t1"),
            txn("commits"),
            DIES,
            read("t.1", 0),
        ],
    ),
    "one subscription of two": (
        "half",
        [sent("p.1", "t::a", "t::b"), DIES, drained("p.1", node="t::a")],
    ),
    "too early": ("before its time", [sent("p.1", due=5000), drained("p.1")]),
    "out of order": ("order", [sent("p.1"), sent("p.2"), drained("p.2", "p.1")]),
    "twice on a link that resumes": (
        "duplicate",
        [sent("p.1"), got("p.1", once=True), DIES, taken("p.1", once=True)],
    ),
    "no outcome on a link that resumes": (
        "unanswered",
        [sent("p.1", once=True), DIES, drained("p.1")],
    ),
    "an offset with another record": (
        "offset reused and lost",
        [
            sent("p.1", "log"),
            sent("p.2", "log"),
            read("p.1", 0, drained=False),
            DIES,
            read("p.2", 0),
        ],
    ),
    "a record with another time": (
        "record changed",
        [sent("p.1", "log"), read("p.1", 0), read("p.1", 0, time=7)],
    ),
    "a record twice": ("duplicate", [sent("p.1", "log"), read("p.1", 0), read("p.1", 1)]),
    "a gap": ("gap", [sent("p.1", "log"), sent("p.2", "log"), read("p.1", 0), read("p.2", 2)]),
    "a record that was read, gone": ("lost", [sent("p.1", "log"), read("p.1", 0, drained=False)]),
    "a record that was acknowledged, gone": ("lost", [sent("p.1", "log"), answered("p.1")]),
    "records out of order": (
        "order",
        [sent("p.1", "log"), sent("p.2", "log"), read("p.2", 0), read("p.1", 1)],
    ),
    "time that goes back": (
        "time",
        [sent("p.1", "log"), sent("p.2", "log"), read("p.1", 0), read("p.2", 1, time=5)],
    ),
    "of another queue among the dead": (
        "foreign",
        [sent("p.1", "q"), answered("p.1"), drained("p.1"), got("p.1", "work.dead")],
    ),
    "dead for no reason": (
        "dead for no reason",
        [sent("p.1", "plain"), answered("p.1"), drained("p.1", node="plain.dead")],
    ),
    "declared, missing": (
        "lost",
        [
            line("declares", type="queue", name="x", settings={}),
            line("declared", type="queue", name="x", settings={}),
            line("missing", type="queue", name="x"),
        ],
    ),
    "declared, another": (
        "entity",
        [
            line("declares", type="queue", name="x", settings={"max-length": 5}),
            line("declared", type="queue", name="x", settings={"max-length": 5}),
            line("found", type="queue", name="x", settings={"max-length": 0}),
        ],
    ),
    "deleted, there": (
        "entity",
        [
            line("declared", type="queue", name="x", settings={}),
            line("deletes", type="queue", name="x"),
            line("deleted", type="queue", name="x"),
            line("found", type="queue", name="x", settings={}),
        ],
    ),
    "leased, and received by others": ("taken from a lease", [leased(1000), drained("p.1")]),
    "leased again before its time": (
        "taken from a lease",
        [
            leased(1000, line("leased", lease="h/2", node="q", until=3), got("p.1", lease="h/2")),
            drained("p.1"),
        ],
    ),
    "leased, settled, there": (
        "redelivered",
        [leased(1000, gives("p.1", lease="h/1"), confirmed("p.1")), DIES, drained("p.1")],
    ),
    "leased, gone before its time": (
        "lapsed early",
        [leased(1000, line("ends", lease="h/1", node="q", lapsed=True)), drained("p.1")],
    ),
    "leased, there after its time": (
        "lapsed late",
        [leased(3, line("overdue", lease="h/1", node="q")), drained("p.1")],
    ),
    "leased and lapsed, gone": ("lost", [leased(3), DIES, DRAINS]),
    "noticed by a client": ("wrong", [line("wrong", what="a traceback in the log")]),
}


@pytest.mark.parametrize("name", BAD)
def test_what_must_not_happen_is_found(name: str) -> None:
    rule, lines = BAD[name]
    assert set(rules(*lines)) == set(rule.split(" and "))


def test_a_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.write("opens", **LAYOUT)
    ledger.write("sent", id="p.1", to=["q"])
    ledger.write("answered", id="p.1", outcome="accepted")
    ledger.close()
    assert Ledger.load(tmp_path / "ledger") == ledger.entries
    assert [violation.rule for violation in check(ledger.entries)] == ["lost"]
