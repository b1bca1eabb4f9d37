"""Whether the broker has kept its word: what a history must not show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.crash.entity_checks import check_entities
from tests.crash.history import REMOVING, Copy, History, Violation
from tests.crash.lease_checks import check_leases
from tests.crash.ledger import Entry
from tests.crash.stream_checks import check_streams

# How much earlier than told a scheduled message may seem to come: clocks count in milliseconds.
_CLOCK = 2


def check(entries: Sequence[Entry]) -> list[Violation]:
    """Everything that is wrong with a ledger that has come to its end."""
    history = History(entries)
    found = [Violation("wrong", e.about["what"]) for e in entries if e.what == "wrong"]
    for rule in (
        _check_origin,
        _check_removed,
        _check_lost,
        _check_times,
        _check_order,
        _check_once,
        _check_transactions,
        _check_fan_out,
        check_streams,
        check_entities,
        check_leases,
    ):
        found.extend(rule(history))
    return found


def _queued(history: History) -> Iterator[Copy]:
    return (copy for copy in history.copies.values() if copy.node not in history.streams)


def _check_origin(history: History) -> Iterator[Violation]:
    """Nobody receives what was not sent, not yet committed, or refused."""
    for _, id, node in history.foreign:
        yield Violation("foreign", f"{id} was received from {node}, where nobody has sent it")
    for copy in history.copies.values():
        if not copy.got:
            continue
        if history.denied(copy):
            yield Violation("ghost", f"{copy} was received, but is {copy.outcome or 'rolled back'}")
        if copy.txn is not None:
            asked = history.transactions[copy.txn].asked
            if asked is not None and copy.got[0] < asked:
                yield Violation(
                    "early", f"{copy} was received before its transaction was committed"
                )


def _check_removed(history: History) -> Iterator[Violation]:
    """What the broker has settled as accepted or rejected does not come again; nor does what has
    gone on to the dead letters."""
    for copy in _queued(history):
        for given in copy.given:
            removed = history.removed(given)
            again = [place for place in copy.got if removed is not None and place > removed]
            if again:
                text = f"{copy} was {given.outcome}, confirmed at {removed}, received at {again[0]}"
                yield Violation("redelivered", text)
                break
        dead = history.dead_letter(copy)
        if dead is None or not dead.got:
            continue
        if copy.got and copy.got[-1] > dead.got[0]:
            text = f"{copy} was received at {copy.got[-1]}, as a dead letter at {dead.got[0]}"
            yield Violation("in two places", text)
        for given in copy.given:
            removed = history.removed(given) if given.outcome == "accepted" else None
            if removed is not None and dead.got[-1] > removed:
                text = f"{copy} was accepted, and then a dead letter at {dead.got[-1]}"
                yield Violation("redelivered", text)
                break
        limit = history.limits.get(copy.node)
        rejected = any(given.outcome == "rejected" for given in copy.given)
        if limit is None and not rejected and copy.node not in history.overflows:
            yield Violation("dead for no reason", f"{copy} was received from {dead.node}")
    yield from _check_limits(history)


def _check_limits(history: History) -> Iterator[Violation]:
    """What has failed too often is not delivered again."""
    for copy in _queued(history):
        limit = history.limits.get(copy.node)
        if limit is None:
            continue
        failed = [g.confirmed for g in copy.given if g.outcome == "failed" and g.confirmed]
        if len(failed) > limit and copy.got[-1] > failed[limit]:
            yield Violation("over the limit", f"{copy} came again after {len(failed)} failures")


def _check_lost(history: History) -> Iterator[Violation]:
    """What was acknowledged, or handed out and not taken, is there until somebody takes it."""
    for copy in _queued(history):
        if copy.volatile or history.denied(copy) or not history.certain(copy):
            continue
        if history.origin(copy) is not copy:
            # Judged together with what it was before.
            continue
        dead = history.dead_letter(copy)
        places = copy.got + (dead.got if dead else [])
        last = max(places, default=-1)
        if last < 0:
            yield Violation("lost", f"{copy}, sent at {copy.sent}, was never received")
            continue
        given = [g for g in copy.given if g.place > last and history.may_remove(g)]
        if copy.node in history.dead:
            # The rejected one must have been found again, where it went.
            given = [g for g in given if g.outcome == "accepted"]
        if dead is not None:
            given += [g for g in dead.given if g.place > last and history.may_remove(g)]
        if not given:
            yield Violation("lost", f"{copy}, received at {last}, was not there in the end")


def _check_times(history: History) -> Iterator[Violation]:
    """Nothing comes before it is due."""
    for copy in _queued(history):
        if copy.due is not None and copy.got:
            at = history.entries[copy.got[0]].at
            if at < copy.due - _CLOCK:
                yield Violation("before its time", f"{copy} came {copy.due - at} ms early")


def _check_order(history: History) -> Iterator[Violation]:
    """What is left in a queue in the end is there in the order it was sent."""
    last: dict[tuple[str, str], Copy] = {}
    for entry in history.entries:
        if entry.what == "drains":
            last.clear()
        if entry.what != "got" or not entry.about.get("drained"):
            continue
        copy = history.copies.get((entry.about["id"], entry.about["node"]))
        if copy is None or copy.due is not None or copy.sendings > 1:
            continue
        if history.origin(copy) is not copy:
            continue
        before = last.get((copy.producer, copy.node))
        if before is not None and before.number > copy.number:
            yield Violation("order", f"{copy} came behind {before.id}")
        last[copy.producer, copy.node] = copy


def _check_once(history: History) -> Iterator[Violation]:
    """On links that resume, nothing is left without an outcome and nothing comes twice."""
    received: dict[tuple[str, str], int] = {}
    for place, entry in enumerate(history.entries):
        if entry.what != "got" or not entry.about.get("once"):
            continue
        key = (entry.about["id"], entry.about["node"])
        copy = history.copies.get(key)
        if copy is not None and key in received:
            before = received[key]
            returned = [given for given in copy.given if before < given.place < place]
            if not any(given.outcome not in REMOVING for given in returned):
                text = f"{copy} came at {before} and again at {place}"
                yield Violation("duplicate", text)
        received[key] = place
    for copy in history.copies.values():
        if copy.once and copy.outcome is None:
            yield Violation("unanswered", f"{copy} never got an outcome")


def _check_transactions(history: History) -> Iterator[Violation]:
    """All of a transaction is done or nothing, and all of one whose commit was answered."""
    posts: dict[str, list[Copy]] = defaultdict(list)
    retired: dict[str, list[Copy]] = defaultdict(list)
    for copy in history.copies.values():
        if copy.txn is not None:
            posts[copy.txn].append(copy)
        for given in copy.given:
            # One that is not durable may be gone whatever became of the transaction.
            if given.txn is not None and given.outcome in REMOVING and not copy.volatile:
                retired[given.txn].append(copy)
    for name, txn in history.transactions.items():
        if txn.asked is None or txn.rolled_back is not None:
            continue
        there = [c for c in posts[name] if history.seen(c)]
        absent = [c for c in posts[name] if not history.seen(c)]
        asked = txn.asked
        back = [c for c in retired[name] if c.got[-1] > asked]
        gone = [c for c in retired[name] if c.got[-1] < asked]
        done, undone = there + gone, absent + back
        if txn.committed is not None and undone:
            yield Violation("half", f"{name} was committed, but not {_names(undone)}")
        elif done and undone:
            yield Violation("half", f"of {name} {_names(done)} was done and {_names(undone)} not")


def _check_fan_out(history: History) -> Iterator[Violation]:
    """What was sent to several queues at once came to all of them or to none."""
    for copies in history.sent.values():
        if len(copies) < 2 or copies[0].txn is not None or copies[0].volatile:
            continue
        there = [copy for copy in copies if history.seen(copy)]
        absent = [copy for copy in copies if not history.seen(copy)]
        if there and absent:
            yield Violation("half", f"{_names(there)} is there and {_names(absent)} is not")


def _names(copies: list[Copy]) -> str:
    return ", ".join(map(str, copies[:5])) + (", ..." if len(copies) > 5 else "")
