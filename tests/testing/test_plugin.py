"""The plugin of pytest, in runs of pytest of its own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PLUGIN = ("-p", "ferrymq_pytest", "-p", "no:cacheprovider")
ROOT = Path(__file__).resolve().parents[2]


def test_fixtures_give_a_broker_with_the_nodes_of_the_markers(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from ferrymq import Message, blocking

        pytestmark = pytest.mark.ferrymq(queues=["shared"])

        @pytest.mark.ferrymq(queues=[{"name": "late", "message-ttl": "30s"}])
        def test_clock(ferrymq_broker, ferrymq_url):
            with blocking.connect(ferrymq_url) as connection:
                connection.sender("late").send(Message(body="milk"))
            ferrymq_broker.queue("shared").assert_empty()
            ferrymq_broker.queue("late").assert_bodies("milk")
            ferrymq_broker.clock.advance(30)
            ferrymq_broker.queue("late").assert_empty()

        @pytest.mark.parametrize("number", range(3))
        def test_isolated(ferrymq_host, number):
            with blocking.connect(ferrymq_host.url) as connection:
                connection.sender("shared").send(Message(body=number))
            ferrymq_host.queue("shared").assert_bodies(number)

        @pytest.mark.ferrymq(config={"nodes": {"auto-create": False}})
        def test_config(ferrymq_broker):
            with blocking.connect(ferrymq_broker.url) as connection:
                with pytest.raises(Exception, match="not-found"):
                    connection.sender("unknown").send(Message(body="one"))
        """)
    pytester.runpytest_subprocess(*PLUGIN, "--strict-markers").assert_outcomes(passed=5)


def test_asyncio_tests_use_the_same_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import asyncio
        import ferrymq

        def test_asyncio(ferrymq_broker):
            async def run():
                async with ferrymq.connect(ferrymq_broker.url) as connection:
                    sender = await connection.sender("orders")
                    await sender.send(ferrymq.Message(body="one"))
                await ferrymq_broker.queue("orders").until_count(1)
            asyncio.run(run())
        """)
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)


def test_a_wrong_argument_of_the_marker_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.ferrymq(queue=["orders"])
        def test_it(ferrymq_broker):
            pass
        """)
    result = pytester.runpytest_subprocess(*PLUGIN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*unknown argument 'queue'*"])


def test_without_the_broker_the_fixture_says_what_to_install(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys; sys.modules['structlog'] = None")
    pytester.makepyfile("def test_it(ferrymq_broker): pass")
    result = pytester.runpytest_subprocess(*PLUGIN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*pip install 'ferrymq?broker?'*"])


def test_a_run_that_does_not_use_it_imports_nothing_of_ferrymq() -> None:
    program = """
import sys
import pytest
before = set(sys.modules)
import ferrymq_pytest
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(name for name in new if name.startswith("ferrymq")), len(new))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "['ferrymq_pytest'] 1"


def test_the_wheel_names_the_plugin_and_has_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    entries = project["project"]["entry-points"]["pytest11"]
    assert entries == {"ferrymq_pytest": "ferrymq_pytest"}
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert "runtime/ferrymq_pytest" in packages
