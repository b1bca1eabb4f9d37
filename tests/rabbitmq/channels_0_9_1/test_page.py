"""The programs of the page about AMQP 0-9-1."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.reader import blocks

pytest.importorskip("pika")
celery = pytest.importorskip("celery")

from tests.rabbitmq.channels_0_9_1.served import Served, serve  # noqa: E402

PAGE = Path(__file__).parents[3] / "docs" / "broker" / "amqp-0-9-1.md"


def test_the_programs_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    with_pika, with_celery = (
        code for language, code in blocks(PAGE.read_text("utf-8")) if language == "python"
    )

    def use(served: Served) -> None:
        at = f"127.0.0.1:{served.port}"
        found: dict[str, object] = {}
        exec(compile(with_pika.replace("localhost:5672", at), str(PAGE), "exec"), found)
        assert found["body"] == b"a teapot"
        exec(compile(with_celery.replace("localhost:5672", at), str(PAGE), "exec"), found)
        app = found["app"]
        assert isinstance(app, celery.Celery)
        with app.connection() as connection:
            connection.connect()
            assert connection.connected

    serve(use)
