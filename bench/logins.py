"""`python -m bench.logins`: connect to a broker repeatedly, one connection at a time.

A connection consists of a socket, TLS if the URL has it, SASL, the opens and the closes. The
command prints one JSON object with the `seconds` of all connections, and this process's processor
time, `client_cpu_seconds`.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import sys
import time
from typing import Final
from urllib.parse import urlsplit

from ferrymq.engine.connection import Connection
from ferrymq.engine.sasl import Anonymous, Plain, SaslMechanism
from ferrymq.engine.scram import Scram
from ferrymq.engine.settings import ConnectionSettings

USER: Final = "bench"
PASSWORD: Final = "only measured"
MECHANISMS: Final = ("ANONYMOUS", "PLAIN", "SCRAM-SHA-256")
PATIENCE: Final = 10.0


def mechanism(name: str) -> SaslMechanism:
    """Return a mechanism with its credentials."""
    if name == "ANONYMOUS":
        return Anonymous()
    return Plain(USER, PASSWORD) if name == "PLAIN" else Scram(name, USER, PASSWORD)


def connect(
    host: str, port: int, name: str, tls: ssl.SSLContext | None, hostname: str = ""
) -> None:
    """Make one connection and close it; `hostname` is the virtual host, if it is not the `host`.
    Raises `OSError` if that fails."""
    with _socket(host, port, tls) as transport:
        settings = ConnectionSettings(
            container_id="bench", initiator=True, hostname=hostname or host, sasl=mechanism(name)
        )
        engine = Connection(settings, time.monotonic())
        engine.open()
        closing = False
        while not engine.finished:
            if engine.opened and not closing:
                closing = True
                engine.close()
            data = engine.data_to_send()
            if data:
                transport.sendall(data)
            data = transport.recv(65536)
            if data:
                engine.receive_data(data, time.monotonic())
            else:
                engine.receive_eof(time.monotonic())
        if not closing or engine.failure is not None:
            raise ConnectionError(f"no connection with {name}: {engine.failure}")


def _socket(host: str, port: int, tls: ssl.SSLContext | None) -> socket.socket:
    plain = socket.create_connection((host, port), timeout=PATIENCE)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain if tls is None else tls.wrap_socket(plain, server_hostname=host)


def main(argv: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    made = argparse.ArgumentParser(prog="python -m bench.logins", description=__doc__)
    made.add_argument("--url", required=True, help="the broker")
    made.add_argument("--ca", metavar="FILE", help="CA certificates for an amqps URL")
    made.add_argument("--mechanism", choices=MECHANISMS, default="ANONYMOUS")
    made.add_argument("--hostname", default="", help="the virtual host; default: the URL's host")
    made.add_argument("--count", type=int, default=100, help="connections")
    arguments = made.parse_args(argv)
    url = urlsplit(arguments.url)
    tls = ssl.create_default_context(cafile=arguments.ca) if url.scheme == "amqps" else None
    host, port = url.hostname or "127.0.0.1", url.port or 5672
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(arguments.count):
        connect(host, port, arguments.mechanism, tls, arguments.hostname)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    json.dump({"seconds": took, "client_cpu_seconds": cpu}, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
