"""Spec files are not trusted: nothing outside them is read, and entities cannot grow."""

from __future__ import annotations

import socket
import threading

import pytest


def test_internal_entities_are_expanded(workshop) -> None:
    workshop.write(
        '<!DOCTYPE amqp [<!ENTITY who "the broker">]>\n<amqp name="case"><section name="s">'
        '<type name="a" class="restricted" source="uint"><doc><p>Made by &who;.</p></doc></type>'
        "</section></amqp>"
    )
    result = workshop.generate("--no-verify")
    assert result.status == 0, result.err
    assert "Made by the broker." in (workshop.out / "case.py").read_text("utf-8")


def test_external_entity_is_not_read(workshop) -> None:
    secret = workshop.folder / "secret.txt"
    secret.write_text("TOP SECRET", "utf-8")
    path = workshop.write(
        f'<!DOCTYPE amqp [<!ENTITY x SYSTEM "{secret.as_uri()}">]>\n<amqp name="case">\n'
        "<doc><p>&x;</p></doc></amqp>"
    )
    result = workshop.generate("--no-verify")
    assert result.status == 1
    assert "SECRET" not in result.err
    assert result.err.startswith(f"{path}:")
    assert "&x;" in result.err or "entity" in result.err.lower()


def test_external_parameter_entity_is_not_read(workshop) -> None:
    inner = workshop.folder / "inner.ent"
    inner.write_text('<!ENTITY leaked "TOP SECRET">', "utf-8")
    workshop.write(
        f'<!DOCTYPE amqp [<!ENTITY % p SYSTEM "{inner.as_uri()}"> %p;]>\n<amqp name="case">'
        "<doc><p>&leaked;</p></doc></amqp>"
    )
    result = workshop.generate("--no-verify")
    assert result.status == 1
    assert "SECRET" not in result.err


def test_billion_laughs(workshop) -> None:
    entities = ['<!ENTITY e0 "ha">'] + [
        f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12)
    ]
    path = workshop.write(
        f'<!DOCTYPE amqp [{"".join(entities)}]>\n<amqp name="case"><doc><p>&e11;</p></doc></amqp>'
    )
    result = workshop.generate("--no-verify")
    assert result.status == 1
    assert result.err.startswith(f"{path}:")


def test_quadratic_growth(workshop) -> None:
    path = workshop.write(
        f'<!DOCTYPE amqp [<!ENTITY e "{"x" * 100_000}">]>\n'
        f'<amqp name="case"><doc><p>{"&e;" * 5_000}</p></doc></amqp>'
    )
    result = workshop.generate("--no-verify")
    assert result.status == 1
    assert result.err.startswith(f"{path}:")


@pytest.mark.parametrize("system", ["http://127.0.0.1:{port}/amqp.dtd", "missing.dtd"])
def test_doctype_is_not_followed(workshop, system: str) -> None:
    """Nobody connects to the server the DOCTYPE names, and its absence is no mistake."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connected = threading.Event()

        def accept() -> None:
            try:
                server.accept()[0].close()
                connected.set()
            except OSError:
                pass

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            name = system.format(port=server.getsockname()[1])
            workshop.write(
                f'<!DOCTYPE amqp SYSTEM "{name}">\n<amqp name="case"><section name="s">'
                '<definition name="A" value="1"/></section></amqp>'
            )
            result = workshop.generate("--no-verify")
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert result.status == 0, result.err
    assert not connected.is_set()
