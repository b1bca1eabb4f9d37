"""The figures that README.md shows, and the charts: made from the tables of the results.

The page with the results is the record. Nothing is measured or written by hand for README.md, and
all figures of its table are those of one run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from bench import chart, markdown
from bench.results import LESS_IS_BETTER

BEGIN: Final = "<!-- figures: written by `python -m bench --markdown`, do not edit -->"
END: Final = "<!-- end of figures -->"
OURS: Final = "ferrymq"
_HEAD: Final = ("", "ratio", "ferrymq", "beside it")
_COST: Final = ", broker's processor time"
_PROCESSOR: Final = f"ferrymq{_COST}"


class Value(NamedTuple):
    """A figure as the page shows it, and its unit."""

    text: str
    unit: str

    @property
    def number(self) -> float:
        """The figure as a number."""
        return float(self.text.replace(" ", ""))


@dataclass
class Part:
    """A section of the page: which run it is from, its figures and its ratios."""

    measured: str = ""
    figures: dict[tuple[str, str], Value] = field(default_factory=dict)
    """Medians by case and contender."""
    ratios: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """Ratios by case, our contender and the peer."""


class Line(NamedTuple):
    """A row of the table in README.md: a comparison of the page.

    `peer` is a contender of the same case, or a case with the same contender, in which case
    `other_case` is true. An empty `peer` stands for each peer of the case.
    """

    title: str
    part: str
    case: str
    ours: str
    peer: str
    quantity: str
    other_case: bool = False


LINES: Final = (
    Line("through a queue, 100 B, every outcome awaited", "Broker", "100 B, unsettled",
         OURS, "", "rate"),
    Line("through a queue, 1 KiB, every outcome awaited", "Broker", "1 KiB, unsettled",
         OURS, "", "rate"),
    Line("processor time of the broker, 100 B, every outcome awaited", "Broker", "100 B, unsettled",
         _PROCESSOR, "", "processor time"),
    Line("the client on RabbitMQ, a classic queue: send, durable, 100 B", "Clients",
         "RabbitMQ, classic: send", OURS, "python-qpid-proton", "rate"),
    Line("the client on RabbitMQ, a classic queue: receive and accept", "Clients",
         "RabbitMQ, classic: receive", OURS, "python-qpid-proton", "rate"),
    Line("durable, 1 KiB, outcomes after the sync, on a disk that syncs in 1 ms",
         "Durable messages", "a disk that syncs in 1 ms, 1 KiB, ferrymq",
         OURS, "append + fdatasync", "rate"),
    Line("one message in flight, p50", "Latency", "pre-settled, back to back, p50",
         OURS, "TCP echo", "time"),
    Line("codec: a transfer frame encoded, called from Python", "Codec",
         "transfer frame, encode", OURS, "pyamqp", "rate"),
    Line("codec: a transfer frame decoded, called from Python", "Codec",
         "transfer frame, decode", OURS, "pyamqp", "rate"),
    Line("codec: a message of four sections encoded, called from Python", "Codec",
         "message, encode", OURS, "Proton", "rate"),
    Line("codec: a message of four sections decoded, called from Python", "Codec",
         "message, decode", OURS, "Proton", "rate"),
    Line("messages of all ten priorities", "Features", "messages of all ten priorities",
         _PROCESSOR, "a plain queue", "processor time", True),
    Line("messages with a ttl", "Features", "messages with a ttl",
         _PROCESSOR, "a plain queue", "processor time", True),
    Line("a receiver with a selector", "Features", "a receiver with a selector",
         _PROCESSOR, "a plain queue", "processor time", True),
    Line("into a stream and out of it", "Features", "into a stream and out of it",
         _PROCESSOR, "a plain queue", "processor time", True),
    Line("inside TLS", "Security", "relay, inside TLS",
         _PROCESSOR, "relay, in the clear", "processor time", True),
)  # fmt: skip
NAMES: Final = {
    "append + fdatasync": "the bare disk, the same batches",
    "TCP echo": "a uvloop TCP echo",
    "Proton": "Proton's Python `Message`",
    "python-qpid-proton": "Proton's Python client",
    "Proton (Python)": "a broker on Proton's Python binding",
    "relay, in the clear": "without TLS",
}
"""Peers whose names on the page do not say enough in README.md."""


def parse(document: str) -> dict[str, Part]:
    """Return the parts of a page with results, by title."""
    between = document.partition(markdown.BEGIN)[2].partition(markdown.END)[0]
    found: dict[str, Part] = {}
    for title, text in markdown.sections(between).items():
        part = found[title] = Part()
        measured = re.search(r"^Measured (.+)\.$", text, re.MULTILINE)
        part.measured = "" if measured is None else measured[1]
        case = ""
        for row in re.findall(r"^\| (.*) \|$", text, re.MULTILINE):
            cells = [cell.strip() for cell in row.split(" | ")]
            case = cells[0] or case
            if len(cells) == 6 and cells[0] != "case":
                part.figures[case, cells[1]] = Value(cells[2], cells[4])
            elif len(cells) == 4 and cells[0] != "case":
                ours, _, peer = cells[1].partition(" ÷ ")
                part.ratios[case, ours, peer] = cells[2].removesuffix(" ×")
    return found


def table(parts: dict[str, Part]) -> str:
    """Return the table for README.md, with the run that its figures are from.

    Parts that were measured in another run than the broker are left out.
    """
    run = parts["Broker"].measured
    rows = [
        row
        for line in LINES
        if line.part in parts and parts[line.part].measured == run
        for row in _rows(parts[line.part], line)
    ]
    others = sorted({line.part for line in LINES if parts.get(line.part, Part()).measured != run})
    text = [_row(_HEAD), "| --- | --- | --- | --- |", *map(_row, rows), ""]
    text += [f"All figures of this table are from one run, measured {run}."]
    if others:
        text += [f"Not measured in this run, and so not in this table: {', '.join(others)}."]
    return "\n".join(text)


def _rows(part: Part, line: Line) -> list[tuple[str, ...]]:
    peers = [line.peer] if line.peer else peers_of(part, line.case, line.ours)
    made: list[tuple[str, ...]] = []
    title = line.title
    for peer in peers:
        there = (peer, line.ours) if line.other_case else (line.case, peer)
        ours, theirs = part.figures.get((line.case, line.ours)), part.figures.get(there)
        ratio = part.ratios.get((line.case, line.ours, peer))
        if ours is None or theirs is None or ratio is None:
            continue
        named = NAMES.get(peer, peer).removesuffix(_COST)
        ratio = f"× {ratio} the {line.quantity}"
        made.append((title, ratio, _shown(ours), f"{named}: {_shown(theirs)}"))
        title = ""
    return made


def peers_of(part: Part, case: str, ours: str = OURS) -> list[str]:
    """Return the peers that the page compares ferrymq with in a case, the fastest first."""
    peers = [peer for named, contender, peer in part.ratios if (named, contender) == (case, ours)]
    mine = part.figures[case, ours]
    rated = -1 if mine.unit not in LESS_IS_BETTER else 1
    return sorted(peers, key=lambda peer: rated * part.figures[case, peer].number)


def _shown(value: Value) -> str:
    return f"{value.text} {value.unit}"


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def pictures(parts: dict[str, Part]) -> dict[str, str]:
    """Return the charts as SVG, by what the names of their files have after the name of the page:
    rates of the brokers, processor time for a message, and the time of one message in flight.

    A chart without figures is left out, and so are figures of another run than the chart's.
    """
    made = {
        "": _picture(
            parts, "Messages per second through one queue",
            "one producer, one consumer, 500 in flight, every outcome awaited, "
            "messages not durable",
            [("100 B", "Broker", "100 B, unsettled", OURS),
             ("1 KiB", "Broker", "1 KiB, unsettled", OURS)],
        ),
        "-processor": _picture(
            parts, "Processor time of the broker for a message, µs",
            "one producer, one consumer, 500 in flight; less is better",
            [(title, "Broker", case, _PROCESSOR)
             for title, case in (("100 B", "100 B, unsettled"),
                                 ("100 B, pre-settled", "100 B, pre-settled"),
                                 ("1 KiB", "1 KiB, unsettled"),
                                 ("1 KiB, durable", "1 KiB, durable, unsettled"))],
        ),
        "-latency": _picture(
            parts, "One message in flight, µs",
            "100 B, from the call that sends to the message at the consumer; less is better",
            [("p50, pre-settled", "Latency", "pre-settled, back to back, p50", OURS),
             ("p50, unsettled", "Latency", "unsettled, back to back, p50", OURS),
             ("p99, pre-settled", "Latency", "pre-settled, back to back, p99", OURS),
             ("mean, pre-settled", "Broker", "100 B, one in flight, pre-settled", OURS),
             ("mean, unsettled", "Broker", "100 B, one in flight, unsettled", OURS)],
        ),
    }  # fmt: skip
    return {name: text for name, text in made.items() if text}


def _picture(
    parts: dict[str, Part], title: str, subtitle: str, groups: list[tuple[str, str, str, str]]
) -> str:
    """Return a chart with the groups that have figures: title, part, case and our contender."""
    drawn: list[chart.Group] = []
    run = ""
    for name, of, case, ours in groups:
        part = parts.get(of, Part())
        mine = part.figures.get((case, ours))
        if mine is None or (run and part.measured != run):
            continue
        run = part.measured
        bars = [chart.Bar("ferrymq", mine.number, "")]
        peers = peers_of(part, case, ours) or [
            contender
            for (named, contender), value in part.figures.items()
            if named == case and contender != ours and value.unit == mine.unit
        ]
        for peer in peers:
            ratio = part.ratios.get((case, ours, peer))
            remark = "" if ratio is None else f"ferrymq × {ratio}"
            value = part.figures[case, peer].number
            bars.append(chart.Bar(peer.removesuffix(_COST), value, remark))
        drawn.append(chart.Group(name, bars))
    if not drawn:
        return ""
    day, _, machine = run.partition(" on: ")
    where = ", ".join(machine.split(", ")[:3])
    source = f"one run, {day}: {where}; clients and broker share the cores"
    return chart.render(title, subtitle, drawn, source)


def write(page: Path) -> bool:
    """Write the table of README.md and the charts beside the page, from the results on the page.

    Return false if the page's repository has no README.md with a place for the table.
    """
    readme = page.resolve().parent.parent / "README.md"
    if not readme.exists() or BEGIN not in readme.read_text("utf-8"):
        return False
    parts = parse(page.read_text("utf-8"))
    if "Broker" not in parts:
        return False
    markdown.replace(readme, table(parts), BEGIN, END)
    for name, text in pictures(parts).items():
        page.with_name(f"{page.stem}{name}.svg").write_text(text, "utf-8")
    return True
