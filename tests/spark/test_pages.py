"""The Python on pages about the pipeline runs as it is written, except for the places it names."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ferrymq import Message, blocking
from tests.interop.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [f"pipeline/{page.stem}" for page in sorted((DOCS / "pipeline").glob("*.md"))]
# The page says that the broker answers like Event Hubs, and how.
HUB = re.search(r"```toml\n(.*?)```", (DOCS / "pipeline/foreign.md").read_text("utf-8"), re.DOTALL)
STREAMS = ("orders", "totals", "demo.orders", "demo.payments", "demo.positions")
QUEUES = ("orders.dead", "payments.dead", "demo.parcels", "demo.parcels.dead", "work")
# Blocks that need more than a broker: `test_capture_readers.py`, `test_declarative_pipelines.py`.
ELSEWHERE = ('"/srv/capture/orders', "'/srv/capture/orders", "import pipelines")
BLOCKS = [
    pytest.param(code, id=f"{page}-{number}", marks=pytest.mark.page(page))
    for page in PAGES
    for number, code in enumerate(
        re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text("utf-8"), re.S)
    )
    if not any(mark in code for mark in ELSEWHERE)
]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    assert HUB is not None
    # With a key, everything that no rule allows is refused.
    rule = """[[rule]]\nwho = "*"\nmay = "*"\nwhere = "*"\n"""
    tables = [rule, *(f'[[stream]]\nname = "{name}"\n' for name in STREAMS)]
    tables += [f'[[queue]]\nname = "{name}"\n' for name in QUEUES]
    with BrokerProcess("\n".join([HUB[1], *tables])) as process:
        with blocking.connect(process.url) as connection:
            for name in (*STREAMS, *QUEUES):
                connection.sender(name).send_many(
                    [Message(b"%d" % n, subject="eu.fr", durable=True) for n in range(6)]
                )
        yield process


def here(code: str, broker: BrokerProcess, folder: Path) -> str:
    """The code of a page, with the broker and a folder of the test."""
    code = re.sub(r"amqps?://(localhost|(broker|a|b)\.example)", broker.url, code)
    code = re.sub(r'"/(srv|etc|checkpoints)/', f'"{folder}/', code)
    # That broker has no users; `test_source_credentials.py` is about them.
    code = re.sub(r' *\.option\("(username|passwordFile)", [^\n]*\n', "", code)
    # Nobody waits for the next batch; and a query would go on for ever.
    code = code.replace('processingTime="5 minutes"', 'processingTime="1 second"')
    return code.replace("query.awaitTermination()", "query.processAllAvailable()")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("code", BLOCKS)
def test_it_runs(
    code: str,
    spark: SparkSession,
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pyspark_ferrymq

    monkeypatch.chdir(tmp_path)
    checkpoint_of_kafka(tmp_path / "of-kafka")
    key = re.search(r'primary = "(.*)"', HUB[1] if HUB else "")
    assert key is not None
    monkeypatch.setenv(
        "EVENT_HUBS",
        f"Endpoint=sb://127.0.0.1:{broker.port}/;SharedAccessKeyName=shop;"
        f"SharedAccessKey={key[1]};UseDevelopmentEmulator=true",
    )
    pyspark_ferrymq.register(spark)
    before = {name: spark.conf.get(name, None) for name in CHANGED}
    module = types.ModuleType("page")
    vars(module)["spark"] = spark
    try:
        exec(compile(here(code, broker, tmp_path), "page.md", "exec"), vars(module))
        for name, function in list(vars(module).items()):
            if inspect.isfunction(function) and function.__module__ == "page":
                function(rows(spark, broker, function, streaming="once" not in name))
        for query in spark.streams.active:
            query.processAllAvailable()
            assert query.exception() is None
    finally:
        for query in spark.streams.active:
            query.stop()
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


CHANGED = (
    "spark.sql.shuffle.partitions",
    "spark.sql.execution.arrow.maxBytesPerBatch",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
)


def rows(
    spark: SparkSession, broker: BrokerProcess, function: Callable[..., None], *, streaming: bool
) -> DataFrame:
    """A frame for functions of the pages."""
    reader = (
        (spark.readStream if streaming else spark.read).format("amqp").option("url", broker.url)
    )
    if "kafka" in inspect.signature(function).parameters:
        reader = reader.options(columns="kafka", includeHeaders="true", startingOffsets="earliest")
        return reader.option("subscribe", "demo.orders").load()
    return reader.option("subscribe", "orders").load().select("body")


def checkpoint_of_kafka(folder: Path) -> None:
    """What Spark keeps of a query that has read two records of a topic."""
    for name, lines in (("offsets", '{}\n{"orders":{"0":2}}'), ("commits", "{}")):
        (folder / name).mkdir(parents=True)
        (folder / name / "3").write_text(f"v1\n{lines}")
