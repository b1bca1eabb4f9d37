"""A broker with TLS whose clients may show certificates."""

from __future__ import annotations

from pathlib import Path

from tests.broker.tls.pki import Pki

MTLS = """
[tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
client-ca = "{folder}/ca.pem"
client-certificates = "optional"
[[security.certificate-rule]]
pattern = "alice"
[security.users]
bob = "open sesame"
"""


def configure(folder: Path) -> tuple[Pki, str]:
    """Certificates for localhost, alice and mallory, and the configuration that knows alice by
    hers and bob by his password."""
    pki = Pki(folder)
    pki.write("mallory", pki.authority.client("mallory", 1))
    return pki, MTLS.format(folder=folder)
