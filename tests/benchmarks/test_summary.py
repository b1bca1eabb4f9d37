"""README.md has the figures of docs/performance.md and no others, and all are from one run."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import foreign, markdown, summary
from bench.results import Figure, Report

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"
README = (ROOT / "README.md").read_text("utf-8")


def broker() -> Report:
    made = Report("broker")
    for case, ours in (("100 B, unsettled", 900_000.0), ("1 KiB, unsettled", 300_000.0)):
        made.figures += [
            Figure(case, "ferrymq", "messages/s", [ours]),
            Figure(case, "ferrymq, broker's processor time", "µs/message", [1.5]),
            Figure(case, "Slow", "messages/s", [30_000.0]),
            Figure(case, "Known & fast", "messages/s", [60_000.0]),
        ]
        for peer in ("Slow", "Known & fast"):
            made.compare(case, "ferrymq", peer, unit="messages/s")
    return made


def latency() -> Report:
    made = Report("latency")
    case = "pre-settled, back to back, p50"
    made.figures = [Figure(case, "ferrymq", "µs", [15.0]), Figure(case, "TCP echo", "µs", [10.0])]
    made.compare(case, "ferrymq", "TCP echo", unit="µs")
    return made


def document(*runs: tuple[str, Report]) -> str:
    """A page with reports, each from the run that began at the time."""
    text = "".join(
        markdown.render({"date": date, "machine": {"cores": "2"}, "reports": [report.to_json()]})
        for date, report in runs
    )
    return f"{markdown.BEGIN}\n{text}\n{markdown.END}\n"


def test_readme_has_the_figures_of_the_page() -> None:
    parts = summary.parse(PAGE.read_text("utf-8"))
    shown = README.partition(summary.BEGIN)[2].partition(summary.END)[0].strip()
    assert shown == summary.table(parts), "run `python -m bench --readme`"
    for name, picture in summary.pictures(parts).items():
        assert PAGE.with_name(f"performance{name}.svg").read_text("utf-8") == picture


def test_readme_has_no_other_figures() -> None:
    before, _, rest = README.partition(summary.BEGIN)
    text = before + rest.partition(summary.END)[2]
    assert not re.search(r"×|µs|\bMiB\b|\d (messages|rows|records) (a|per) second", text)


def test_a_row_begins_with_the_ratio_and_peers_are_in_the_order_of_their_rates() -> None:
    day = "2026-01-02 03:04 UTC"
    text = summary.table(summary.parse(document((day, broker()), (day, latency()))))
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    assert rows[0] == (
        "| through a queue, 100 B, every outcome awaited | × 15.0 the rate | 900 000 messages/s "
        "| Known & fast: 60 000 messages/s |"
    )
    assert rows[1] == "|  | × 30.0 the rate | 900 000 messages/s | Slow: 30 000 messages/s |"
    assert "| × 1.50 the time | 15.0 µs | a uvloop TCP echo: 10.0 µs |" in rows[4]
    assert f"All figures of this table are from one run, measured {day} on: cores 2." in text


def test_figures_of_another_run_are_left_out() -> None:
    runs = ("2026-01-02 03:04 UTC", broker()), ("2026-01-02 04:05 UTC", latency())
    text = summary.table(summary.parse(document(*runs)))
    assert "TCP echo" not in text
    assert "Not measured in this run, and so not in this table: " in text and "Latency" in text


def test_the_chart_has_every_broker_with_its_ratio() -> None:
    picture = summary.pictures(summary.parse(document(("2026-01-02 03:04 UTC", broker()))))[""]
    texts = [node.text or "" for node in ElementTree.fromstring(picture).iter() if node.text]
    assert "Known & fast" in texts and "ferrymq × 15.0   60 000" in texts
    bars = re.findall(r'class="(ours|peer)" x="\d+" y="\d+" width="([\d.]+)"', picture)
    assert [kind for kind, _ in bars] == ["ours", "peer", "peer"] * 2
    widths = [float(width) for _, width in bars]
    assert widths[0] == pytest.approx(15 * widths[1], abs=1)
    assert widths[0] == pytest.approx(3 * widths[3], abs=1), "both groups have one scale"
    assert not re.search(r"<script|href|@import|url\(", picture)


def test_the_charts_are_those_with_figures() -> None:
    day = "2026-01-02 03:04 UTC"
    assert set(summary.pictures(summary.parse(document((day, broker()))))) == {"", "-processor"}
    made = summary.pictures(summary.parse(document((day, broker()), (day, latency()))))
    assert "ferrymq × 1.50   10.0" in made["-latency"] and "TCP echo" in made["-latency"]


def test_the_command_that_writes_the_page_writes_readme_and_the_chart(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "performance.md"
    page.write_text(document(("2026-01-02 03:04 UTC", broker())), "utf-8")
    assert not summary.write(page), "no README.md"
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{summary.BEGIN}\nold\n{summary.END}\nafter\n", "utf-8")
    assert summary.write(page)
    text = readme.read_text("utf-8")
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "× 15.0 the rate" in text
    assert page.with_suffix(".svg").read_text("utf-8").startswith("<svg ")


def test_a_peer_has_the_address_that_its_url_names() -> None:
    plain = foreign.given("One=amqp://127.0.0.1:5000")
    assert (plain.name, plain.url, plain.address) == ("One", "amqp://127.0.0.1:5000", "bench")
    other = foreign.given("Two 4.0=amqp://127.0.0.1:5001/queues/bench")
    assert (other.url, other.address) == ("amqp://127.0.0.1:5001", "/queues/bench")
