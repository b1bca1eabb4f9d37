"""The façade: its names, its types as a user's type checker sees them, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ferrymq
from ferrymq.arguments import OtherNames, names

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("client*.py"))


def test_every_public_name_is_there() -> None:
    for name in ferrymq.__all__:
        assert getattr(ferrymq, name) is not None
    assert set(ferrymq.__all__) <= set(dir(ferrymq))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ferrymq.nonsense  # type: ignore[attr-defined]


def test_all_errors_descend_from_one() -> None:
    errors = [getattr(ferrymq, name) for name in ferrymq.errors.__all__ if name != "Scope"]
    assert all(issubclass(error, ferrymq.AmqpError) for error in errors)
    assert {error.__name__ for error in errors} <= set(ferrymq.__all__)


@pytest.mark.parametrize("name", ["Connection", "Session", "Sender", "Receiver", "Delivery"])
def test_a_missing_name_costs_nothing_where_there_is_one(name: str) -> None:
    """With `__getattr__` Python looks up every attribute of an object more slowly: accepting a
    message took twice as long. Names of other libraries are attributes that raise instead."""
    assert not hasattr(getattr(ferrymq, name), "__getattr__")


def test_a_name_of_another_library_is_no_attribute() -> None:
    class Box(OtherNames):
        elsewhere = names(("lid cover", "use top()"))

    class Chest(Box):
        lid = "its own"

    assert not hasattr(Box(), "lid") and not {"lid", "cover"} & set(dir(Box()))
    with pytest.raises(AttributeError, match=r"^'Chest' object has no attribute 'cover': use top"):
        _ = Chest().cover  # type: ignore[attr-defined]
    assert Chest().lid == "its own" and "lid" in dir(Chest())


def test_importing_is_lazy() -> None:
    code = (
        "import sys, ferrymq; "
        "assert 'asyncio' not in sys.modules and 'ferrymq.engine' not in sys.modules; "
        "ferrymq.connect; ferrymq.Message; assert 'asyncio' not in sys.modules; "
        "ferrymq.Connection; assert 'ferrymq.engine.connection' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


USER_CODE = """
from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import assert_type

import ferrymq
from ferrymq import Message, blocking
from ferrymq_types.messaging import Source
from ferrymq_types.transport import Error, SenderSettleMode


async def main() -> None:
    async with ferrymq.connect(
        "amqp://localhost", container_id="me", idle_time_out=None, reconnect=True
    ) as connection:
        assert_type(connection, ferrymq.Connection)
        sender = await connection.sender("orders", snd_settle_mode=SenderSettleMode.UNSETTLED)
        assert_type(sender, ferrymq.Sender)
        message = Message(b"...", subject="s", application_properties={"a": 1})
        await sender.send(message, timeout=5)
        assert_type(sender.send_nowait(message), asyncio.Future[None])
        await sender.send_many([message])
        async for delivery in connection.receiver("orders", credit=10, mode="copy"):
            assert_type(delivery, ferrymq.Delivery)
            assert_type(delivery.message, Message)
            assert_type(delivery.message.subject, str | None)
            await delivery.reject(Error(condition="x:y"))
        async with connection.receiver(None, dynamic=True) as receiver:
            assert_type(receiver, ferrymq.Receiver)
            assert_type(await receiver.receive(timeout=1), ferrymq.Delivery)
            assert_type(receiver.source, Source | None)
        async with connection.session() as session:
            assert_type(session, ferrymq.Session)
            assert_type(await session.sender(None), ferrymq.Sender)
        once = await connection.sender("orders", name="n", exactly_once=True, unsettled=[])
        await once.send(message, delivery_tag=b"t", hold=True)
        once.settle(b"t")
        assert_type(once.unsettled_deliveries(), list[ferrymq.Unsettled])
        assert_type(await once.resumed(timeout=1), dict[bytes, ferrymq.AmqpError | None])
        await connection.receiver("orders", name="n", durable=True, expiry_timeout=5)
        async with connection.transaction(fence=ferrymq.Fence("g", "m", 1)) as txn:
            await once.send(message, transaction=txn)
        assert_type(await connection.fence("g", "m"), int | None)
        async with connection.management() as management:
            assert_type(management, ferrymq.ManagementClient)
            assert_type(await management.create("queue", "q", {"durable": True}), dict[str, object])
            async for row in management.query("queue", ["name"]):
                assert_type(row, dict[str, object])
            for peeked in await management.peek("queue", "q"):
                assert_type(peeked.message, Message)


def threads() -> None:
    with blocking.connect("amqps://localhost", timeout=3) as connection:
        assert_type(connection, blocking.Connection)
        sender = connection.sender("orders")
        sender.send(Message({"a": [1]}), timeout=1)
        sender.ready(timeout=1)
        assert_type(sender.send_nowait(Message(b"")), Future[None])
        with connection.management(replies="dynamic") as management:
            assert_type(management, blocking.ManagementClient)
            assert_type(management.create("queue", "q", timeout=3), dict[str, object])
            assert_type(management.move("q", "r"), ferrymq.MoveResult)
            for row in management.query("queue"):
                assert_type(row, dict[str, object])
            management.create(5)  # type: ignore[call-arg, arg-type]
        for delivery in connection.receiver("orders"):
            assert_type(delivery, blocking.Delivery)
            delivery.accept()


async def wrong(connection: ferrymq.Connection) -> None:
    connection.sender("orders", colour="red")  # type: ignore[call-arg]
    connection.receiver("orders", mode="move it")  # type: ignore[arg-type]
    await connection.sender(5)  # type: ignore[arg-type]
    ferrymq.connect(timeout="soon")  # type: ignore[arg-type]
    Message(b"", ttl="long")  # type: ignore[arg-type]
"""


def test_user_code_type_checks_strictly(tmp_path: Path) -> None:
    path = tmp_path / "user_code.py"
    path.write_text(USER_CODE)
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores"),
            *("--config-file", str(ROOT / "pyproject.toml"), str(path), *map(str, EXAMPLES)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert EXAMPLES
