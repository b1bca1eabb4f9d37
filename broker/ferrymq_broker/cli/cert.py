"""``ferrymq cert``."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ferrymq_broker.cli.options import Json
from ferrymq_broker.config.errors import ConfigError

if TYPE_CHECKING:
    from ferrymq_broker.security.dev_ca import Authority

_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
# The least lifetime of an authority in days. It lasts at least as long as its certificates.
_AUTHORITY_DAYS: Final = 365
# The name of a client is used for a file too, and a common name has at most 64 characters.
_CLIENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def cert(
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="The directory for the files.", show_default=False
        ),
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="A name or an address of the server; repeatable. The default is this machine.",
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option("--client", metavar="NAME", help="Make one for this client too; repeatable."),
    ] = None,
    days: Annotated[
        int, typer.Option(min=1, max=3650, metavar="N", help="How many days they are valid.")
    ] = 90,
    force: Annotated[
        bool, typer.Option("--force", help="Replace certificates of servers and clients.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make certificates for development: an authority, one for the server, some for clients.

    An authority that exists in DIR signs the new certificates. Nothing is replaced without --force,
    and the authority never is.
    """
    from ferrymq_broker.security.dev_ca import Authority

    for name in client or []:
        if not _CLIENT.fullmatch(name):
            raise typer.BadParameter(
                f"{name!r}: use at most 64 letters, digits and . _ @ -", param_hint="--client"
            )
    files = _Files(out, force)
    hosts = list(host or ())
    if not hosts and not (client and (out / "server.pem").exists()):
        hosts = list(_HOSTS)
    wanted = [f"client-{name}" for name in client or []]
    files.check(wanted + (["server"] if hosts else []))
    out.mkdir(parents=True, exist_ok=True)
    authority, made = _authority(Authority, files, days)
    try:
        server = authority.server(hosts, days) if hosts else None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--host") from None
    if made:
        files.write("ca", authority.pem, authority.key_pem)
    if server is not None:
        files.write("server", *server)
    for name in dict.fromkeys(client or ()):
        files.write(f"client-{name}", *authority.client(name, days))
    if as_json:
        sys.stdout.write(json.dumps({"directory": str(out), "files": files.written}) + "\n")
    else:
        _explain(out, files.written, hosts, list(dict.fromkeys(client or ())))


def _authority(kind: type[Authority], files: _Files, days: int) -> tuple[Authority, bool]:
    """Load or make the authority. Return it, and whether it is new."""
    certificate, key = files.paths("ca")
    if not certificate.exists() and not key.exists():
        return kind.create("ferrymq development authority", max(days, _AUTHORITY_DAYS)), True
    try:
        return kind.load(certificate.read_bytes(), key.read_bytes()), False
    except ValueError as error:
        raise ConfigError(
            f"{certificate}: this authority cannot be used: {error}; use another directory"
        ) from None


class _Files:
    """Certificates and keys in one directory."""

    def __init__(self, out: Path, force: bool) -> None:
        self._out = out
        self._force = force
        self.written: list[str] = []

    def paths(self, name: str) -> tuple[Path, Path]:
        """Return the paths of a certificate and its key."""
        return self._out / f"{name}.pem", self._out / f"{name}-key.pem"

    def check(self, names: list[str]) -> None:
        """Raise `ConfigError` if a file exists and --force is not set."""
        for name in names:
            for path in self.paths(name):
                if path.exists() and not self._force:
                    raise ConfigError(f"{path} exists already; --force replaces it")

    def write(self, name: str, certificate: bytes, key: bytes) -> None:
        """Write a certificate and its key. Only the owner may read the key."""
        for path, data, mode in zip(
            self.paths(name), (certificate, key), (0o644, 0o600), strict=True
        ):
            new = path.with_name(f".{path.name}.new")
            new.unlink(missing_ok=True)
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(data)
            os.replace(new, path)
            self.written.append(path.name)


def _explain(out: Path, written: list[str], hosts: list[str], clients: list[str]) -> None:
    where = out.resolve()
    lines = [f"in {out}: {', '.join(written)}", ""]
    if hosts:
        lines += [
            f"The server is {', '.join(hosts)}. In the configuration of the broker:",
            "",
            "  [[listener]]",
            f'  url = "amqps://{_in_url(hosts[0])}"',
            "",
            "  [tls]",
            f"  certificate = {json.dumps(str(where / 'server.pem'))}",
            f"  key = {json.dumps(str(where / 'server-key.pem'))}",
        ]
        if clients:
            lines += [
                f"  client-ca = {json.dumps(str(where / 'ca.pem'))}",
                '  client-certificates = "optional"',
                "",
                "  [[security.certificate-rule]]",
                '  name-from = "subject-cn"',
            ]
        lines.append("")
    url = f"amqps://{_in_url(hosts[0] if hosts else 'localhost')}"
    lines.append("A client:")
    lines.append("")
    command = f"  ferrymq send --url {url} --ca {out / 'ca.pem'}"
    if clients:
        certificate = out / f"client-{clients[0]}.pem"
        command += f" --cert {certificate} --key {out / f'client-{clients[0]}-key.pem'}"
    lines.append(f"{command} ADDRESS BODY")
    lines.append("")
    lines.append(f"{out / 'ca-key.pem'} signs further certificates: keep it secret.")
    sys.stdout.write("\n".join(lines) + "\n")


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
