"""Answers that no S3 gives: all of them are errors of our tree, and name the object."""

import gc
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from snaprebuild.errors import ReadFailedError, SnaprebuildError
from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import FileIdentity, S3Settings

Answer = tuple[int, dict[str, str], bytes]
PLACE = "s3://b/p/a"
DATE = "Mon, 23 Nov 2026 03:00:00 GMT"
ROW = {"Key": "p/a", "Size": "5", "LastModified": "2026-11-23T03:00:00.000Z", "ETag": '"x"'}
HEAD = {"Content-Length": "5", "Last-Modified": DATE, "ETag": '"x"'}


class Saying(ThreadingHTTPServer):
    """Gives one answer to every request."""

    answer: Answer = (200, {}, b"")

    @property
    def store(self) -> S3Store:
        return S3Store(S3Settings(endpoint_url=f"http://127.0.0.1:{self.server_port}", path_style=True, anonymous=True))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as in faulty_store

    def do_GET(self) -> None:
        assert isinstance(self.server, Saying)
        status, headers, body = self.server.answer
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.close_connection = True

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def saying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Saying]:
    monkeypatch.setattr(s3_requests, "PAUSE_SECONDS", 0)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with Saying(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def page(text: str) -> Answer:
    body = f'<?xml version="1.0"?><ListBucketResult>{text}</ListBucketResult>'.encode()
    return 200, {"Content-Length": str(len(body)), "Content-Type": "application/xml"}, body


def row(**changed: str) -> str:
    fields = {name: value for name, value in {**ROW, **changed}.items() if value}
    return f"<Contents>{''.join(f'<{name}>{value}</{name}>' for name, value in fields.items())}</Contents>"


@pytest.mark.parametrize(
    "text",
    [
        *(row(**{name: ""}) for name in ("Key", "Size", "LastModified")),
        *(row(Size=size) for size in ("five", "9" * 5000, "-5")),
        *(row(LastModified=date) for date in ("yesterday", "99999-11-23T03:00:00.000Z", "9" * 400)),
        "<Contents><Key>p/a</Key><Key>p/b</Key></Contents>",
        "<CommonPrefixes></CommonPrefixes>",
    ],
    ids=lambda text: text[:60],
)
def test_listings(saying: Saying, text: str) -> None:
    saying.answer = page(row())
    assert [key for key, _ in saying.store.list_below("s3://b/p")] == ["a"]
    saying.answer = page(text)
    for ask in (lambda: list(saying.store.list_below("s3://b/p")), lambda: saying.store.holds_segments("s3://b/p")):
        with pytest.raises(SnaprebuildError, match="cannot be listed") as reported:
            ask()
        assert reported.value.path is not None


def opened_and_read(store: S3Store) -> int:
    with store.open_bytes(PLACE, FileIdentity(5, 0, 0, '"x"')) as source:
        return source.read_into(0, memoryview(bytearray(5)))


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # the SDK leaves to the collector what it cannot parse
@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({}, []),
        ({"Content-Length": "five"}, ["identity", "small", "end", "open", "whole"]),
        ({"Content-Length": "9" * 5000}, ["identity", "small", "end", "open", "whole"]),
        ({"Last-Modified": "yesterday"}, ["identity", "small", "end", "open", "whole"]),
        ({"Last-Modified": ""}, ["identity", "whole"]),
        ({"Content-Range": "bytes 0-4/" + "9" * 5000}, []),
        ({"Content-Range": "bytes " + "9" * 5000 + "-4/5"}, []),  # all of it came, whatever it is called
    ],
    ids=["whole", "length-text", "length-long", "date-text", "no-date", "range-long", "range-start-long"],
)
def test_objects(saying: Saying, changed: dict[str, str], refused: list[str]) -> None:
    store = saying.store
    asks: dict[str, Callable[[], object]] = {
        "identity": lambda: store.identity(PLACE),
        "small": lambda: store.read_small(PLACE, 100),
        "end": lambda: store.read_end(PLACE, 5),
        "open": lambda: opened_and_read(store),
        "whole": lambda: store.read_whole(PLACE, 100),
    }
    headers = {name: value for name, value in {**HEAD, **changed}.items() if value}
    saying.answer = 206 if "Content-Range" in headers else 200, headers, b"hello"
    reported = []
    for name, ask in asks.items():
        try:
            ask()
        except ReadFailedError:
            reported.append(name)
    gc.collect()
    assert reported == refused
