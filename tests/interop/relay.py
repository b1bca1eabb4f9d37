"""A cable between a client and the broker, which a test can cut or block."""

from __future__ import annotations

import selectors
import socket
import threading


class Relay:
    """Passes bytes on between clients and `target`, a port on loopback. A thread does the work.

    `cut` breaks every connection as a dying machine would; later ones are served again. While
    `deaf` is set, what clients send is kept back, and only the broker is heard.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake_in, self._wake_out = socket.socketpair()
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._peers: dict[socket.socket, socket.socket] = {}
        self._clients: set[socket.socket] = set()
        self._commands: list[str] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        """What a client connects to."""
        return f"amqp://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break all connections, and return when they are broken."""
        self._command("cut")

    def deafen(self) -> None:
        """From now on, nothing that clients send reaches the broker."""
        self._command("deafen")

    def _command(self, name: str) -> None:
        self._done.clear()
        self._commands.append(name)
        self._wake_out.send(b"!")
        assert self._done.wait(10)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self._wake_in:
                    ready.recv(64)
                    name = self._commands.pop(0)
                    if name == "deafen":
                        for client in self._clients:
                            self._selector.unregister(client)
                    else:
                        self._break_all()
                    self._done.set()
                    if name == "stop":
                        return
                    break
                if ready is self._listener:
                    self._accept()
                elif ready in self._peers:
                    self._pass_on(ready)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", self._target))
        self._clients.add(client)
        for one, other in ((client, server), (server, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, one: socket.socket) -> None:
        other = self._peers[one]
        try:
            data = one.recv(1 << 16)
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        self._break(one)
        self._break(other)

    def _break_all(self) -> None:
        # The broker first: what a client does about it then comes after.
        for client in list(self._clients):
            self._break(self._peers[client])
        for client in list(self._clients):
            self._break(client)

    def _break(self, one: socket.socket) -> None:
        self._peers.pop(one, None)
        self._clients.discard(one)
        if one in self._selector.get_map():
            self._selector.unregister(one)
        one.close()

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._command("stop")
        self._thread.join()
        self._selector.close()
        for end in (self._listener, self._wake_in, self._wake_out):
            end.close()
