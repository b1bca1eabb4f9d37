"""On a cluster: what executors have not installed comes with the job, or Spark says what lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.cluster.standalone import Standalone
from tests.spark.cluster.trying import tried
from tests.spark.cluster.ways import by_files, submit


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.mark.slow
def test_sources_by_py_files(cluster: Standalone, tmp_path: Path) -> None:
    said = tried(cluster, by_files(tmp_path), tmp_path)
    # From the zip, and from nowhere else.
    assert "ferrymq.zip/pyspark_ferrymq" in said and "site-packages" not in said


@pytest.mark.slow
def test_python_without_the_package(tmp_path: Path) -> None:
    way = by_files(tmp_path)._replace(arguments=(), register=False)
    done = submit("local[1]", way, "amqp://127.0.0.1:1", tmp_path)
    assert done.returncode != 0
    assert "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: amqp" in done.stdout
