"""An authority and a certificate for loopback."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ferrymq_broker.security.issuing import Authority


class Files(NamedTuple):
    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path) -> Files:
    """Files in `folder` for a listener on this machine."""
    authority = Authority.create("tests", 1)
    issued = authority.server(["127.0.0.1"], 1)
    files = Files(folder / "ca.pem", folder / "server.pem", folder / "server-key.pem")
    files.authority.write_bytes(authority.pem)
    files.certificate.write_bytes(issued.certificate)
    files.key.write_bytes(issued.key)
    return files
