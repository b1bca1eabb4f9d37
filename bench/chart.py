"""A chart of horizontal bars as SVG: readable on light and on dark pages, without a script."""

from __future__ import annotations

from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from bench.rows import number

WIDTH: Final = 760
LEFT: Final = 190
"""Where bars begin; names are to the left."""
LONGEST: Final = 380
ROW: Final = 26
STYLE: Final = """
  text { font: 13px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f; }
  .title { font-size: 16px; font-weight: 600; }
  .small { font-size: 11px; fill: #57606a; }
  .group { font-weight: 600; }
  .ground { fill: #ffffff; }
  .ours { fill: #0969da; }
  .peer { fill: #8c959f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9da7b3; }
    .ground { fill: #0d1117; }
    .ours { fill: #4493f8; }
    .peer { fill: #6e7681; }
  }
"""


class Bar(NamedTuple):
    """A bar: its name, its length as a figure, and a remark, such as the ratio to the first bar."""

    name: str
    value: float
    remark: str


class Group(NamedTuple):
    """Bars with a title; the first of them is ours."""

    title: str
    bars: list[Bar]


def render(title: str, subtitle: str, groups: list[Group], source: str) -> str:
    """Return the chart; all bars have one scale."""
    most = max(bar.value for group in groups for bar in group.bars)
    parts: list[str] = []
    y = 62
    for group in groups:
        parts.append(_text(16, y + 13, group.title, "group"))
        y += 20
        for i, bar in enumerate(group.bars):
            width = max(LONGEST * bar.value / most, 1)
            kind = "peer" if i else "ours"
            parts.append(_text(LEFT - 8, y + 17, bar.name, anchor="end"))
            parts.append(
                f'<rect class="{kind}" x="{LEFT}" y="{y + 4}" width="{width:.1f}" '
                f'height="{ROW - 8}" rx="2"/>'
            )
            label = f"{bar.remark}   {number(bar.value)}" if bar.remark else number(bar.value)
            parts.append(_text(LEFT + width + 8, y + 17, label))
            y += ROW
        y += 10
    height = y + 24
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}" rx="6"/>',
        _text(16, 26, title, "title"),
        _text(16, 45, subtitle, "small"),
    ]
    return "\n".join([*head, *parts, _text(16, height - 12, source, "small"), "</svg>", ""])


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y}"{attributes} xml:space="preserve">{escape(text)}</text>'
