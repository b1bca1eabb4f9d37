"""What holds for every test: Hypothesis profiles, the build variant, missing optional peers."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.pages import PAGES

if TYPE_CHECKING:
    from collections.abc import Generator

    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

# No deadline anywhere: a shared machine would turn one into a random failure.
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", deadline=None, suppress_health_check=_QUIET)
# The same examples in every run, others on each build: `pytest_configure`.
settings.register_profile(
    "ci", deadline=None, suppress_health_check=_QUIET, database=None, print_blob=True
)
settings.register_profile(
    "fuzz", deadline=None, suppress_health_check=_QUIET, max_examples=1000, print_blob=True
)
settings.load_profile("dev")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what is to run in the background; some tests interrupt what they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_IMPORTS_PROTON = re.compile(r"^(?:from|import) c?proton\b", re.MULTILINE)
_SPARK = Path(__file__).parent / "spark"
# Their tests may take long: each goes where there is room, except in a file that starts something
# for all its tests.
_APART = tuple(
    f"tests/{name}/"
    for name in ("arrow", "codec", "codegen", "crash", "engine", "house", "simulation", "types")
)
# What these are about is never compiled: benchmarks, the generator, how the project is kept. Others
# say `once` themselves.
_ONCE = tuple(Path(__file__).parent / name for name in ("benchmarks", "codegen", "house"))
_LEFT_OUT = pytest.StashKey[list[str]]()


def running_variant() -> str:
    """`compiled` or `pure`: which of the two an import of the packages would give now."""
    try:
        spec = importlib.util.find_spec("ferrymq_codec.reader")
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise pytest.UsageError("ferrymq is not installed: run `make install`")
    return "pure" if spec.origin.endswith(".py") else "compiled"


@functools.cache
def spark_lacks() -> str:
    """What keeps Spark from running here; empty if nothing does."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if command is None:
        return "there is no Java, 17 or newer"
    done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', done.stderr)
    if found is None or int(found[1]) < 17:
        return f"Java is not 17 or newer: {done.stderr.splitlines()[:1]}"
    return ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--until",
        type=float,
        default=None,
        metavar="EPOCH",
        help="start no test after this time (seconds since the epoch); take them in random order",
    )
    parser.addoption(
        "--page",
        action="append",
        default=[],
        metavar="PAGE",
        help="run the tests of a page's promises, such as broker/queues: see tests/pages.py",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _deselect_other_pages(config, items)
    if config.getoption("--until") is not None:
        # Every process of a run has to find the same order.
        random.Random(str(config.getoption("--hypothesis-seed", None))).shuffle(items)


def _deselect_other_pages(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = {page.removeprefix("docs/").removesuffix(".md") for page in config.getoption("--page")}
    unknown = wanted - set(PAGES)
    if unknown:
        raise pytest.UsageError(f"no page, or none with tests: {', '.join(sorted(unknown))}")
    if not wanted:
        return
    others: list[pytest.Item] = []
    chosen: list[pytest.Item] = []
    for item in items:
        pages = {page for marker in item.iter_markers("page") for page in marker.args}
        (others if wanted.isdisjoint(pages) else chosen).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=others)


@functools.cache
def _pages_of(path: Path) -> list[str]:
    """The pages whose promises a module holds, by the table."""
    try:
        name = path.relative_to(Path(__file__).parent).as_posix()
    except ValueError:
        return []
    return [
        page
        for page, places in PAGES.items()
        if any(name.startswith(place) if place.endswith("/") else name == place for place in places)
    ]


@functools.cache
def _markers_of(path: Path) -> list[pytest.MarkDecorator]:
    """The markers that all tests of a module get."""
    pages = _pages_of(path)
    markers = [pytest.mark.page(*pages)] if pages else []
    if any(path.is_relative_to(folder) for folder in _ONCE):
        markers.append(pytest.mark.once)
    return markers


def pytest_itemcollected(item: pytest.Item) -> None:
    for marker in _markers_of(item.path):
        item.add_marker(marker)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, which would look at all modules and tests again and
    again. They stay until the end: it need not look at them later either."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """With `--dist loadgroup`, tests with Spark go to one process, and first: they are the largest
    group. Those of another file go to one process, which starts its broker once; then come tests
    that share nothing. xdist's own groups are names at the end of a test's, which pytest 9.2 passes
    over."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith("tests/spark/"):
                return "spark"
            file = nodeid.partition("::")[0]
            return nodeid if nodeid.startswith(_APART) and not _shares(file) else file

        def mark_test_complete(
            self, node: WorkerController, item_index: int, duration: float = 0
        ) -> None:
            super().mark_test_complete(node, item_index, duration)
            # After each test, all groups of its process are counted: forget those that are over.
            groups = self.assigned_work[node]
            group = self._split_scope(self.registered_collections[node][item_index])
            if all(groups[group].values()):
                del groups[group]

    return ByFile(config, log) if config.getvalue("dist") == "loadgroup" else None


@functools.cache
def _shares(file: str) -> bool:
    """Return whether the tests of a file share a fixture."""
    return 'scope="module"' in (Path(__file__).parent.parent / file).read_text("utf-8")


def pytest_runtest_setup(item: pytest.Item) -> None:
    until = item.config.getoption("--until")
    if until is not None and time.time() > until:
        pytest.skip("the time for this run is over")


# Before Hypothesis, which takes the seed from there.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-profile") == "ci":
        if config.getoption("--hypothesis-seed") is None:
            config.option.hypothesis_seed = 1 if running_variant() == "pure" else 2
    config.stash[_LEFT_OUT] = []
    wanted = os.environ.get("FERRYMQ_BUILD")
    if wanted and wanted != running_variant():
        raise pytest.UsageError(
            f"this run is for the {wanted} build, but the {running_variant()} one would be imported"
        )


def pytest_report_header() -> str:
    return f"ferrymq: {running_variant()} build"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what is missing here, and say so at the end: Proton, Java for Spark."""
    if collection_path == _SPARK and spark_lacks():
        config.stash[_LEFT_OUT].append(f"tests/spark: {spark_lacks()}")
        return True
    if collection_path.suffix != ".py" or importlib.util.find_spec("proton") is not None:
        return None
    if not _IMPORTS_PROTON.search(collection_path.read_text("utf-8")):
        return None
    config.stash[_LEFT_OUT].append(f"{collection_path.name}: python-qpid-proton is not installed")
    return True


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in sorted(set(config.stash[_LEFT_OUT])):
        terminalreporter.write_line(f"left out, {line}")
