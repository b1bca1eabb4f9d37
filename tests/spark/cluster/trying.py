"""A job on a cluster, with a broker, and whether it has done what it was to do."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ferrymq import Message, blocking
from tests.interop.broker_process import BrokerProcess
from tests.spark.cluster.standalone import Standalone
from tests.spark.cluster.ways import Way, submit

COUNT: Final = 200
_CONFIG: Final = """
[[listener]]
url = "amqp://127.0.0.1:0"

[[stream]]
name = "records"
partitions = 2
durable = false

[[stream]]
name = "copied"
durable = false
"""


def tried(cluster: Standalone, way: Way, folder: Path) -> str:
    """What the job said at its end. Raises `AssertionError` if it failed, or its rows are not the
    records that were there, in the stream they were to be copied to."""
    bodies = [f"{number}".encode() for number in range(COUNT)]
    with BrokerProcess(_CONFIG) as broker, blocking.connect(broker.url) as connection:
        connection.sender("records").send_many([Message(body) for body in bodies])
        done = submit(cluster.url, way, broker.url, folder)
        said = [line for line in done.stdout.splitlines() if line.startswith("done: ")]
        assert done.returncode == 0 and said, f"{done.stdout}\n{done.stderr[-8000:]}"
        assert said[0].startswith(f"done: {COUNT} rows"), said[0]
        receiver = connection.receiver("copied", start="first", credit=1000)
        copied = [receiver.receive(timeout=30).message.body for _ in range(COUNT)]
        assert sorted(copied, key=lambda body: int(bytes(body))) == bodies  # type: ignore[arg-type]
    return said[0]
