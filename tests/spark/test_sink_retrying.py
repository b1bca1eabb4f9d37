"""A broker that is away while a task writes: what is kept of the rows, and how long it waits."""

from __future__ import annotations

import socket
import threading

import pyarrow as pa
import pytest

from ferrymq import ConnectionClosed, LinkDetached, TransactionRolledBack
from ferrymq.errors import TransactionInDoubt
from ferrymq_types.transport import Error
from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.writing.kept_batches import KeptBatches
from pyspark_ferrymq.writing.retry import Outage, was_lost


class Clock:
    """Time passes in `sleep` only."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_an_outage_is_over_when_more_is_done_than_before() -> None:
    clock = Clock()
    outage = Outage("task 1", 30, clock, clock.sleep)
    for _ in range(5):
        # Any number of short ones.
        for _ in range(8):
            outage.lost(ConnectionClosed("gone"), "amqp://here")
        left = outage.left()
        assert left is not None and 0 < left < 30
        outage.progress()
        assert outage.left() is None


def test_an_outage_that_is_too_long_is_an_error() -> None:
    clock = Clock()
    outage = Outage("task 1", 30, clock, clock.sleep)
    with pytest.raises(
        AmqpWriteError, match=r"task 1: amqp://here was unreachable for .* gone"
    ) as error:
        while True:
            outage.lost(ConnectionClosed("gone"), "amqp://here")
    assert "write.retryTimeoutMs" in str(error.value)
    assert 125 < clock.now <= 130


def test_no_time_is_no_second_attempt() -> None:
    clock = Clock()
    with pytest.raises(AmqpWriteError, match="there was no answer in time"):
        Outage("task 1", 0, clock, clock.sleep).lost(TimeoutError(), "amqp://here")
    assert clock.now == 100


def test_what_says_that_the_broker_is_away() -> None:
    def caused(error: Exception, cause: Exception) -> Exception:
        error.__cause__ = cause
        return error

    gone = ConnectionClosed("gone")
    assert was_lost(gone) and was_lost(TimeoutError())
    assert was_lost(caused(TransactionRolledBack("x"), gone))
    assert was_lost(caused(TransactionInDoubt("x"), gone))
    assert was_lost(LinkDetached("x", Error(condition="amqp:link:detach-forced")))
    assert not was_lost(TransactionRolledBack("no room"))
    assert not was_lost(LinkDetached("x", Error(condition="amqp:not-found")))
    assert not was_lost(AmqpWriteError("x")) and not was_lost(None)


@pytest.mark.parametrize("in_memory", [0, 3000, 1 << 20])
def test_rows_are_kept_in_memory_and_on_disk(in_memory: int) -> None:
    schema = pa.schema({"body": pa.binary(), "tags": pa.map_(pa.string(), pa.string())})
    given = [
        pa.RecordBatch.from_pylist(
            [{"body": bytes([at]) * 100, "tags": {"n": str(row)}} for row in range(10)], schema
        )
        for at in range(5)
    ]
    source = iter(given)
    kept = KeptBatches(source, in_memory)
    first = kept.from_the_beginning()
    assert [next(first), next(first)] == given[:2]
    # The connection is lost in the middle: from the beginning, and then on.
    assert list(kept.from_the_beginning()) == given
    assert list(kept.from_the_beginning()) == given
    assert next(source, None) is None
    kept.close()
    assert list(kept.from_the_beginning()) == []


def test_a_broker_that_ends_while_it_lets_somebody_in_is_away() -> None:
    """Its port is open, and the connection is closed before there is an outcome of SASL."""
    from contextlib import closing

    from pyspark_ferrymq.options import BrokerOptions, Values, connect
    from pyspark_ferrymq.options.connection import AmqpUnreachableError

    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def hang_up() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(8)
                connection.sendall(b"AMQP\x03\x01\x00\x00")

        thread = threading.Thread(target=hang_up)
        thread.start()
        settings = BrokerOptions.parse(
            Values({"url": f"amqp://127.0.0.1:{server.getsockname()[1]}"})
        )
        with pytest.raises(AmqpUnreachableError, match="ended the transport during SASL") as error:
            connect(settings, "test")
        thread.join()
    assert was_lost(error.value)
