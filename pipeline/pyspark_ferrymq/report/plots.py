"""The plots of reports, with titles, units, and the same colour for an address in each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart.
_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a8a8a")

Points = Mapping[str, tuple[Sequence[object], Sequence[float | None]]]
"""The x values and the y values, by name."""


def lines(title: str, x: str, y: str, points: Points, *, log: bool = False) -> Figure:
    """Make a plot with a line for each name."""
    figure = _figure(title, x, y)
    import plotly.graph_objects as go

    for index, (name, (across, up)) in enumerate(sorted(points.items())):
        figure.add_trace(
            go.Scatter(
                x=list(across), y=list(up), name=name, mode="lines+markers",
                marker={"size": 5}, line={"color": _colour(index), "width": 2},
            )
        )  # fmt: skip
    if log:
        figure.update_yaxes(type="log", rangemode="normal", dtick="D2")
    return figure


def stacked(title: str, x: str, y: str, points: Points) -> Figure:
    """Make a bar chart over x in which the names are stacked."""
    import plotly.graph_objects as go

    figure = _figure(title, x, y)
    for index, (name, (across, up)) in enumerate(sorted(points.items())):
        figure.add_trace(
            go.Bar(x=list(across), y=list(up), name=name, marker={"color": _colour(index)})
        )
    figure.update_layout(barmode="stack", bargap=0.08)
    return figure


def bars(title: str, x: str, pairs: Iterable[tuple[str, float]]) -> Figure:
    """Make a chart with a horizontal bar for each name, the first on top."""
    import plotly.graph_objects as go

    pairs = list(pairs)
    figure = _figure(title, x, "")
    figure.add_trace(
        go.Bar(
            x=[value for _, value in pairs],
            y=[name for name, _ in pairs],
            orientation="h",
            marker={"color": _COLOURS[0]},
            text=[f"{value:,.0f}" for _, value in pairs],
            textposition="auto",
        )
    )
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(height=120 + 34 * max(3, len(pairs)), showlegend=False)
    return figure


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _figure(title: str, x: str, y: str) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "x": 0.01, "font": {"size": 16}},
        template="plotly_white",
        height=380,
        margin={"l": 60, "r": 20, "t": 60, "b": 50},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
        font={"family": "system-ui, sans-serif", "size": 13},
        hovermode="x unified",
    )
    figure.update_xaxes(title=x)
    figure.update_yaxes(title=y, rangemode="tozero")
    return figure
