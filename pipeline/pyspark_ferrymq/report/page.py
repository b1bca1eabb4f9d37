"""A report: headings, figures, tables and plots in one HTML file, which includes Plotly, so that a
browser needs no network."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.errors import AmqpSourceError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Page:
    """A report page, built from top to bottom and then written.

    `subtitle` describes the input. All text is escaped.
    """

    def __init__(self, title: str, subtitle: str) -> None:
        self._title = title
        self._subtitle = subtitle
        self._parts: list[str] = []
        self._plots = 0

    def heading(self, text: str) -> None:
        """Add a heading."""
        self._parts.append(f"<h2>{_text(text)}</h2>")

    def paragraph(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{_text(text)}</p>")

    def facts(self, facts: Iterable[tuple[str, object]]) -> None:
        """Add the main figures, each with its name."""
        cards = "".join(_fact(name, shown(value)) for name, value in facts)
        self._parts.append(f"<div class=facts>{cards}</div>")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Add a table; numbers are aligned right."""
        head = "".join(f"<th>{_text(column)}</th>" for column in columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
        if not body:
            body = f"<tr><td colspan={len(columns)}>none</td></tr>"
        self._parts.append(
            f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            "</div>"
        )

    def plot(self, figure: Figure) -> None:
        """Add a Plotly figure."""
        self._plots += 1
        plot = figure.to_html(
            full_html=False,
            include_plotlyjs=False,
            div_id=f"plot-{self._plots}",
            config={"displaylogo": False, "responsive": True},
        )
        self._parts.append(f"<div class=plot>{plot}</div>")

    def write(self, path: Path, made: datetime) -> None:
        """Write the file, whole or not at all. Raises `AmqpSourceError` with the reason."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_text(self._html(made), "utf-8")
            temporary.replace(path)
        except OSError as error:
            raise AmqpSourceError(
                f"the report {str(path)!r} cannot be written: {error.strerror}"
            ) from None

    def _html(self, made: datetime) -> str:
        style = (files(__package__) / "page.css").read_text("utf-8")
        script = ""
        if self._plots:
            from plotly.offline import get_plotlyjs

            script = f"<script>{get_plotlyjs()}</script>"
        return (
            "<!doctype html><html lang=en><head><meta charset=utf-8>"
            "<meta name=viewport content='width=device-width, initial-scale=1'>"
            f"<title>{_text(self._title)}</title><style>{style}</style>{script}</head><body><main>"
            f"<h1>{_text(self._title)}</h1>"
            f"<p class=subtitle>{_text(self._subtitle)}<br>"
            f"made {made:%Y-%m-%d %H:%M} UTC</p>" + "".join(self._parts) + "</main></body></html>\n"
        )


_NUMBERS: Final = (int, float)
_LONG: Final = 12


def shown(value: object) -> str:
    """Format a value: thousands separated, times to the second, None as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(value)


def _fact(name: str, value: str) -> str:
    # A date is longer than a number and gets a smaller font.
    kind = " class=long" if len(value) > _LONG else ""
    return f"<div class=fact><b{kind}>{_text(value)}</b><span>{_text(name)}</span></div>"


def _cell(value: object) -> str:
    right = isinstance(value, _NUMBERS) and not isinstance(value, bool)
    return f"<td{' class=number' if right else ''}>{_text(shown(value))}</td>"


def _text(text: str) -> str:
    return html.escape(text)
