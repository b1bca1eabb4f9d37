"""The doors that speak HTTP: upgrades by the hundred, requests inside of others, guesses."""

from __future__ import annotations

import base64
import socket

import pytest

from tests.hostile.crowd import connect, sockets
from tests.hostile.site import Site
from tests.raw.client import Client
from tests.raw.process import MIB, Broker

PASSWORD = "correct horse"
KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="


# In the clear for the witness, and over WebSocket, for no page at all.
CONFIG = """
[security]
anonymous = true
failed-logins = 0
[[listener]]
url = "amqp://127.0.0.1:0"
[[listener]]
url = "ws://127.0.0.1:0"
"""


@pytest.fixture
def web(broker: Broker) -> int:
    """The port for WebSocket."""
    return broker.ports[1]


def request(*more: str, line: str = "GET / HTTP/1.1", protocol: str = "amqp") -> bytes:
    """A request for a WebSocket."""
    lines = [line, "Host: localhost", "Upgrade: websocket", "Connection: Upgrade", KEY]
    lines += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Protocol: {protocol}", *more, "", ""]
    return "\r\n".join(lines).encode()


def answer(port: int, *said: bytes) -> bytes:
    """All that is answered to the end, or up to the blank line of a good answer."""
    with Client(port) as client:
        client.send(*said)
        heard = b""
        while piece := client.take(1):
            heard += piece
            if heard.startswith(b"HTTP/1.1 101") and heard.endswith(b"\r\n\r\n"):
                break
            if heard.endswith(b"\r\n\r\n") and not heard.startswith(b"HTTP/1.1 101"):
                client.half_close()
        return heard


def test_a_good_request(site: Site, web: int) -> None:
    assert answer(web, request()).startswith(b"HTTP/1.1 101")
    own = request("Origin: http://localhost")
    assert answer(web, own).startswith(b"HTTP/1.1 101")


REFUSED = {
    "a page": request("Origin: https://evil.example"),
    "a page without a place": request("Origin: null"),
    "a page of this machine": request("Origin: http://localhost:8080"),
    "a page that says nothing": request("Origin:"),
    "two origins": request("Origin: https://evil.example", "Origin: http://localhost"),
    "another protocol": request(protocol="mqtt"),
    "another path": request(line="GET /metrics HTTP/1.1"),
    "a path that leads upwards": request(line="GET /$servicebus/websocket/../../x HTTP/1.1"),
    "another place": request(line="GET http://evil.example/x HTTP/1.1"),
    "another method": request(line="CONNECT evil.example:80 HTTP/1.1"),
    "two lengths": request("Content-Length: 5", "Content-Length: 6"),
    "a length and pieces": request("Content-Length: 5", "Transfer-Encoding: chunked"),
    "a length below zero": request("Content-Length: -1"),
    "a folded line": request("X: a", " b: c"),
    "a name with a blank": request("Content-Length : 5"),
    "no HTTP": b"AMQP\x00\x01\x00\x00" * 4,
    "a long line": b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
    "a long header": request("X: " + "x" * 20_000),
    "many headers": request(*(f"X-{number}: y" for number in range(5_000))),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(site: Site, web: int, what: str) -> None:
    heard = answer(web, REFUSED[what])
    assert not heard.startswith(b"HTTP/1.1 101")
    assert b"Traceback" not in heard


def test_a_request_inside_of_another(site: Site, web: int) -> None:
    """What is the body of a request that was refused is not taken for one."""
    inner = request()
    for header in (f"Content-Length: {len(inner)}", "Transfer-Encoding: chunked"):
        outer = request(header, line="POST / HTTP/1.1")
        body = inner if "Length" in header else b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner)
        assert b"101 Switching" not in answer(web, outer, body)


def test_a_flood_of_upgrades(site: Site, web: int) -> None:
    """They are asked for, made, and nothing is done with them."""

    def attack() -> None:
        with sockets() as crowd:
            crowd.extend(connect(web) for _ in range(40))
            for one in crowd:
                one.sendall(request())
            for one in crowd:
                assert one.recv(12) == b"HTTP/1.1 101"

    site.endures(attack, 32 * MIB)


def test_a_flood_of_refusals(site: Site, web: int) -> None:
    def attack() -> None:
        with sockets() as crowd:
            crowd.extend(connect(web) for _ in range(40))
            for one in crowd:
                one.sendall(request("Origin: https://evil.example") * 3)
            for one in crowd:
                assert one.recv(12) == b"HTTP/1.1 403"

    site.endures(attack, 32 * MIB)


FIGURES = """
[security]
failed-logins = 5
users = {{ alice = "correct horse", bob = "battery" }}
[[rule]]
who = "user:alice"
may = "manage"
where = "$metrics"
[http]
url = "http://127.0.0.1:{port}"
"""


def test_figures_are_for_who_may_see_them() -> None:
    """By HTTP Basic: refused alike, and no faster to guess than by AMQP."""

    def ask(port: int, *headers: str) -> bytes:
        lines = ["GET /metrics HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]
        with Client(port) as client:
            client.send("\r\n".join(lines).encode())
            heard = b""
            while piece := client.take(65536):
                heard += piece
        return b"\r\n".join(line for line in heard.split(b"\r\n") if not line.startswith(b"Date:"))

    def basic(user: str, password: str) -> str:
        return f"Authorization: Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Broker(FIGURES.format(port=port)):
        assert ask(port, basic("alice", PASSWORD)).startswith(b"HTTP/1.1 200")
        assert ask(port, basic("bob", "battery")).startswith(b"HTTP/1.1 403")
        nothing = ask(port)
        assert nothing.startswith(b"HTTP/1.1 401")
        for wrong in (
            basic("alice", "wrong"),
            basic("nobody", "wrong"),
            basic("alice\0", PASSWORD),
            basic("", PASSWORD),
            "Authorization: Basic !!!",
            "Authorization: Basic",
            "Authorization: Bearer x.y.z",
            "Authorization: " + "x" * 7000,
        ):
            assert ask(port, wrong) == nothing
        for _ in range(5):
            ask(port, basic("alice", "wrong"))
        assert ask(port, basic("alice", PASSWORD)) == nothing
        assert ask(port, basic("bob", "battery")).startswith(b"HTTP/1.1 403")
