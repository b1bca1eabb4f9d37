"""Certificates that change while the broker runs."""

from __future__ import annotations

import logging
import os
import signal
import ssl
from pathlib import Path

import pytest
from cryptography import x509

import ferrymq
from ferrymq import Message
from ferrymq_broker.security.tls_reload import TlsFiles
from ferrymq_broker.server import BrokerServer
from tests.broker.test_process import serve
from tests.broker.tls.pki import Pki, serving


def number(pem: Path) -> int:
    return x509.load_pem_x509_certificate(pem.read_bytes()).serial_number


async def shown(server: BrokerServer, pki: Pki) -> int:
    """The serial number of the certificate that a client is shown now."""
    async with ferrymq.connect(
        f"amqps://localhost:{server.port}", ssl=pki.trusting()
    ) as connection:
        transport = connection._transport._transport  # type: ignore[attr-defined]
        der = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(der).serial_number


async def test_new_connections_get_the_new_certificate_and_old_ones_stay(pki: Pki) -> None:
    async with serving(pki.tls()) as server:
        url = f"amqps://localhost:{server.port}"
        async with ferrymq.connect(url, ssl=pki.trusting()) as before:
            sender = await before.sender("orders")
            first = await shown(server, pki)
            pki.write("server", pki.authority.server(["localhost"], 30))
            server.reload()
            second = await shown(server, pki)
            assert second == number(pki.path("server")) != first
            await sender.send(Message(body="still here"))


async def test_changed_files_are_noticed(pki: Pki, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    files = TlsFiles(pki.tls())
    before = files.context
    assert files.refresh() and files.context is before
    pki.write("server", pki.authority.server(["localhost"], 30))
    assert files.refresh() and files.context is not before
    on_record = [each for each in caplog.records if each.name == "ferrymq.audit"]
    assert len(on_record) == 1 and "certificates" in on_record[0].getMessage()


@pytest.mark.parametrize("damage", ["key", "certificate", "empty", "gone"])
async def test_bad_files_leave_the_old_ones_in_use(
    pki: Pki, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(pki.tls()) as server:
        first = await shown(server, pki)
        other = pki.authority.server(["localhost"], 30)
        if damage == "key":
            pki.path("server-key").write_bytes(other.key)
        elif damage == "certificate":
            pki.path("server").write_bytes(other.certificate)
        elif damage == "empty":
            pki.path("server").write_bytes(b"")
        else:
            pki.path("server").unlink()
        server.reload()
        assert "TLS files refused" in caplog.text and "Traceback" not in caplog.text
        assert await shown(server, pki) == first
        # Said once, not at every look.
        caplog.clear()
        assert server.tls.refresh() and not caplog.text
        pki.write("server", other)
        assert server.tls.refresh()
        assert await shown(server, pki) == number(pki.path("server"))


async def test_one_context_for_all_hands_over_to_the_current_one(pki: Pki) -> None:
    """For servers that want to be given a context once and for all."""
    files = TlsFiles(pki.tls())
    fixed = files.fixed
    pki.write("server", pki.authority.server(["localhost"], 30))
    files.refresh(force=True)
    for name in ("localhost", None):
        assert handshake(fixed, name) == number(pki.path("server"))


def handshake(context: ssl.SSLContext, name: str | None) -> int:
    """The serial number that a client of this server is shown."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    client = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    der = client.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


async def test_a_list_of_revoked_certificates_counts_from_when_it_is_read(pki: Pki) -> None:
    pki.revoke()
    tls = pki.asking(client_crl=pki.path("crl"))
    async with serving(tls, security={"anonymous": True}) as server:
        url = f"amqps://localhost:{server.port}"
        context = pki.trusting("alice")
        async with ferrymq.connect(url, ssl=context):
            pass
        alice = pki.path("alice").read_bytes()
        pki.revoke(alice)
        server.reload()
        with pytest.raises(ferrymq.AmqpError):
            await ferrymq.connect(url, ssl=context)


def test_the_process_reloads_when_it_is_told_to(pki: Pki, tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(
        '[[listener]]\nurl = "amqps://127.0.0.1:0"\n'
        '[tls]\ncertificate = "server.pem"\nkey = "server-key.pem"\n'
    )
    with serve("--config", str(config)) as (process, lines):
        assert lines[0].startswith("listening amqps://127.0.0.1:")
        port = int(lines[0].rpartition(":")[2])
        new = pki.authority.server(["localhost", "127.0.0.1"], 30)
        pki.write("server", new)
        os.kill(process.pid, signal.SIGHUP)
        # Signals take a while to arrive; the time-out of the test is the limit.
        while ssl.get_server_certificate(("127.0.0.1", port)).encode() != new.certificate:
            assert process.poll() is None
