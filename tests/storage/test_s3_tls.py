"""A TLS connection that breaks in the middle of a body, as one does whose bytes were changed on the way: the read is repeated."""

import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from certificates import certificate

from snaprebuild.errors import ReadFailedError
from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import FileIdentity, S3Settings

PLACE = "s3://b/p/a"
DATA = bytes(place % 251 for place in range(300_000))
NO_RECORD = b"no record of TLS" * 16
IDENTITY = FileIdentity(len(DATA), 0, 0, '"x"')


class TlsServer(ThreadingHTTPServer):
    """Has one object. Its connections break in the middle of the next ``breaks`` bodies."""

    breaks = 0
    requests = 0

    @property
    def store(self) -> S3Store:
        return S3Store(S3Settings(endpoint_url=f"https://127.0.0.1:{self.server_port}", path_style=True, anonymous=True))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as in faulty_store

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, TlsServer)
        server.requests += 1
        first, last, status = 0, len(DATA) - 1, 200
        begin, _, end = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        if begin:
            first, last, status = int(begin), int(end), 206
        elif end:
            first, status = len(DATA) - int(end), 206
        self.send_response_only(status)
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Last-Modified", "Mon, 23 Nov 2026 03:00:00 GMT")
        self.send_header("ETag", '"x"')
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(DATA)}")
        self.end_headers()
        body = DATA[first : last + 1]
        if not server.breaks:
            self.wfile.write(body)
            return
        server.breaks -= 1
        self.wfile.write(body[: len(body) // 2])
        with open(self.connection.fileno(), "wb", buffering=0, closefd=False) as below_tls:
            below_tls.write(NO_RECORD)
        self.close_connection = True

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TlsServer]:
    alone, with_key = certificate(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(alone))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(s3_requests, "PAUSE_SECONDS", 0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(with_key)
    with TlsServer(("127.0.0.1", 0), _Handler) as running:
        running.socket = context.wrap_socket(running.socket, server_side=True)
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def _range(store: S3Store) -> bytes:
    buffer = bytearray(len(DATA))
    with store.open_bytes(PLACE, IDENTITY) as source:
        return bytes(buffer[: source.read_into(0, memoryview(buffer))])


def _whole(store: S3Store) -> bytes | None:
    return store.read_small(PLACE, len(DATA))


def _end(store: S3Store) -> bytes | None:
    found = store.read_end(PLACE, len(DATA))
    return None if found is None else found[1]


@pytest.mark.parametrize("read", [_range, _whole, _end])
def test_a_connection_that_breaks_below_tls(server: TlsServer, read: Callable[[S3Store], bytes | None]) -> None:
    server.breaks = 1
    assert read(server.store) == DATA
    assert server.requests == 2
    server.breaks = s3_requests.ATTEMPTS
    with pytest.raises(ReadFailedError, match=r"s3://b/p/a: cannot be read.*SSLError"):
        read(server.store)
