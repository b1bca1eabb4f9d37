"""The figures that README.md shows: a table and a chart, made from the tables of the results.

The page with the results is the record. Nothing is measured or written by hand for README.md, and
all figures of its table are those of one run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from bench import chart, markdown

BEGIN: Final = "<!-- figures: written by `python -m bench --markdown`, do not edit -->"
END: Final = "<!-- end of figures -->"
OURS: Final = "ferrymq"
_HEAD: Final = ("", "ratio", "ferrymq", "beside it")
_PROCESSOR: Final = "ferrymq, broker's processor time"


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
    peers = [line.peer] if line.peer else peers_of(part, line.case)
    made: list[tuple[str, ...]] = []
    title = line.title
    for peer in peers:
        there = (peer, line.ours) if line.other_case else (line.case, peer)
        ours, theirs = part.figures.get((line.case, line.ours)), part.figures.get(there)
        ratio = part.ratios.get((line.case, line.ours, peer))
        if ours is None or theirs is None or ratio is None:
            continue
        named = NAMES.get(peer, peer)
        ratio = f"× {ratio} the {line.quantity}"
        made.append((title, ratio, _shown(ours), f"{named}: {_shown(theirs)}"))
        title = ""
    return made


def peers_of(part: Part, case: str) -> list[str]:
    """Return the peers that the page compares ferrymq with in a case, the fastest first."""
    peers = [peer for named, ours, peer in part.ratios if (named, ours) == (case, OURS)]
    return sorted(peers, key=lambda peer: -part.figures[case, peer].number)


def _shown(value: Value) -> str:
    return f"{value.text} {value.unit}"


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def picture(parts: dict[str, Part]) -> str:
    """Return the chart for README.md: the brokers beside each other, as SVG."""
    part = parts["Broker"]
    groups: list[chart.Group] = []
    for title, case in (
        ("100 B", "100 B, unsettled"),
        ("1 KiB", "1 KiB, unsettled"),
    ):
        bars = [chart.Bar("ferrymq", part.figures[case, OURS].number, "")]
        for peer in peers_of(part, case):
            ratio = part.ratios[case, OURS, peer]
            bars.append(chart.Bar(peer, part.figures[case, peer].number, f"ferrymq × {ratio}"))
        groups.append(chart.Group(title, bars))
    run = part.measured.partition(" on: ")
    where = ", ".join(run[2].split(", ")[:3])
    return chart.render(
        "Messages per second through one queue",
        "one producer, one consumer, 500 in flight, every outcome awaited, messages not durable",
        groups,
        f"one run, {run[0]}: {where}; clients and broker share the cores",
    )


def write(page: Path) -> bool:
    """Write the table of README.md and the chart beside the page, from the results on the page.

    Return false if the page's repository has no README.md with a place for the table.
    """
    readme = page.resolve().parent.parent / "README.md"
    if not readme.exists() or BEGIN not in readme.read_text("utf-8"):
        return False
    parts = parse(page.read_text("utf-8"))
    if "Broker" not in parts:
        return False
    markdown.replace(readme, table(parts), BEGIN, END)
    page.with_suffix(".svg").write_text(picture(parts), "utf-8")
    return True
