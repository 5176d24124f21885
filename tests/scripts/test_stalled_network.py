"""The network of a demonstration, which stops passing answers so that a run waits for ever and can be killed."""

import socket
import threading
from urllib.parse import urlsplit

from stalled_network import BLOCK_BYTES, stalled_network

SECONDS = 60.0
ANSWER_BLOCKS = 5
PASSED_BLOCKS = 2


def answer(listener: socket.socket) -> None:
    """Answers one request with more than the network passes."""
    client, _ = listener.accept()
    with client:
        assert client.recv(100) == b"request"
        client.sendall(b"a" * ANSWER_BLOCKS * BLOCK_BYTES)


def test_so_many_bytes_of_answers_pass_and_then_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer, args=(listener,), daemon=True)
        server.start()
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with stalled_network(endpoint, PASSED_BLOCKS * BLOCK_BYTES) as network:
            port = urlsplit(network.endpoint).port
            with socket.create_connection(("127.0.0.1", port or 0), timeout=SECONDS) as client:
                client.sendall(b"request")
                assert network.stalled.wait(SECONDS)
                client.shutdown(socket.SHUT_WR)
                network.close()
                received = b"".join(iter(lambda: client.recv(BLOCK_BYTES), b""))
        server.join(SECONDS)
    assert 0 < len(received) <= PASSED_BLOCKS * BLOCK_BYTES
