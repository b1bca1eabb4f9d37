"""Tokens: forged ones, ones for somebody else, ones whose time is over; and floods of them."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable

import pytest

from tests.broker.tokens.makers import ec_key, jwks, make_jwt, make_sas, part, rsa_key
from tests.hostile.logins import AUTH, OK, SYS_PERM, bearer, begin, log_in, outcome, plain
from tests.hostile.site import Site
from tests.raw.client import Client
from tests.raw.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    attach_frame,
    begin_frame,
    open_frame,
    sasl_init,
    sasl_response,
    source,
    target,
    transfer_frame,
)
from tests.raw.process import MIB
from tests.raw.values import TRUE, binary, described, mapping, string, uint

SECRET = "the-secret-of-the-shop"
UNAUTHORIZED = "amqp:unauthorized-access"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An issuer, a shared access key, and next to nothing for who has neither."""
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(jwks(ec_key(), rsa_key()))
    return f"""
[security]
anonymous = true
failed-logins = 0
[[security.jwt]]
issuer = "https://login.example/"
audience = "ferrymq"
keys = "{keys}"
leeway = 0
as-password = true
[[security.shared-access-key]]
name = "shop"
primary = "{SECRET}"
may = ["send", "receive"]
where = "q*"
[[rule]]
who = "anonymous"
may = "*"
where = "witness"
[[rule]]
who = ["user:alice", "claim:scope=sending"]
may = ["send", "receive", "create"]
where = ["orders", "inbox.{{user}}"]
"""


def token(**changes: object) -> str:
    """A good one but for the changes."""
    now = int(time.time())
    return make_jwt(**{"exp": now + 60, "iat": now - 1, "nbf": now - 1, **changes})  # type: ignore[arg-type]


def forged(header: dict[str, object], signature: bytes = b"", **changes: object) -> str:
    """One whose header is made by hand."""
    payload = token(**changes).split(".")[1]
    return f"{part(header)}.{payload}.{part(signature)}"


def signed_with_public_key() -> str:
    """HS256, with what everybody knows as the secret."""
    head = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{token().split('.')[1]}"
    public = rsa_key().as_pem(private=False)
    return f"{head}.{part(hmac.digest(public, head.encode(), hashlib.sha256))}"


BAD: dict[str, Callable[[], str]] = {
    "no signature": lambda: forged({"alg": "none"}),
    "none, in capitals": lambda: forged({"alg": "NONE"}),
    "none, with a key": lambda: forged({"alg": "none", "kid": "ec"}, b"x"),
    "no algorithm": lambda: forged({"kid": "ec"}, b"x"),
    "the public key as a secret": signed_with_public_key,
    "a key of its own": lambda: forged(
        {"alg": "ES256", "jwk": json.loads(jwks(ec_key("own")))["keys"][0]}, bytes(64)
    ),
    "the address of a key": lambda: forged(
        {"alg": "ES256", "jku": "http://127.0.0.1:1/"}, bytes(64)
    ),
    "an unknown key": lambda: make_jwt(ec_key("own"), exp=int(time.time()) + 60),
    "a key that is a path": lambda: forged({"alg": "ES256", "kid": "../../etc/passwd"}, bytes(64)),
    "a key of another name": lambda: token(header={"kid": "rsa"}),
    "zeros for a signature": lambda: forged({"alg": "ES256", "kid": "ec"}, bytes(64)),
    "critical headers": lambda: forged(
        {"alg": "ES256", "kid": "ec", "crit": ["x"], "x": 1}, bytes(64)
    ),
    "not base64": lambda: token(header={"b64": True, "crit": ["b64"]}),
    "for another audience": lambda: token(aud="rabbits"),
    "for no audience": lambda: token(aud=None),
    "for a number": lambda: token(aud=7),
    "for an empty list": lambda: token(aud=[]),
    "of another issuer": lambda: token(iss="https://evil.example/"),
    "of a list of issuers": lambda: token(iss=["https://login.example/"]),
    "expired": lambda: token(exp=int(time.time()) - 1),
    "without an end": lambda: token(exp=None),
    "an end that is text": lambda: token(exp=str(int(time.time()) + 60)),
    "an end that is no number": lambda: token(exp=float("nan")),
    "no end at all": lambda: token(exp=float("inf")),
    "an end that is true": lambda: token(exp=True),
    "not yet good": lambda: token(nbf=int(time.time()) + 60),
    "no subject": lambda: token(sub=None),
    "a subject that is a list": lambda: token(sub=["alice"]),
    "a subject that cannot be seen": lambda: token(sub="alice\u200b"),
    "a subject with NUL": lambda: token(sub="alice\0"),
    "a subject that is empty": lambda: token(sub=""),
    "encrypted": lambda: ".".join((part({"alg": "dir", "enc": "A256GCM"}), "", "AA", "AA", "AA")),
    "in brackets": lambda: ".".join((part(b"[" * 3000), "AA", "AA")),
    "two dots": lambda: "..",
    "a number": lambda: ".".join((part({"alg": "ES256"}), part(b"1" * 5000), "AA")),
}


def test_good_tokens(site: Site) -> None:
    """Or nothing below would mean anything."""
    assert log_in(site.port, "OAUTHBEARER", bearer(token())) == OK
    assert log_in(site.port, "OAUTHBEARER", bearer(token(aud=["other", "ferrymq"]))) == OK
    assert log_in(site.port, "OAUTHBEARER", bearer(token(exp=10**300))) == OK
    assert log_in(site.port, "OAUTHBEARER", bearer(token(), "alice")) == OK
    assert log_in(site.port, "PLAIN", plain("whoever", token())) == OK


def refused(port: int, said: bytes) -> int:
    """The outcome after the server's reason (RFC 7628 §3.2.3)."""
    with Client(port) as client:
        answer = begin(client, "OAUTHBEARER", said).read()
        assert answer is not None
        if answer.name == "sasl-outcome":
            return int(str(answer.field(0)))
        assert answer.name == "sasl-challenge" and answer.field(0) == b'{"status":"invalid_token"}'
        client.send(sasl_response(b"\x01"))
        return outcome(client)


@pytest.mark.parametrize("what", BAD)
def test_bad_tokens(site: Site, what: str) -> None:
    """By every way they may come, and all with the same answer."""
    bad = BAD[what]()
    # Two dots and nothing between them are not what a token is made of.
    assert refused(site.port, bearer(bad)) in (AUTH, SYS_PERM)
    assert log_in(site.port, "PLAIN", plain("alice", bad)) == AUTH
    with Putter(site.port) as putter:
        assert putter.put(bad, "orders", "jwt") in (400, 401)


@pytest.mark.parametrize("name", ["bob", "Alice", "alice@", "root", "*"])
def test_nobody_acts_for_somebody_else(site: Site, name: str) -> None:
    assert refused(site.port, bearer(token(), name)) == AUTH


RESPONSES = {
    "nothing": b"",
    "no header": b"auth=Bearer x\x01\x01",
    "no end": b"n,,\x01auth=Bearer x",
    "two tokens": b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
    "another scheme": b"n,,\x01auth=Basic YTpi\x01\x01",
    "a name with NUL": b"n,a=alice\0,\x01auth=Bearer x\x01\x01",
    "channel binding": b"p=tls-unique,,\x01auth=Bearer x\x01\x01",
    "no UTF-8": b"\xff\xfe",
    "separators": b"\x01" * 4000,
    "a megabyte": b"n,,\x01auth=Bearer " + b"x" * 1_000_000 + b"\x01\x01",
}


@pytest.mark.parametrize("what", RESPONSES)
def test_malformed_responses(site: Site, what: str) -> None:
    assert log_in(site.port, "OAUTHBEARER", RESPONSES[what]) == SYS_PERM


class Putter(Client):
    """A client with a link to ``$cbs``, and one from there."""

    def __init__(self, port: int, login: bytes = b"") -> None:
        super().__init__(port)
        if login:
            self.authenticate("OAUTHBEARER", login)
        self.open().send(begin_frame())
        self.expect("begin")
        self.receiver("$cbs", credit=100_000, handle=1)
        self.sender("$cbs", handle=0)
        self._number = 0

    def request(self, body: str, name: str, kind: str, more: str = "") -> bytes:
        """A request as a frame."""
        number = self._number
        self._number += 1
        said = ("operation", "put-token", "type", kind, "name", name, "more", more)
        properties = described(0x74, mapping(*(string(text) for text in said)))
        payload = properties + described(0x77, string(body))
        return transfer_frame(payload, 0, uint(number), binary(b"%d" % number), settled=TRUE)

    def put(self, body: str, name: str, kind: str) -> int:
        """Put a token; the status."""
        self.send(self.request(body, name, kind))
        answer = self.expect("transfer", "flow", "disposition", "empty")
        found = answer.payload.partition(b"status-code")[2]
        return int.from_bytes(found[1:5], "big", signed=True) if found[0] == 0x71 else found[1]


SHARED = "jwt"
HOUR = int(time.time()) + 3600
SIGNED = {
    "another key": make_sas("q1", "not-the-secret", expires=HOUR),
    "another name of the key": make_sas("q1", SECRET, "Shop", HOUR),
    "a name of nobody": make_sas("q1", SECRET, "", HOUR),
    "expired": make_sas("q1", SECRET, expires=1),
    "an end that is no number": make_sas("q1", SECRET, expires="1e99"),
    "an end with a sign": make_sas("q1", SECRET, expires=f"+{HOUR}"),
    "an end in other digits": make_sas("q1", SECRET, expires="\u0661\u0662"),
    "another node": make_sas("q2", SECRET, expires=HOUR),
    "a node that it is the beginning of": make_sas("q", SECRET, expires=HOUR),
    "a node that begins with it": make_sas("q10", SECRET, expires=HOUR),
    "upper case": make_sas("Q1", SECRET, expires=HOUR),
    "encoded twice": make_sas("%71%31", SECRET, expires=HOUR),
    "dots": make_sas("q2/../q1", SECRET, expires=HOUR),
    "a query": make_sas("q1?x", SECRET, expires=HOUR),
    "something below": make_sas("q1/x", SECRET, expires=HOUR),
    "changed": make_sas("q2", SECRET, expires=HOUR).replace("q2", "q1"),
    "longer": make_sas("q1", SECRET, expires=HOUR).replace(f"se={HOUR}", f"se={HOUR}0"),
    "twice": make_sas("q2", SECRET, expires=HOUR) + "&sr=q1",
}


@pytest.mark.parametrize("what", SIGNED)
def test_bad_signatures(site: Site, what: str) -> None:
    with Putter(site.port) as putter:
        assert putter.put(SIGNED[what], "q1", SHARED) in (400, 401)
        putter.send(attach_frame("q", 2, target=target(string("q1")), source=source()))
        assert putter.verdict()[:2] == ("link", UNAUTHORIZED)


def test_a_good_signature_gives_its_node_and_no_other(site: Site) -> None:
    with Putter(site.port) as putter:
        good = make_sas("sb://127.0.0.1/q1/", SECRET, expires=HOUR)
        assert putter.put(good, "sb://127.0.0.1/q1", SHARED) == 202
        for handle, address in enumerate(
            ("q10", "q", "Q1", "orders", "$management/x", "witness2"), 2
        ):
            where = target(string(address))
            putter.send(attach_frame(address, handle, target=where, source=source()))
            assert putter.verdict()[:2] == ("link", UNAUTHORIZED), address


@pytest.mark.parametrize("way", ["login", "put"])
def test_rights_end_with_their_token(site: Site, way: str) -> None:
    """In the middle of a connection that goes on sending."""
    short = token(exp=int(time.time()) + 2)
    with Putter(site.port, bearer(short) if way == "login" else b"") as client:
        if way == "put":
            assert client.put(short, "", "jwt") == 202
        where = target(string("orders"))
        client.send(attach_frame("o", 2, target=where, source=source()))
        client.expect("attach", "flow", "disposition")
        began = time.monotonic()
        verdict = client.verdict()
        assert verdict[:2] == ("connection" if way == "login" else "link", UNAUTHORIZED)
        assert time.monotonic() - began < 15
        if way == "put":
            client.send(attach_frame("again", 3, target=where, source=source()))
            assert client.verdict()[:2] == ("link", UNAUTHORIZED)


def test_a_flood_of_tokens_over_one_connection(site: Site) -> None:
    """Good and bad ones, which all have to be checked, and are answered one by one."""
    good, bad = token(), forged({"alg": "ES256", "kid": "ec"}, bytes(64))

    def attack() -> None:
        with Putter(site.port) as putter:
            putter.send(*(putter.request(body, "orders", "jwt") for body in (good, bad) * 50))
            assert len(putter.arrivals(100)) == 100

    site.endures(attack)


def test_tokens_for_ever_new_places(site: Site) -> None:
    """There are so many for a connection, and no more."""
    good = token()
    with Putter(site.port) as putter:
        before = site.broker.memory()
        statuses = [putter.put(good, f"place {number}", "jwt") for number in range(300)]
        assert statuses == [202] * 256 + [403] * 44
        # One for a place that has one takes its place.
        assert putter.put(good, "place 7", "jwt") == 202
        site.broker.memory_is_back(before)


def test_requests_with_luggage(site: Site) -> None:
    def attack() -> None:
        with Putter(site.port) as putter:
            for _ in range(10):
                putter.send(putter.request("x", "orders", "jwt", "x" * 30_000))
                putter.expect("transfer", "flow", "disposition", "empty")

    site.endures(attack)


def test_a_flood_of_logins_with_tokens(site: Site) -> None:
    bad = [bearer(forged({"alg": "ES256", "kid": "ec"}, bytes(64), sub=f"u{n}")) for n in range(40)]

    def attack() -> None:
        for said in bad:
            with Client(site.port) as client:
                client.send(SASL_HEADER, sasl_init("OAUTHBEARER", said), AMQP_HEADER, open_frame())
                client.take(8)
                client.expect("sasl-mechanisms")
                client.expect("sasl-challenge")

    site.endures(attack, 16 * MIB)


@pytest.mark.parametrize(
    "address",
    ["inbox.*", "inbox.?", "inbox.bob", "inbox.{user}", "order?", "Orders", "$management/"],
)
@pytest.mark.parametrize("user", ["*", "{user}", "?", "bo*"])
def test_names_with_pattern_characters_mean_themselves(site: Site, user: str, address: str) -> None:
    """In the name of a user nothing stands for anything else."""
    login = bearer(token(sub=user, scope="reading sending"))
    with Putter(site.port, login) as client:
        where = target(string(address))
        client.send(attach_frame("x", 2, target=where, source=source()))
        if address == f"inbox.{user}":
            client.expect("attach", "flow", "disposition")
        else:
            assert client.verdict()[:2] == ("link", UNAUTHORIZED)


def test_whether_it_is_there_is_not_told(site: Site) -> None:
    """What is refused is refused in the same words."""
    with Putter(site.port, bearer(token())) as owner, Putter(site.port) as stranger:
        where = target(string("orders"))
        owner.send(attach_frame("o", 2, target=where, source=source()))
        owner.expect("attach", "flow", "disposition")
        said = []
        for handle, address in ((2, "orders"), (3, "brders")):
            stranger.send(
                attach_frame("a", handle, target=target(string(address)), source=source())
            )
            said.append(stranger.verdict().description.replace("brders", "orders"))
        assert said[0] == said[1]


def test_no_token_is_in_the_log(site: Site) -> None:
    """Nor a key, whatever has been tried."""
    good = token()
    log_in(site.port, "OAUTHBEARER", bearer(good))
    log_in(site.port, "PLAIN", plain("mallory", "hunter2 hunter2"))
    with Putter(site.port) as putter:
        for kind in ("jwt", SHARED, good):
            putter.put(good, "orders", kind)
            putter.put(SIGNED["another key"], "q1", kind)
    log = site.broker.log
    for secret in (good.rpartition(".")[2], SECRET, "hunter2", SIGNED["another key"][-80:-20]):
        assert secret not in log
