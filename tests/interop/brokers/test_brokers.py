"""The client with brokers that others wrote: each case of the list, on each broker that is here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.brokers.__main__ import run_on
from tests.interop.brokers.cases import CASES, QUEUES, STREAMS, Case, play
from tests.interop.brokers.expectations import EXPECTED, expected, judge
from tests.interop.brokers.page import PAGE, TEXT, rows
from tests.interop.brokers.sites import KNOWN, RunningSite, Site

pytestmark = pytest.mark.interop


class Sites:
    """The broker that the cases run on now; asked for another one, it ends the first."""

    def __init__(self) -> None:
        self._site: Site | None = None

    def start(self, key: str) -> Site:
        """Return the broker, started for its first case; skip the test where there is none."""
        if self._site is None or self._site.key != key:
            known = KNOWN[key]
            if reason := known.missing():
                pytest.skip(f"{known.title}: {reason}")
            self.close()
            self._site = known.start(key, QUEUES, STREAMS)
        return self._site

    def close(self) -> None:
        """End the broker."""
        if self._site is not None:
            self._site.close()
            self._site = None


@pytest.fixture(scope="session")
def sites() -> Iterator[Sites]:
    """Object that starts brokers, each once if their cases follow each other."""
    sites = Sites()
    yield sites
    sites.close()


def _trials() -> Iterator[object]:
    for key, known in KNOWN.items():
        for case in CASES:
            if case.on(key):
                # What only `make foreign` gets takes its time there.
                slow = known.foreign or case.extra or expected(key, case.name).slow
                marks = [pytest.mark.slow] if slow else []
                yield pytest.param(key, case, id=f"{key}-{case.name}", marks=marks)


@pytest.mark.parametrize(("key", "case"), list(_trials()))
def test_case(sites: Sites, key: str, case: Case) -> None:
    site = sites.start(key)
    before = len(site.log)
    error = play(case, site).error
    verdict = judge(site.key, case.name, error)
    what = expected(site.key, case.name)
    assert verdict != "unexpected", (
        f"{case.what}\nexpected: {what.kind} {what.text}\ngot: {error or 'it works'}\n"
        f"{site.log[before:][-4000:]}"
    )


def test_a_broker_that_runs_already(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["send", "blocking-outcomes", "plain-wrong", "killed"]
    with (
        KNOWN["ferrymq"].start("ferrymq", [], []) as site,
        RunningSite(site.url(), "here.{}") as running,
    ):
        cases = run_on(running, names)
    verdicts = {name: case["verdict"] for name, case in cases.items()}
    assert verdicts.pop("killed") == "unexpected"
    assert set(verdicts.values()) == {"works"} and len(verdicts) == 3
    assert "does not restart" in capsys.readouterr().out


def test_expectations_name_cases() -> None:
    names = {case.name for case in CASES}
    assert len(names) == len(CASES), "two cases have one name"
    assert set(EXPECTED) <= set(KNOWN)
    for key, cases in EXPECTED.items():
        assert set(cases) <= names, key


def test_page_has_the_list_and_the_text() -> None:
    page = PAGE.read_text("utf-8")
    again = "run: python -m tests.interop.brokers --markdown run"
    for row in rows():
        assert f"| {row} |" in page, again
    for paragraph in TEXT.read_text("utf-8").split("\n\n"):
        assert "{{" in paragraph or paragraph in page, again
