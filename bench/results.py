"""The results of a run: figures, comparisons, and the report of a part, all convertible to JSON."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any, Final

# Units in which less is better; in all other units more is.
LESS_IS_BETTER: Final = (
    "s",
    "ms",
    "µs",
    "ms/MiB",
    "µs/message",
    "µs/connection",
    "µs/row",
    "% of a core",
    "MiB",
    "KiB",
    "B",
)


@dataclass
class Figure:
    """A quantity measured several times: `values` in `unit`, one for each round."""

    case: str
    contender: str
    unit: str
    values: list[float]
    # The value that the project demands, or None.
    demand: float | None = None
    note: str = ""

    @property
    def median(self) -> float:
        """The median of the values, which tables show."""
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest value."""
        return min(self.values), max(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the demand is met; None if there is none."""
        if self.demand is None:
            return None
        return (
            self.median <= self.demand
            if self.unit in LESS_IS_BETTER
            else self.median >= self.demand
        )


@dataclass
class Comparison:
    """The ratio of our figure to that of `peer`: the median of the ratios of each round."""

    case: str
    ours: str
    peer: str
    ratio: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the demand is met; None if there is none."""
        if self.at_least is not None:
            return self.ratio >= self.at_least
        if self.at_most is not None:
            return self.ratio <= self.at_most
        return None


@dataclass
class Report:
    """The results of one part. `build` says which code ran, `failures` what went wrong."""

    part: str
    build: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def figure(self, case: str, contender: str, unit: str) -> Figure | None:
        """Return the figure with these names, None if there is none."""
        for figure in self.figures:
            if (figure.case, figure.contender, figure.unit) == (case, contender, unit):
                return figure
        return None

    def compare(
        self,
        case: str,
        ours: str,
        peer: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        unit: str = "operations/s",
    ) -> None:
        """Add the comparison of two figures of a case, unless one of them is missing."""
        a = self.figure(case, ours, unit)
        b = self.figure(case, peer, unit)
        if a is None or b is None:
            return
        ratio = statistics.median(x / y for x, y in zip(a.values, b.values, strict=True))
        self.comparisons.append(Comparison(case, ours, peer, ratio, at_least, at_most))

    def drop_demands(self) -> None:
        """Remove all demands: they apply to the compiled build only."""
        for figure in self.figures:
            figure.demand = None
        for comparison in self.comparisons:
            comparison.at_least = comparison.at_most = None

    def to_json(self) -> dict[str, Any]:
        """Return the report in the form for JSON, with medians and verdicts."""
        data = asdict(self)
        for row, figure in zip(data["figures"], self.figures, strict=True):
            row["median"] = figure.median
            row["met"] = figure.met
        for row, comparison in zip(data["comparisons"], self.comparisons, strict=True):
            row["met"] = comparison.met
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Report:
        """Return the report that `to_json` wrote."""
        figures = [
            Figure(**{k: v for k, v in row.items() if k not in ("median", "met")})
            for row in data["figures"]
        ]
        comparisons = [
            Comparison(**{k: v for k, v in row.items() if k != "met"})
            for row in data["comparisons"]
        ]
        return cls(**{**data, "figures": figures, "comparisons": comparisons})
