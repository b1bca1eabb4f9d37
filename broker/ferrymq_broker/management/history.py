"""Rates and history of entities: the attributes ``in-rate``, ``out-rate`` and ``oldest-age``, and
the operation HISTORY."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ferrymq_broker.history.sampler import series_of
from ferrymq_broker.history.series import (
    DEPTH,
    EMPTY,
    INS,
    LEVELS,
    OLDEST,
    OUTS,
    PERIOD,
    NodeSeries,
    samples_of,
    ticks_of,
)
from ferrymq_broker.management.errors import CONFLICT, ManagementError
from ferrymq_broker.management.operation import Call, Result
from ferrymq_codec.scalars import Timestamp

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Agenda, Node, NodeHistory

HISTORY: Final = "HISTORY"
# The attributes that come from the samples.
RATES: Final = frozenset(("in-rate", "out-rate", "oldest-age"))
# The arguments of HISTORY.
ARGUMENTS: Final = ("seconds",)
# The seconds that HISTORY goes back if the request does not say.
_SECONDS: Final = 600
_OFF: Final = "the broker keeps no history: [history] enabled is false"


def rates_of_node(node: Node) -> dict[str, object]:
    """Return the rates of a node or of the queue of a subscription; None for each without
    history."""
    if node.space.history is None:
        return {"in-rate": None, "out-rate": None, "oldest-age": None}
    series = series_of(node.history)
    rates = rates_of(series, node.agenda)
    if series is not None and series.depth != 0 and node.message_count() == 0:
        # The last message has left since the last sample.
        rates["oldest-age"] = 0
    return rates


def rates_of(history: NodeHistory | None, agenda: Agenda) -> dict[str, object]:
    """Return the rates of what has these samples: 0 before the first sample."""
    series = series_of(history)
    if series is None:
        return {"in-rate": 0.0, "out-rate": 0.0, "oldest-age": 0}
    return {
        "in-rate": round(series.in_rate(), 1),
        "out-rate": round(series.out_rate(), 1),
        "oldest-age": int(series.age(agenda.now)),
    }


def rates_of_all(history: NodeHistory | None, agenda: Agenda) -> dict[str, object]:
    """Return the rates of a virtual host or of the broker; None for each without history."""
    if history is None:
        return {"in-rate": None, "out-rate": None, "oldest-age": None}
    return rates_of(history, agenda)


def history_of_node(call: Call, node: Node) -> Result:
    """Handle HISTORY of a node or a subscription. Raises `ManagementError` without history."""
    if node.space.history is None:
        raise ManagementError(CONFLICT, _OFF)
    return _answer(call, series_of(node.history), node.agenda)


def history_of(call: Call, history: NodeHistory | None, agenda: Agenda) -> Result:
    """Handle HISTORY of a virtual host or of the broker. Raises `ManagementError` without
    history."""
    if history is None:
        raise ManagementError(CONFLICT, _OFF)
    return _answer(call, series_of(history), agenda)


def seconds_of(call: Call) -> int:
    """Return how far HISTORY goes back. Raises `ManagementError`."""
    call.expect_only(*ARGUMENTS)
    return call.number("seconds", _SECONDS, 1)


def _answer(call: Call, series: NodeSeries | None, agenda: Agenda) -> Result:
    return Result(samples(series, seconds_of(call), agenda))


def samples(series: NodeSeries | None, seconds: int, agenda: Agenda) -> dict[str, object]:
    """Return the samples of the last `seconds`, the oldest first: those of the finest level that
    goes back so far."""
    level = 0
    while level < LEVELS - 1 and seconds > _span(level):
        level += 1
    step: int = ticks_of(level) * PERIOD // 1000
    ins: list[float] = []
    outs: list[float] = []
    depths: list[int] = []
    ages: list[int] = []
    end = 0
    if series is not None:
        clock = series.clock
        last = clock.tick // ticks_of(level)
        count = min(-(-seconds // step), samples_of(level) - 1)
        end = clock.began + last * ticks_of(level) * PERIOD
        for at in range(last - count + 1, last + 1):
            if not series.has(level, at - 1):
                continue
            ins.append(round(int(series.difference(level, at, INS)) / step, 4))
            outs.append(round(int(series.difference(level, at, OUTS)) / step, 4))
            depths.append(int(series.value(level, at, DEPTH)))
            oldest = series.value(level, at, OLDEST)
            moment = clock.began + at * ticks_of(level) * PERIOD
            ages.append(0 if oldest == EMPTY else int(clock.age(oldest, moment)))
    return {
        "interval": int(step),
        "end": Timestamp(int(agenda.date_of(end))) if end else None,
        "in-rate": ins,
        "out-rate": outs,
        "messages": depths,
        "oldest-age": ages,
    }


def joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Return the samples of several processes as those of one. They have the same intervals, which
    do not begin at the same moment: they differ by less than one."""
    interval = parts[0]["interval"]
    known = [part for part in parts if part["end"] is not None]
    end = max((int(part["end"]) for part in known), default=None)
    found: dict[str, object] = {
        "interval": interval,
        "end": None if end is None else Timestamp(end),
    }
    for name in ("in-rate", "out-rate", "messages", "oldest-age"):
        # The newest first, as long as all is put together.
        column: list[float] = []
        for part in known:
            late = round((int(end or 0) - int(part["end"])) / (interval * 1000))
            for at, value in enumerate(reversed(part[name]), late):
                column.extend([0] * (at + 1 - len(column)))
                both = (column[at], value)
                column[at] = max(both) if name == "oldest-age" else sum(both)
        column.reverse()
        found[name] = [round(value, 4) for value in column]
    return found


def _span(level: int) -> int:
    """Return the seconds that a level goes back."""
    return int((samples_of(level) - 1) * ticks_of(level) * PERIOD // 1000)
