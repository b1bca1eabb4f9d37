"""The files of examples/deploy/: each is read by the program it is for, where that is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from ferrymq_broker.cli.app import make_app
from ferrymq_broker.config import load_config
from tests.broker.test_process import serve

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"
DASHBOARD: Any = json.loads((DEPLOY / "grafana" / "ferrymq.json").read_text("utf-8"))
RULES = DEPLOY / "prometheus" / "ferrymq.rules.yml"

# None of these files is compiled.
pytestmark = pytest.mark.once


def installed(program: str) -> None:
    """Skip the test if a program is not here."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def run(*command: str | Path) -> str:
    """Return what a command prints. It must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def queries() -> list[str]:
    """Return the queries of the dashboard's panels, with values for its variables."""
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    assert len(found) > 30
    values = {"$__rate_interval": "5m", "$instance": ".*", "$virtual_host": ".*"}
    for name, value in values.items():
        found = [query.replace(name, value) for query in found]
    return found


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """The metrics of a broker that has all of them, each with its labels."""
    folder = tmp_path_factory.mktemp("broker")
    config = folder / "broker.toml"
    config.write_text(f"""
        [store]
        path = "{folder / 'data'}"
        [capture]
        directory = "{folder / 'captured'}"
        [[queue]]
        name = "orders"
        """)
    arguments = ["--listen", "amqp://127.0.0.1:0", "--http", "http://127.0.0.1:0"]
    with serve("--config", str(config), *arguments) as (_, lines):
        url = next(line.split()[1] for line in lines if line.startswith("monitoring "))
        found: dict[str, set[str]] = {"up": set()}
        for path in ("/metrics", "/metrics/nodes"):
            with urllib.request.urlopen(url + path) as answer:
                text = answer.read().decode()
            for name, labels in re.findall(r"^([a-z]\w*)(?:\{(.*)\})? ", text, re.MULTILINE):
                found.setdefault(name, set()).update(re.findall(r"(\w+)=\"", labels))
            # Some have no samples yet, as long as no alarm is on and no stream is captured.
            for name in re.findall(r"^# TYPE (\w+) (?:gauge|counter)", text, re.MULTILINE):
                found.setdefault(name, set())
        yield found


def test_queries_name_metrics_and_labels_of_the_broker(metrics: dict[str, set[str]]) -> None:
    rules = re.findall(r"expr: (.*)", RULES.read_text("utf-8"))
    variables = [each["query"] for each in DASHBOARD["templating"]["list"][1:]]
    for query in [*queries(), *rules, *variables]:
        named = re.findall(r"\b((?:ferrymq|process|python)_\w+|up)\b(?:\{([^}]*)\})?", query)
        assert named, query
        for name, selectors in named:
            assert name in metrics, f"{name}: {query}"
            labels = set(re.findall(r"(\w+)=~?\"", selectors)) - {"job", "instance"}
            assert labels <= metrics[name], query


def test_rules_are_in_order_and_do_what_they_say(tmp_path: Path) -> None:
    installed("promtool")
    run("promtool", "check", "rules", RULES)
    run("promtool", "test", "rules", RULES.with_name("ferrymq.rules.test.yml"))
    scrape = RULES.with_name("ferrymq.scrape.yml")
    run("promtool", "check", "config", "--syntax-only", scrape)
    lines = ["groups:", "- name: dashboard", "  rules:"]
    for number, query in enumerate(queries()):
        lines += [f"  - record: panel:{number}", f"    expr: {json.dumps(query)}"]
    (tmp_path / "dashboard.yml").write_text("\n".join(lines))
    run("promtool", "check", "rules", tmp_path / "dashboard.yml")


def test_the_panels_of_the_dashboard_lie_beside_each_other() -> None:
    taken: dict[tuple[int, int], str] = {}
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_the_unit_is_in_order_and_gives_few_rights(tmp_path: Path) -> None:
    installed("systemd-analyze")
    unit = tmp_path / "ferrymq.service"
    text = (DEPLOY / "systemd" / "ferrymq.service").read_text("utf-8")
    start = re.search(r"^ExecStart=/opt/ferrymq/bin/ferrymq (.*)$", text, re.MULTILINE)
    assert start is not None
    # The broker is not installed there.
    unit.write_text(text.replace("/opt/ferrymq/bin/ferrymq", "/bin/true"))
    assert "ferrymq.service" not in run("systemd-analyze", "verify", "--man=no", unit)
    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    level = re.search(r"exposure level for ferrymq\.service: ([0-9.]+)", said)
    assert level is not None
    assert float(level[1]) <= 2.0
    # The command line is one.
    command: Any = typer.main.get_command(make_app())
    context = command.make_context("ferrymq", start[1].split())
    _, serve_command, rest = command.resolve_command(context, start[1].split())
    assert serve_command.make_context("serve", rest).params["config"] == Path(
        "/etc/ferrymq/ferrymq.toml"
    )


def test_user_and_folders_are_made(tmp_path: Path) -> None:
    installed("systemd-sysusers")
    installed("systemd-tmpfiles")
    (tmp_path / "etc").mkdir()
    for program, name in (("systemd-sysusers", "sysusers"), ("systemd-tmpfiles", "tmpfiles")):
        options = ["--create"] if name == "tmpfiles" else []
        run(program, f"--root={tmp_path}", *options, DEPLOY / "systemd" / f"ferrymq.{name}")
    assert "ferrymq:" in (tmp_path / "etc" / "passwd").read_text()
    for folder in ("etc/ferrymq", "var/lib/ferrymq"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize(
    "name", ["ferrymq.toml", "container/ferrymq.toml", "replicated/ferrymq.toml"]
)
def test_the_configurations_are_in_order(name: str, tmp_path: Path) -> None:
    config = load_config(DEPLOY / name)
    assert config.store.path == Path("/var/lib/ferrymq")
    assert config.http.url == "http://127.0.0.1:15692"
    # With the lines that are comments, too.
    text = (DEPLOY / name).read_text("utf-8")
    text = re.sub(r"^# ?(\[|\w[\w-]* = )", r"\1", text, flags=re.MULTILINE)
    (tmp_path / "all.toml").write_text(text)
    assert load_config(tmp_path / "all.toml").security.users_file == Path("/etc/ferrymq/users.json")


def test_the_members_in_containers_have_a_configuration_in_order(tmp_path: Path) -> None:
    text = (DEPLOY / "replicated" / "compose.yml").read_text("utf-8")
    found = re.search(r"<<END\n(.*?)^ *END$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    (tmp_path / "member.toml").write_text(found[1].replace("$$ADVERTISE", "amqp://one"))
    assert load_config(tmp_path / "member.toml").replication.is_on


def test_the_container_copies_what_is_there() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text("utf-8")
    for path in re.findall(r"^COPY (?!--from)(?:--\S+ )?(\S+) ", text, re.MULTILINE):
        assert path.startswith("dist/") or (ROOT / path).exists(), path
    assert re.search(r"^USER ferrymq$", text, re.MULTILINE)
    check = re.search(r"^    CMD (\[.*\])$", text, re.MULTILINE)
    assert check is not None
    compile(json.loads(check[1])[2], "HEALTHCHECK", "exec")
