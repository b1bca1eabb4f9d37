"""A pipeline of Spark Declarative Pipelines, as the page has it, run by Spark's own command."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.interop.broker_process import BrokerProcess
from tests.spark.connect_server import HOME, ConnectServer, environment
from tests.spark.kit import Streams
from tests.spark.sinking import messages_at
from tests.spark.test_pipelines_metrics import made_at

pytest.importorskip("grpc", reason="no packages of Declarative Pipelines")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "pipeline" / "declarative.md"


def written(folder: Path, broker: BrokerProcess) -> None:
    """Write the files of the page."""
    text = PAGE.read_text("utf-8")
    (spec,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    spec = spec.replace("/srv/pipelines/orders", str(folder / "storage"))
    # Records of the test have times of their own making.
    code = code.replace("amqp://localhost", broker.url).replace(
        'watermark="1 minute"', 'watermark="1 minute", by="created"'
    )
    (folder / "transformations").mkdir()
    (folder / "spark-pipeline.yml").write_text(spec, "utf-8")
    (folder / "transformations" / "orders.py").write_text(code, "utf-8")


def run(folder: Path, server: ConnectServer) -> None:
    """Run the pipeline; a server of its own would listen on a fixed port."""
    done = subprocess.run(
        [str(HOME / "bin" / "spark-pipelines"), "--remote", server.url, "run"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Run is COMPLETED" in done.stdout + done.stderr


def test_two_runs(broker: BrokerProcess, tmp_path: Path) -> None:
    with Streams(broker) as streams, ConnectServer(tmp_path) as server:
        streams.create("orders", 2)
        streams.create("totals")
        written(tmp_path, broker)
        streams.publish("orders", [made_at(i / 10, i) for i in range(50)])
        run(tmp_path, server)
        # Records until 12:04:54: until 12:03 windows are over.
        assert sent(broker) == [10, 10, 10]
        assert rows_of(tmp_path, "records") == 50
        streams.publish("orders", [made_at(20, 100)])
        run(tmp_path, server)
        assert sent(broker) == [10, 10, 10, 10, 10]
        assert rows_of(tmp_path, "records") == 51
        figures = pq.read_table(tmp_path / "warehouse" / "figures")
        assert sum(figures["messages"].to_pylist()) == 51


def sent(broker: BrokerProcess) -> list[int]:
    """The numbers of messages that the sink has sent, by window."""
    found = messages_at(broker.url, "totals", start="first")
    results = [json.loads(bytes(message.body)) for message in found]
    return [row["messages"] for row in sorted(results, key=lambda row: row["start"])]


def rows_of(folder: Path, table: str) -> int:
    """The number of rows in a table."""
    return pq.read_table(folder / "warehouse" / table).num_rows
