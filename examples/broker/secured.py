"""TLS, users, certificates and rules together: `python examples/broker/secured.py`."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from pathlib import Path

import ferrymq
from ferrymq import AmqpError, LinkDetached, Message
from ferrymq.engine import External
from ferrymq_broker.config import load_config
from ferrymq_broker.security.dev_ca import Authority
from ferrymq_broker.server import BrokerServer

CONFIG = """
[[listener]]
url = "amqps://127.0.0.1:0"
[tls]
certificate = "server.pem"      # with its key
client-certificates = "optional"
client-ca = "ca.pem"

[[security.certificate-rule]]   # the common name is the user's
[security.users]
shop = "sesame"

[[rule]]
who = "user:shop"               # by the password
may = "send"
where = "orders"
[[rule]]
who = "user:depot"              # by a certificate
may = "receive"
where = "orders"
[[queue]]
name = "orders"
"""


def write_files(folder: Path) -> None:
    """Write the files of `ferrymq cert --client depot`, and the configuration."""
    authority = Authority.create("an example", days=90)
    server, depot = authority.server(["127.0.0.1"], 90), authority.client("depot", 90)
    for name, issued in (("server", server), ("depot", depot)):
        (folder / f"{name}.pem").touch(0o600)
        (folder / f"{name}.pem").write_bytes(issued.certificate + issued.key)
    (folder / "ca.pem").write_bytes(authority.pem)
    (folder / "broker.toml").write_text(CONFIG)


async def main(folder: Path) -> None:
    """Let a shop send with a password and a depot receive with a certificate."""
    write_files(folder)
    trusting, showing = (ssl.create_default_context(cafile=folder / "ca.pem") for _ in range(2))
    showing.load_cert_chain(folder / "depot.pem")
    async with BrokerServer(load_config(folder / "broker.toml")) as server:
        named = server.url.replace("//", "//shop:sesame@")
        async with (
            ferrymq.connect(named, ssl=trusting) as shop,
            ferrymq.connect(server.url, ssl=showing, sasl=External()) as depot,
        ):
            await (await shop.sender("orders")).send(Message(body="a book"))
            delivery = await (await depot.receiver("orders")).receive(timeout=5)
            print("the depot has:", delivery.message.body)
            try:
                await shop.receiver("orders")
            except LinkDetached as refused:
                print("the shop is told:", refused.error and refused.error.description)
        for context in (None, trusting):
            try:
                await ferrymq.connect(server.url, ssl=context)
            except AmqpError as error:
                print("nobody is told:", error)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(Path(made)))

# Prints:
# the depot has: a book
# the shop is told: receive at 'orders' is not allowed to you
# nobody is told: … the certificate of the peer is not good: …
# nobody is told: … the server offers SASL SCRAM-SHA-512, … not ANONYMOUS: …
