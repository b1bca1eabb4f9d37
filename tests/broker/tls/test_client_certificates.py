"""Clients that show certificates, and who they are by them."""

from __future__ import annotations

import asyncio
import ssl

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine.sasl import Anonymous, External
from ferrymq_broker.server import BrokerServer
from tests.broker.tls.pki import Pki, serving

BY_NAME = {"certificate_rule": [{"name_from": "subject-cn", "groups": ["staff"]}]}


async def connect(server: BrokerServer, context: ssl.SSLContext, *sasl: object) -> str | None:
    """Connect, use the connection and end it; the user the broker has taken the client for."""
    url = f"amqps://localhost:{server.port}"
    async with ferrymq.connect(url, ssl=context, sasl=list(sasl) or "auto", timeout=20) as client:
        sender = await client.sender("orders")
        await sender.send(Message(body="one"))
        (protocol,) = server.connections
        identity = protocol.handler.client.identity
        assert identity is not None
        if identity.mechanism == "EXTERNAL":
            assert identity.groups == {"staff"} and identity.expires > 1e9
        return protocol.handler.client.user


async def mechanisms(server: BrokerServer, context: ssl.SSLContext) -> bytes:
    """The frame with the mechanisms that a client is offered, if any."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
    )
    writer.write(b"AMQP\x03\x01\x00\x00")
    async with asyncio.timeout(20):
        await reader.readexactly(8)
        size = await reader.read(4)
        frame = await reader.readexactly(int.from_bytes(size) - 4) if size else b""
    writer.close()
    return frame


@pytest.mark.spec("5.3")
async def test_a_certificate_says_who_somebody_is(pki: Pki) -> None:
    async with serving(pki.asking(), security=BY_NAME) as server:
        assert await connect(server, pki.trusting("alice"), External()) == "alice"
        assert await connect(server, pki.trusting("alice"), External("alice")) == "alice"


@pytest.mark.spec("5.3")
async def test_nobody_acts_for_somebody_else(pki: Pki) -> None:
    async with serving(pki.asking(), security=BY_NAME) as server:
        with pytest.raises(ferrymq.AuthenticationError):
            await connect(server, pki.trusting("alice"), External("bob"))


async def test_external_is_offered_where_it_leads_somewhere(pki: Pki) -> None:
    security = {"anonymous": True, "certificate_rule": [{"pattern": "al.*"}]}
    pki.write("bob", pki.authority.client("bob", 1))
    async with serving(pki.asking(), security=security) as server:
        assert b"EXTERNAL" in await mechanisms(server, pki.trusting("alice"))
        without = await mechanisms(server, pki.trusting())
        assert b"ANONYMOUS" in without and b"EXTERNAL" not in without
        assert b"EXTERNAL" not in await mechanisms(server, pki.trusting("bob"))
    async with serving(pki.asking(), security={"anonymous": True}) as server:
        assert b"EXTERNAL" not in await mechanisms(server, pki.trusting("alice"))


async def test_external_is_not_there_for_the_asking(pki: Pki) -> None:
    """A client that uses it without its being offered, and without a certificate."""
    security = {"anonymous": True} | BY_NAME
    async with serving(pki.asking(), security=security) as server:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=pki.trusting(), server_hostname="localhost"
        )
        init = bytes.fromhex("005341c012 02 a308".replace(" ", "")) + b"EXTERNAL"
        init += b"\xa0\x05alice"
        frame = (len(init) + 8).to_bytes(4) + b"\x02\x01\x00\x00" + init
        writer.write(b"AMQP\x03\x01\x00\x00" + frame + b"AMQP\x00\x01\x00\x00")
        async with asyncio.timeout(20):
            answer = await reader.read()
        writer.close()
        # The outcome, if there is one, is not ok; and no header of AMQP follows.
        assert b"AMQP\x00\x01\x00\x00" not in answer[8:]
        assert server.broker.counters.connections_opened == 0


async def test_without_any_mechanism_the_end_comes_at_once(pki: Pki) -> None:
    async with serving(pki.asking(), security=BY_NAME) as server:
        assert await mechanisms(server, pki.trusting()) == b""
        with pytest.raises(ferrymq.AmqpError):
            await connect(server, pki.trusting())


async def test_required_means_nobody_without(pki: Pki) -> None:
    async with serving(pki.asking("required"), security=BY_NAME) as server:
        assert await connect(server, pki.trusting("alice"), External()) == "alice"
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = pki.trusting()
            context.maximum_version = version
            with pytest.raises(ferrymq.AmqpError):
                await connect(server, context, Anonymous())


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("how", ["optional", "required"])
async def test_bad_certificates_are_refused_with_the_reason(
    pki: Pki, version: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where none would have been good enough: a bad one is worse than none."""
    pki.write("foreign", pki.stranger.client("alice", 1))
    pki.write("old", pki.authority.client("alice", -1))
    reasons = {
        "foreign": "unable to get local issuer certificate",
        "old": "certificate has expired",
        "server": "unsuitable certificate purpose",
    }
    security = {"anonymous": True} | BY_NAME
    async with serving(pki.asking(how), security=security) as server:
        for name, reason in reasons.items():
            caplog.clear()
            context = pki.trusting(name)
            context.maximum_version = ssl.TLSVersion[version]
            with pytest.raises(ferrymq.AmqpError):
                await connect(server, context, Anonymous())
            assert reason in caplog.text and "Traceback" not in caplog.text
        assert server.broker.counters.connections_opened == 0


async def test_who_is_revoked_is_refused(pki: Pki) -> None:
    bob = pki.authority.client("bob", 1)
    pki.write("bob", bob)
    pki.revoke(bob.certificate)
    tls = pki.asking(client_crl=pki.path("crl"))
    async with serving(tls, security=BY_NAME) as server:
        assert await connect(server, pki.trusting("alice"), External()) == "alice"
        with pytest.raises(ferrymq.AmqpError):
            await connect(server, pki.trusting("bob"), External())


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
async def test_there_are_no_tickets_for_later(pki: Pki, version: str) -> None:
    """With one, somebody would be taken for who he was without anybody looking again."""
    context = pki.trusting("alice")
    context.maximum_version = ssl.TLSVersion[version]
    for tls, tickets in ((pki.tls(), True), (pki.asking(), False)):
        async with serving(tls, security={"anonymous": True}) as server:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
            )
            writer.write(b"AMQP\x03\x01\x00\x00")
            # In TLS 1.3 they come when the handshake is done, before anything else.
            await reader.readexactly(8)
            session = writer.get_extra_info("ssl_object").session
            assert (session is not None and session.has_ticket) is tickets
            writer.close()
