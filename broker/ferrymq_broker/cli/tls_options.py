"""TLS options of commands."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ferrymq.engine.sasl import Anonymous, External
from ferrymq.options import ConnectionArguments
from ferrymq.url import parse_urls
from ferrymq_broker.cli.options import of_file

Ca = Annotated[
    Path | None,
    of_file(
        "--ca",
        "FERRYMQ_CA",
        "Authorities for the broker's certificate (PEM). The default is the system's authorities.",
    ),
]
Cert = Annotated[
    Path | None,
    of_file(
        "--cert",
        "FERRYMQ_CERT",
        "The client certificate (PEM). Without a user or a token it is used to log in.",
    ),
]
Key = Annotated[
    Path | None,
    of_file(
        "--key",
        "FERRYMQ_KEY",
        "The key of the client certificate, unless it is in the same file.",
    ),
]
NoVerify = Annotated[
    bool,
    typer.Option("--no-verify", help="Accept any certificate of the broker; only for tests."),
]


class TlsOptions(NamedTuple):
    """The TLS options."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    no_verify: bool = False

    def arguments(self, url: str) -> ConnectionArguments:
        """Return the arguments of `ferrymq.connect` for TLS. Raises ValueError if options do not
        fit together, or a file cannot be used."""
        arguments: ConnectionArguments = {}
        if not any(self):
            return arguments
        urls = parse_urls(url)
        for one in urls:
            if not one.secure:
                raise ValueError(
                    f"--ca, --cert and --no-verify are for amqps:// and wss://, not for {one}"
                )
        arguments["ssl"] = self.context()
        if self.cert is not None and all(one.username is None for one in urls):
            arguments["sasl"] = [External(), Anonymous()]
        return arguments

    def context(self) -> ssl.SSLContext:
        """Return the TLS context. Raises as `arguments` does."""
        if self.key is not None and self.cert is None:
            raise ValueError("--key needs --cert")
        if self.no_verify and self.ca is not None:
            raise ValueError("--ca and --no-verify exclude each other")
        context = ssl.create_default_context()
        if self.no_verify:
            sys.stderr.write(
                "ferrymq: WARNING: --no-verify: the certificate of the broker is not checked; "
                "an attacker may get all data, passwords too\n"
            )
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.ca is not None:
            # Trust no other authority.
            context = ssl.create_default_context(cafile=self._read(self.ca))
        if self.cert is not None:
            key = None if self.key is None else self._read(self.key)
            try:
                context.load_cert_chain(self._read(self.cert), key, lambda: "")
            except ssl.SSLError as error:
                reason = (error.reason or "no certificate with its key").lower().replace("_", " ")
                raise ValueError(f"{self.cert}: {reason}") from None
        return context

    @staticmethod
    def _read(path: Path) -> Path:
        """Check that a file can be read and has PEM in it, and return its path."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
        if b"-----BEGIN " not in content:
            raise ValueError(f"{path}: the file has no PEM text")
        return path
