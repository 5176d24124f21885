"""A network between a program and its server that passes so many bytes of answers, and then none: the program waits for ever."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

BLOCK_BYTES = 4096


class StalledNetwork:
    """Connections to one server.

    Attributes:
        endpoint: URL that leads through this network.
        stalled: set when no byte passes any more.
    """

    def __init__(self, endpoint: str, bytes_max: int) -> None:
        """Listens on loopback.

        Args:
            endpoint: URL of the server, with its port.
            bytes_max: bytes of answers that pass.
        """
        server = urlsplit(endpoint)
        assert server.hostname is not None
        assert server.port is not None
        self._server = (server.hostname, server.port)
        self._left = bytes_max
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.stalled = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Ends all connections."""
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                threading.Thread(target=self._pass_requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pass_answers, args=(server, client), daemon=True).start()

    @staticmethod
    def _pass_requests(client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(BLOCK_BYTES):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _pass_answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(BLOCK_BYTES):
                if not self._may_pass(len(data)):
                    self.stalled.set()
                    return
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)

    def _may_pass(self, count: int) -> bool:
        with self._lock:
            self._left -= count
            return self._left >= 0


@contextlib.contextmanager
def stalled_network(endpoint: str, bytes_max: int) -> Iterator[StalledNetwork]:
    """A network that stalls after ``bytes_max`` bytes of answers from the server at a URL."""
    network = StalledNetwork(endpoint, bytes_max)
    try:
        yield network
    finally:
        network.close()
