"""The diagrams of `docs/engine.md` and `docs/engine-0-9-1.md`, drawn from the state tables.

    python -m tests.support.diagrams          # write them
    python -m tests.support.diagrams --check  # exit 1 if they are not what the tables say

They are SVG files beside the pages, because the site has no script that draws. The arrows and their
labels come from the tables; where the states are is written below.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from ferrymq.engine.states import CONNECTION_TABLE, LINK_TABLE, SESSION_TABLE
from ferrymq_rabbitmq.amqp_0_9_1.engine import server_states

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "engine.md"
PAGE_0_9_1: Final = PAGE.with_name("engine-0-9-1.md")

# Arrows from each open state of a connection: one state has them for all.
CLOSES: Final = ("RECV_CLOSE", "SEND_CLOSE", "END")

# The grid on which states stand, and the sizes of boxes and letters, in pixels.
COLUMN, ROW, MARGIN = 190, 92, 24
HEIGHT, CAPITAL, LETTER, LINE = 28, 8, 6.2, 14
LOOP = 28

STYLE: Final = """\
<style>
  text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f; }
  .state { font-weight: 600; }
  .ground { fill: #ffffff; }
  .box { fill: #ddf4ff; stroke: #0969da; }
  .arrow { fill: none; stroke: #57606a; }
  .head { fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .ground { fill: #0d1117; }
    .box { fill: #121d2f; stroke: #4493f8; }
    .arrow { stroke: #9da7b3; }
    .head { fill: #9da7b3; }
  }
</style>
<defs>
  <marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
    <path class="head" d="M 0 0.5 L 8 4 L 0 7.5 z"/>
  </marker>
</defs>"""  # noqa: E501

Place = tuple[float, float]


@dataclass(frozen=True)
class Diagram:
    """A table, and the places of its states by column and row. A state with several places is
    drawn at each: an arrow joins those that are nearest to each other."""

    title: str
    table: Mapping[tuple[Any, Any], Enum]
    places: Mapping[str, list[Place]]

    @property
    def arrows(self) -> dict[tuple[str, str], list[str]]:
        """The inputs that lead from one state to another."""
        found: dict[tuple[str, str], list[str]] = {}
        for (state, given), new in self.table.items():
            found.setdefault((state.name, new.name), []).append(words(given))
        return found


def drawn_transitions(
    table: Mapping[tuple[int, int], server_states.Transition],
    states: tuple[str, ...],
    inputs: tuple[str, ...],
) -> dict[tuple[Enum, Enum], Enum]:
    """The transitions of a table of AMQP 0-9-1 that have an arrow: they go to another state or tell
    something, and are no faults. How a connection is closed is drawn for `OPENED` only."""
    state = Enum("state", states, start=0)  # type: ignore[misc]
    given = Enum("given", inputs, start=0)  # type: ignore[misc]
    return {
        (state(old), given(number)): state(int(transition.state))
        for (old, number), transition in table.items()
        if not transition.code
        and (transition.state != old or transition.event is not None)
        and (inputs[number] not in CLOSES or states[old] in ("OPENED", "EXPECT_CLOSE_OK"))
    }


DIAGRAMS: Final = {
    "connection": Diagram(
        "States of a connection",
        CONNECTION_TABLE,
        {
            "START": [(2.45, 0)],
            "HDR_SENT": [(1.7, 1)],
            "HDR_RCVD": [(3.2, 1)],
            "OPEN_PIPE": [(1.2, 2)],
            "HDR_EXCH": [(2.75, 2)],
            "OC_PIPE": [(1.2, 3)],
            "OPEN_SENT": [(2.3, 3)],
            "OPEN_RCVD": [(3.25, 3)],
            "CLOSE_PIPE": [(1.2, 4)],
            "OPENED": [(2.75, 4)],
            "CLOSE_SENT": [(1.5, 5)],
            "DISCARDING": [(2.75, 5)],
            "CLOSE_RCVD": [(4, 5)],
            "END": [(0, 1), (0, 2), (0, 3), (4.3, 1), (2.75, 6)],
        },
    ),
    "session": Diagram(
        "States of a session",
        SESSION_TABLE,
        {
            "UNMAPPED": [(1.4, 0), (1.4, 4)],
            "BEGIN_SENT": [(0.15, 1)],
            "BEGIN_RCVD": [(2.65, 1)],
            "MAPPED": [(1.4, 2)],
            "DISCARDING": [(0.15, 3)],
            "END_SENT": [(1.4, 3)],
            "END_RCVD": [(2.65, 3)],
        },
    ),
    "link": Diagram(
        "States of a link",
        LINK_TABLE,
        {
            "DETACHED": [(1.4, 0), (1.4, 4)],
            "ATTACH_SENT": [(0.15, 1)],
            "ATTACH_RCVD": [(2.65, 1)],
            "ATTACHED": [(1.4, 2)],
            "DETACH_SENT": [(0.15, 3)],
            "DETACH_RCVD": [(2.65, 3)],
        },
    ),
}

DIAGRAMS_0_9_1: Final = {
    "0-9-1-connection": Diagram(
        "States of a connection of AMQP 0-9-1",
        drawn_transitions(
            server_states.CONNECTION_TABLE,
            server_states.CONNECTION_STATES,
            server_states.CONNECTION_INPUTS,
        ),
        {
            "EXPECT_HEADER": [(0.5, 0)],
            "EXPECT_START_OK": [(0.5, 1)],
            "EXPECT_LOGIN": [(0.5, 2)],
            "EXPECT_SECURE_OK": [(2.3, 2)],
            "EXPECT_TUNE_OK": [(0.5, 3)],
            "EXPECT_OPEN": [(0.5, 4)],
            "EXPECT_HOST": [(0.5, 5)],
            "OPENED": [(0.5, 6)],
            "EXPECT_SECRET": [(2.3, 6)],
            "EXPECT_CLOSE_OK": [(1.6, 7)],
            "ENDED": [(2.3, 0), (0.5, 8)],
        },
    ),
    "0-9-1-channel": Diagram(
        "States of a channel of AMQP 0-9-1",
        drawn_transitions(
            server_states.CHANNEL_TABLE,
            server_states.CHANNEL_STATES,
            server_states.CHANNEL_INPUTS,
        ),
        {
            "UNOPENED": [(1.4, 0)],
            "CLOSING": [(0.1, 0.8), (1.4, 4)],
            "OPEN": [(1.4, 1.6)],
            "CONTENT_HEADER": [(2.6, 2.9)],
            "CONTENT_BODY": [(0.3, 2.9)],
        },
    ),
}


def words(given: Enum) -> str:
    """An input as the label of an arrow: ``SEND_CLOSE_ERROR`` is ``send close (error)``."""
    label = given.name.lower().replace("_", " ").replace("recv", "receive")
    return label.removesuffix(" error") + " (error)" if label.endswith(" error") else label


def drawn(diagram: Diagram) -> str:
    """The diagram as SVG. Each arrow has a title, which a browser shows beside the pointer."""
    boxes = [Box(name, place) for name, places in diagram.places.items() for place in places]
    arrows: list[str] = []
    labels: list[str] = []
    width = max(box.x + box.wide / 2 for box in boxes)
    for (old, new), inputs in diagram.arrows.items():
        title = f"<title>{old} → {new}: {', '.join(inputs)}</title>"
        pairs = [(a, b) for a in boxes for b in boxes if (a.name, b.name) == (old, new)]
        start, end = min(pairs, key=lambda pair: math.dist(pair[0].centre, pair[1].centre))
        if start is end:
            right = start.x + start.wide / 2
            path = f"M {right:g} {start.y - 7:g} c {LOOP} -12 {LOOP} 26 2 14"
            labels += label(inputs, right + LOOP, start.y, "start")
            width = max(width, right + LOOP + LETTER * max(map(len, inputs)))
        else:
            (x1, y1), (x2, y2) = start.edge(end), end.edge(start)
            part = 0.47
            if (new, old) in diagram.arrows:
                # Beside the arrow that goes back.
                long = math.dist((x1, y1), (x2, y2))
                aside = -8 * (y2 - y1) / long, 8 * (x2 - x1) / long
                x1, y1, x2, y2 = x1 + aside[0], y1 + aside[1], x2 + aside[0], y2 + aside[1]
                part = 0.36
            path = f"M {x1:.1f} {y1:.1f} L {x2:.1f} {y2:.1f}"
            # Nearer to the beginning, where arrows that meet are still apart.
            labels += label(inputs, x1 + part * (x2 - x1), y1 + part * (y2 - y1), "middle")
        arrows.append(f'<path class="arrow" marker-end="url(#head)" d="{path}">{title}</path>')
    size = f"{width + MARGIN:.0f}", f"{max(box.y for box in boxes) + HEIGHT / 2 + MARGIN:.0f}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" '
            f'width="{size[0]}" height="{size[1]}" role="img">',
            f"<title>{diagram.title}</title>",
            STYLE,
            f'<rect class="ground" width="{size[0]}" height="{size[1]}" rx="6"/>',
            *arrows,
            *(line for box in boxes for line in box.drawn()),
            *labels,
            "</svg>\n",
        ]
    )


class Box:
    """A state at one of its places."""

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.wide = len(name) * CAPITAL + 20
        self.x = MARGIN + 22 + place[0] * COLUMN
        self.y = MARGIN + HEIGHT / 2 + place[1] * ROW
        self.centre = self.x, self.y

    def edge(self, other: Box) -> Place:
        """Where the line to another box leaves this one."""
        dx, dy = other.x - self.x, other.y - self.y
        part = min(
            self.wide / 2 / abs(dx) if dx else math.inf,
            HEIGHT / 2 / abs(dy) if dy else math.inf,
        )
        return self.x + part * dx, self.y + part * dy

    def drawn(self) -> tuple[str, str]:
        """The box and its name."""
        return (
            f'<rect class="box" x="{self.x - self.wide / 2:g}" y="{self.y - HEIGHT / 2:g}" '
            f'width="{self.wide}" height="{HEIGHT}" rx="6"/>',
            f'<text class="state" x="{self.x:g}" y="{self.y + 4:g}" '
            f'text-anchor="middle">{self.name}</text>',
        )


def label(inputs: list[str], x: float, y: float, anchor: str) -> list[str]:
    """The inputs one below the other, on a ground that hides the arrow."""
    wide = max(map(len, inputs)) * LETTER
    high = len(inputs) * LINE
    left = x if anchor == "start" else x - wide / 2
    return [
        f'<rect class="ground" x="{left:.1f}" y="{y - high / 2:.1f}" '
        f'width="{wide:.1f}" height="{high}"/>',
        *(
            f'<text x="{x:.1f}" y="{y - high / 2 + 11 + number * LINE:.1f}" '
            f'text-anchor="{anchor}">{each}</text>'
            for number, each in enumerate(inputs)
        ),
    ]


def path_of(name: str) -> Path:
    """The file of a diagram."""
    return PAGE.with_name(f"engine-{name}.svg")


def main() -> int:
    """Write the diagrams, or check them."""
    for name, diagram in {**DIAGRAMS, **DIAGRAMS_0_9_1}.items():
        path = path_of(name)
        if "--check" not in sys.argv[1:]:
            path.write_text(drawn(diagram), "utf-8")
        elif path.read_text("utf-8") != drawn(diagram):
            print(f"{path.name} is not what the tables say: run python -m tests.support.diagrams")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
