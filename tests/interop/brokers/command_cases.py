"""Cases for a person at a shell on a broker, a function for each."""

from __future__ import annotations

from tests.interop.brokers.sites import Site
from tests.interop.brokers.tools import command, expect_all, fetch, printed, put, texts


def send_and_receive(site: Site, queue: str) -> None:
    """`ferrymq send`, then `ferrymq receive`, as a user with a password."""
    command(site, "send", queue, *texts(3))
    output = command(site, "receive", queue, "--count", "3", "--timeout", "3", "--json")
    expect_all(printed(output), texts(3))
    expect_all(fetch(site, queue, 0), [])


def wrong_password(site: Site, queue: str) -> None:
    """A wrong password is refused in one line that says so."""
    assert site.users, "the broker knows no users"
    try:
        command(site, "send", queue, "x", password="wrong")
    except AssertionError as error:
        assert "credentials are wrong" in str(error), error
    else:
        raise AssertionError("it was not refused")


def tls(site: Site, queue: str) -> None:
    """`ferrymq send` with TLS and `--ca`."""
    assert site.pki is not None, "the broker has no TLS"
    command(
        site, "send", queue, "a", "--ca", str(site.pki.path("ca")), url=site.url(None, tls=True)
    )
    expect_all(fetch(site, queue, 1), ["a"])


def receive_all(site: Site, queue: str) -> None:
    """`ferrymq receive` takes 500 messages until none is left."""
    put(site, queue, texts(500))
    output = command(site, "receive", queue, "--timeout", "1", "--json")
    expect_all(printed(output), texts(500))


def browse(site: Site, queue: str) -> None:
    """`ferrymq receive --browse` prints all messages and takes none."""
    put(site, queue, texts(6))
    output = command(site, "receive", queue, "--browse", "--timeout", "1", "--json")
    expect_all(printed(output), texts(6))
    expect_all(fetch(site, queue, 6), texts(6))


def browse_one(site: Site, queue: str) -> None:
    """`ferrymq receive --browse --count 1` takes none, also of those that it did not print."""
    put(site, queue, texts(6))
    output = command(site, "receive", queue, "--browse", "--count", "1", "--json")
    expect_all(printed(output), texts(1))
    expect_all(fetch(site, queue, 6), texts(6))


def stream_start(site: Site, stream: str) -> None:
    """`ferrymq receive --start 2` prints a stream from there."""
    put(site, stream, texts(6))
    output = command(site, "receive", stream, "--start", "2", "--count", "4", "--timeout", "3",
                     "--json")  # fmt: skip
    expect_all(printed(output), texts(6)[2:])


def selector(site: Site, queue: str) -> None:
    """`ferrymq receive --selector` prints and takes what matches; or is refused, and takes none."""
    for colour in ("red", "blue"):
        command(site, "send", queue, colour, "--property", f"colour={colour}")
    output = command(site, "receive", queue, "--selector", "colour = 'blue'", "--count", "1",
                     "--timeout", "3", "--json")  # fmt: skip
    expect_all(printed(output), ["blue"])
    expect_all(fetch(site, queue, 1), ["red"])
