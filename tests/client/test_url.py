"""URLs: what they may say, and how they are refused."""

from __future__ import annotations

import pytest

import ferrymq
from ferrymq.url import parse_url, parse_urls, shown_urls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amqp://localhost", ("amqp", "localhost", 5672, None, None)),
        ("amqps://broker.example/", ("amqps", "broker.example", 5671, None, None)),
        ("amqp://host:1234", ("amqp", "host", 1234, None, None)),
        ("amqp://me@host", ("amqp", "host", 5672, "me", None)),
        ("amqp://me:secret@host", ("amqp", "host", 5672, "me", "secret")),
        ("amqp://m%40e:s%3A%2F%20@host", ("amqp", "host", 5672, "m@e", "s:/ ")),
        ("amqp://[::1]:7", ("amqp", "::1", 7, None, None)),
        ("AMQP://HOST", ("amqp", "host", 5672, None, None)),
    ],
)
def test_parts(text: str, expected: tuple[object, ...]) -> None:
    url = parse_url(text)
    assert (url.scheme, url.host, url.port, url.username, url.password) == expected
    assert url.secure == (url.scheme == "amqps")


def test_options() -> None:
    url = parse_url("amqp://host?container_id=me&idle_time_out=2.5&max_frame_size=4096")
    assert url.options == {
        "container_id": "me",
        "idle_time_out": "2.5",
        "max_frame_size": "4096",
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("http://host", "amqp://"),
        ("host:5672", "amqp://"),
        ("", "amqp://"),
        ("amqp://", "no host"),
        ("amqp://:5672", "no host"),
        ("amqp://host:99999", "port"),
        ("amqp://host:x", "port"),
        ("amqp://host/orders", "path"),
        ("amqp://host#x", "fragment"),
        ("amqp://host?verify=no", "'verify'"),
        ("amqp://a,b", "comma"),
        ("amqp://a:1,b:2", "comma"),
        ("amqp://a,http://b", "comma"),
        ("amqp://host?timeout=1&timeout=2", "twice"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_url(text)


def test_refusals_never_quote_the_password() -> None:
    for text in (
        "http://me:secret@host",
        "amqp://me:secret@host/x",
        "amqp://me:secret@host?z=1",
        # Characters that should have been percent-encoded put it where it does not belong.
        "amqp://me:a/secret@host",
        "amqp://me:a?secret@host",
        "amqp://me:a#secret@host",
        "amqp://me:secret",
        "amqp://me:secret@[host",
        "amqp://me%\u2100:secret@host",
        "amqp://me:a,/secret@host",
    ):
        with pytest.raises(ValueError, match=r"URL") as caught:
            parse_url(text)
        assert "secret" not in str(caught.value)


def test_no_text_of_a_url_shows_the_password() -> None:
    url = parse_url("amqp://me:secret@[::1]:7?timeout=1")
    assert str(url) == "amqp://me@[::1]:7"
    assert "secret" not in repr(url)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["amqp://a", "amqps://b"], "amqp://a:5672, amqps://b:5671"),
        (("amqp://a",), "amqp://a:5672"),
        ("amqp://a:1,amqp://b:2", "amqp://a:1, amqp://b:2"),
        (" amqp://a , AMQPS://b ", "amqp://a:5672, amqps://b:5671"),
        ("amqp://a,amqp://a:5672", "amqp://a:5672"),
        # A comma belongs to a password or a path, unless another URL follows.
        ("amqp://me:se,cret@a,amqp://b", "amqp://me@a:5672, amqp://b:5672"),
        ("wss://a/x,y,wss://b", "wss://a:443/x,y, wss://b:443"),
    ],
)
def test_several(given: str | list[str], shown: str) -> None:
    assert shown_urls(parse_urls(given)) == shown


def test_a_comma_in_a_password_is_part_of_it() -> None:
    first, second = parse_urls("amqp://me:se,cret@a,amqp://me:x@b")
    assert (first.password, second.password) == ("se,cret", "x")


def test_several_that_are_refused() -> None:
    with pytest.raises(ValueError, match="is empty"):
        parse_urls([])
    with pytest.raises(ValueError, match="amqp://"):
        parse_urls(["amqp://a", "b"])
    with pytest.raises(TypeError, match="not int"):
        parse_urls(["amqp://a", 5672])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="'timeout' has different values"):
        ferrymq.connect(["amqp://a?timeout=1", "amqp://b?timeout=2"])


def test_connect_refuses_at_once() -> None:
    with pytest.raises(ValueError, match="not a number"):
        ferrymq.connect("amqp://host?timeout=soon")
    with pytest.raises(ValueError, match="amqp://"):
        ferrymq.connect("mqtt://host")
    with pytest.raises(TypeError, match="colour"):
        ferrymq.connect("amqp://host", colour="red")  # type: ignore[call-arg]
