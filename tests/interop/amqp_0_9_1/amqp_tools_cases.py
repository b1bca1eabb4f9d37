"""Cases for the commands of amqp-tools: each is a process with a connection of its own."""

from __future__ import annotations

import subprocess

from tests.interop.amqp_0_9_1.place import PATIENCE, Place
from tests.interop.features.trial import expect


def tool(at: Place, name: str, *arguments: str, text: str | None = None, url: str = "") -> str:
    """Run a command, and return what it prints. Raises AssertionError if it fails."""
    done = subprocess.run(
        [name, "--url", url or at.url().replace(" ", "%20"), *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{name}: {done.returncode}: {done.stderr.strip()}"
    return done.stdout


def _fails(at: Place, name: str, *arguments: str, url: str = "") -> str:
    try:
        tool(at, name, *arguments, url=url)
    except AssertionError as error:
        return str(error)
    raise AssertionError("it was not refused")


def queue_declare(at: Place) -> None:
    expect(tool(at, "amqp-declare-queue", "-q", at.name(), "-d").strip(), at.name())
    tool(at, "amqp-publish", "-r", at.name(), "-b", "one")
    expect(tool(at, "amqp-delete-queue", "-q", at.name()).strip(), "1")


def get(at: Place) -> None:
    tool(at, "amqp-declare-queue", "-q", at.name(), "-d")
    tool(at, "amqp-publish", "-r", at.name(), "-b", "one", "-p", "-C", "text/plain")
    expect(tool(at, "amqp-get", "-q", at.name()), "one")
    message = _fails(at, "amqp-get", "-q", at.name())
    assert ": 2:" in message, message
    tool(at, "amqp-delete-queue", "-q", at.name())


def consume(at: Place) -> None:
    tool(at, "amqp-declare-queue", "-q", at.name(), "-d")
    tool(at, "amqp-publish", "-r", at.name(), "-l", text="one\ntwo\nthree\n")
    came = tool(at, "amqp-consume", "-q", at.name(), "-c", "3", "-p", "1", "cat")
    expect("".join(came.split()), "onetwothree")
    _fails(at, "amqp-get", "-q", at.name())
    tool(at, "amqp-delete-queue", "-q", at.name())


def no_ack(at: Place) -> None:
    tool(at, "amqp-declare-queue", "-q", at.name(), "-d")
    tool(at, "amqp-publish", "-r", at.name(), "-b", "one")
    expect(tool(at, "amqp-consume", "-q", at.name(), "-c", "1", "-A", "cat"), "one")
    tool(at, "amqp-delete-queue", "-q", at.name())


def large(at: Place) -> None:
    text = "0123456789abcdef" * 65_536
    tool(at, "amqp-declare-queue", "-q", at.name(), "-d")
    tool(at, "amqp-publish", "-r", at.name(), text=text)
    assert tool(at, "amqp-get", "-q", at.name()) == text, "another body came"
    tool(at, "amqp-delete-queue", "-q", at.name())


def not_found(at: Place) -> None:
    message = _fails(at, "amqp-get", "-q", "missing")
    assert "404" in message, message


def wrong_password(at: Place) -> None:
    _fails(at, "amqp-get", "-q", "missing", url=at.url(password="wrong"))


def virtual_host(at: Place) -> None:
    url = at.url(at.other_host).replace(" ", "%20")
    tool(at, "amqp-declare-queue", "-q", at.name(), "-d", url=url)
    tool(at, "amqp-publish", "-r", at.name(), "-b", "one", url=url)
    expect(tool(at, "amqp-get", "-q", at.name(), url=url), "one")
    tool(at, "amqp-delete-queue", "-q", at.name(), url=url)
