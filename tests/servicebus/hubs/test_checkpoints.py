"""Checkpoints in the vendor's store for blobs, on the emulator of its storage.

The emulator is large, so it is installed when this test runs, into a folder of the build.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servicebus.hubs.test_clients import WAIT, producer, run

eventhub = pytest.importorskip("azure.eventhub")
blobs = pytest.importorskip("azure.eventhub.extensions.checkpointstoreblob")

pytestmark = [pytest.mark.interop, pytest.mark.slow]

FOLDER = Path(__file__).parents[3] / "build" / "azurite"
AZURITE = "azurite@3.35.0"
# The account that every installation of the emulator has.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@pytest.fixture(scope="module")
def storage() -> Iterator[str]:
    """The connection string of a storage on loopback."""
    program = FOLDER / "node_modules" / ".bin" / "azurite-blob"
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    if not program.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--no-save", AZURITE]
        done = subprocess.run(command, cwd=FOLDER, check=False)
        if done.returncode:
            pytest.skip("azurite cannot be installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    with subprocess.Popen(
        [str(program), *arguments, "--skipApiVersionCheck", "--disableTelemetry"],
        cwd=FOLDER,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "successfully listening" in line or "successfully listens" in line:
                break
        yield (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT};"
        )
        process.terminate()


@pytest.mark.timeout(300)
def test_a_second_consumer_goes_on_where_the_first_has_stopped(storage: str) -> None:
    from azure.storage.blob import ContainerClient

    ContainerClient.from_connection_string(storage, "checkpoints").create_container()

    def use(text: str) -> None:
        with producer(text) as client:
            for partition in range(4):
                client.send_batch(
                    [eventhub.EventData(f"{partition}-{n}") for n in range(5)],
                    partition_id=str(partition),
                )
        first = _read(text, storage, 12)
        rest = _read(text, storage, 20 - len(first))
        assert sorted(first + rest) == sorted(f"{p}-{n}" for p in range(4) for n in range(5))

    run(use)


def _read(text: str, storage: str, count: int) -> list[str]:
    """Receive at least so many events from all partitions, with a checkpoint after each."""
    store = blobs.BlobCheckpointStore.from_connection_string(storage, "checkpoints")
    client = eventhub.EventHubConsumerClient.from_connection_string(
        text,
        consumer_group="$Default",
        eventhub_name="clicks",
        checkpoint_store=store,
        load_balancing_interval=1,
        partition_ownership_expiration_interval=3,
    )
    found: list[str] = []
    enough = threading.Event()

    def on_event(context: Any, event: Any) -> None:
        if enough.is_set():
            return
        context.update_checkpoint(event)
        found.append(event.body_as_str())
        if len(found) >= count:
            enough.set()

    reading = threading.Thread(
        target=client.receive, kwargs={"on_event": on_event, "starting_position": "-1"}
    )
    reading.start()
    assert enough.wait(4 * WAIT), found
    client.close()
    reading.join(WAIT)
    return found
