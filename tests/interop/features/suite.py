"""A list of features and clients: the run, its expected results, and the page about it.

A `Suite` names the features, the clients and the page. Its command line has `run`, which writes
the results, and `page`, which writes the page from them.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from tests.interop.features.client_process import ROOT, Outcome

_MARKS: Final = {"passed": "✓", "failed": "✗", "absent": "–"}


class TriedFeature(Protocol):
    """A feature: `row` is the line of the page, `family` its table."""

    @property
    def name(self) -> str: ...
    @property
    def row(self) -> str: ...
    @property
    def family(self) -> str: ...


class TriedClient(Protocol):
    """A client: `title` is the head of its column, `features` what is tried with it."""

    @property
    def key(self) -> str: ...
    @property
    def package(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def features(self) -> Sequence[Any]: ...
    def missing(self) -> str:
        """Return why the client cannot be run here; empty if it can."""


class Player(Protocol):
    """Object that tries features with its client."""

    def play(self, feature: Any, /) -> Outcome:
        """Try a feature, and return what came of it."""


@dataclass(frozen=True)
class Expectations:
    """The expected result of each feature with each client: what fails, and what is absent.

    A feature that is not listed works. `fails` is by package or by client, and by feature: a
    pattern of the error. `absent` is by package; None: a client may lack any feature.
    """

    fails: Mapping[str, Mapping[str, str]]
    absent: Mapping[str, frozenset[str]] | None

    def judge(self, client: TriedClient, name: str, outcome: Outcome) -> str:
        """Return what is unexpected about an outcome; empty if it is as expected."""
        if self.absent is None and outcome.verdict == "absent":
            return ""
        absent = name in (self.absent or {}).get(client.package, frozenset())
        if absent != (outcome.verdict == "absent"):
            return "expected to be absent" if absent else "not expected to be absent"
        if absent:
            return ""
        pattern = self.expected(client, name)
        if pattern is None:
            return outcome.error
        if outcome.verdict == "passed":
            return f"it works, and is expected to fail: {pattern}"
        return "" if re.search(pattern, outcome.error) else outcome.error

    def expected(self, client: TriedClient, name: str) -> str | None:
        """Return a pattern of the error that is expected; None if the feature works."""
        of_package = self.fails.get(client.package, {})
        return self.fails.get(client.key, {}).get(name, of_package.get(name))


@dataclass(frozen=True)
class Suite:
    """Features and clients, and the page of the results: `folder` has the text and the results."""

    module: str
    folder: Path
    page: Path
    features: Sequence[TriedFeature]
    clients: Mapping[str, Any]
    expectations: Expectations
    runner: Callable[[Any], AbstractContextManager[Player]]

    @property
    def _path(self) -> Path:
        return self.folder / "results.json"

    def results(self) -> dict[str, Any]:
        """Return the results that there are, by client."""
        if not self._path.exists():
            return {}
        found: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
        return found

    # ── Running ──

    def surprises(
        self, clients: Iterable[TriedClient], chosen: Callable[[Any, Any], bool]
    ) -> list[str]:
        """Try the chosen features with these clients at the same time; return what is unexpected.

        Most clients sleep most of the time.
        """

        def of_one(client: TriedClient) -> list[str]:
            found = []
            with self.runner(client) as runner:
                for feature in client.features:
                    if chosen(client, feature):
                        outcome = runner.play(feature)
                        if surprise := self.expectations.judge(client, feature.name, outcome):
                            found.append(f"{client.title}: {feature.name}: {surprise}")
            return found

        clients = list(clients)
        with ThreadPoolExecutor(len(clients)) as pool:
            return [surprise for found in pool.map(of_one, clients) for surprise in found]

    def run(self, client: TriedClient, names: Sequence[str]) -> tuple[dict[str, Any], int]:
        """Try the features with a client, and print what comes of each.

        Return the results by feature, and the number of those that are not as expected.
        """
        found: dict[str, Any] = {}
        unexpected = 0
        start = time.monotonic()
        print(client.title, flush=True)
        with self.runner(client) as runner:
            for feature in client.features:
                if names and feature.name not in names:
                    continue
                outcome = runner.play(feature)
                surprise = self.expectations.judge(client, feature.name, outcome)
                unexpected += bool(surprise)
                mark = "unexpected" if surprise else ""
                text = f"{outcome.seconds:6.2f} {outcome.verdict:7} {feature.name:24} {mark:10}"
                print(f"{text} {surprise or outcome.error}".rstrip(), flush=True)
                found[feature.name] = {"verdict": outcome.verdict, "error": outcome.error}
        print(f"{client.title}: {time.monotonic() - start:.1f} s", flush=True)
        return found, unexpected

    def parser(self, doc: str | None) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
        """Return the parser of the command line, and that of `run`."""
        parser = argparse.ArgumentParser(f"python -m {self.module}", description=doc)
        commands = parser.add_subparsers(dest="command", required=True)
        running = commands.add_parser("run", help="try the features")
        running.add_argument("--client", action="append", default=[], choices=list(self.clients))
        running.add_argument("--case", action="append", default=[], help="only this; no results")
        commands.add_parser("page", help=f"write {self.page.name}")
        return parser, running

    def main(self, arguments: argparse.Namespace, *, keep: bool = True) -> int:
        """Do what the command line says; return the exit status. `keep`: write the results."""
        if arguments.command == "page":
            self.page.write_text(self.text(self.results()), "utf-8")
            return 0
        unexpected = 0
        for key in arguments.client or list(self.clients):
            client = self.clients[key]
            if reason := client.missing():
                print(f"{client.title}: left out, {reason}")
                continue
            found, more = self.run(client, arguments.case)
            unexpected += more
            if keep and not arguments.case:
                date = datetime.now(UTC).date().isoformat()
                # Another run may have written results of other clients in the meantime.
                results = self.results()
                results[key] = {"version": client.version, "date": date, "cases": found}
                text = json.dumps(results, indent=1, sort_keys=True) + "\n"
                self._path.write_text(text, "utf-8")
        return 1 if unexpected else 0

    # ── The page ──

    def text(self, results: Mapping[str, Any]) -> str:
        """Return the page for the results of runs, by client.

        In its text, `{{FAMILY}}` is a table, `{{failures}}` what failed, `{{runs}}` the dates.
        """
        families = {feature.family for feature in self.features}
        parts = {family: self._table(family, results) for family in families}
        parts["failures"] = self._failures(results)
        parts["runs"] = self._runs(results)
        text = (self.folder / "page.md").read_text("utf-8")
        return re.sub(r"\{\{([\w-]+)\}\}", lambda found: parts[found[1]], text)

    def _clients(self, results: Mapping[str, Any]) -> list[TriedClient]:
        return [client for key, client in self.clients.items() if key in results]

    def _table(self, family: str, results: Mapping[str, Any]) -> str:
        clients = [client for client in self._clients(results) if client.family == family]
        lines = ["| |" + "".join(f" {client.title} |" for client in clients)]
        lines.append("|---|" + "---|" * len(clients))
        for feature in self.features:
            if feature.family == family:
                cells = [_cell(results[client.key]["cases"], feature.name) for client in clients]
                lines.append(f"| {feature.row} |" + "".join(f" {cell} |" for cell in cells))
        return "\n".join(lines)

    def _failures(self, results: Mapping[str, Any]) -> str:
        lines: list[str] = []
        for feature in self.features:
            told: dict[str, list[str]] = {}
            for client in self._clients(results):
                case = results[client.key]["cases"].get(feature.name, {})
                if case.get("verdict") == "failed":
                    told.setdefault(_quoted(case["error"]), []).append(client.title)
            for error, titles in told.items():
                lines.append(f"| {feature.row} | {'; '.join(titles)} | {error} |")
        if not lines:
            return "Nothing failed."
        return "\n".join(["| | client | error |", "|---|---|---|", *lines])

    def _runs(self, results: Mapping[str, Any]) -> str:
        runs = [f"{each.title} on {results[each.key]['date']}" for each in self._clients(results)]
        return textwrap.fill(f"Runs: {'; '.join(runs)}.", 116, break_on_hyphens=False)

    # ── What tests of a suite check ──

    def check_expectations(self) -> None:
        """Raise AssertionError if an expectation names no feature or no client."""
        names = {feature.name for feature in self.features}
        packages = {client.package for client in self.clients.values()}
        fails, absent = self.expectations.fails, self.expectations.absent or {}
        assert len(names) == len(self.features), "two features have one name"
        assert set(fails) <= {*self.clients, *packages}
        assert set(absent) <= packages
        for each in (*fails.values(), *absent.values()):
            assert set(each) <= names

    def check_page(self) -> None:
        """Raise AssertionError if the page is not that of the results, or a feature lacks one."""
        results = self.results()
        page = self.page.read_text("utf-8")
        assert page == self.text(results), f"run: python -m {self.module} page"
        for key, client in self.clients.items():
            cases = set(results[key]["cases"])
            assert cases == {each.name for each in client.features}, f"run the features with {key}"


def _cell(cases: Mapping[str, Any], name: str) -> str:
    return _MARKS[cases[name]["verdict"]] if name in cases else ""


def _quoted(error: str) -> str:
    """Return an error as code for a table, without what differs from run to run."""
    error = re.sub(r"localhost:\d+", "localhost", error).replace("|", "\\|").replace("`", "'")
    return "`" + (error if len(error) <= 160 else error[:160] + "…") + "`"


def page_of(name: str) -> Path:
    """Return the path of a page about the broker."""
    return ROOT / "docs/broker" / name
