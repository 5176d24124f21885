"""An object store in memory that fails on demand: what a real one does once in a million requests, at the request that a test names."""

import contextlib
import hashlib
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from snaprebuild.errors import BusyError, OutcomeUnknownError, RefusedError, SnaprebuildError, WriteFailedError

PUTS_THAT_ALWAYS_FAIL: list[tuple[list[str], list[str], type[SnaprebuildError], str]] = [
    (["409"], [], BusyError, "another run writes"),
    (["503"], [], WriteFailedError, "503 SlowDown"),
    (["403"], [], WriteFailedError, "403 AccessDenied"),
    (["501"], [], RefusedError, "takes no conditional writes"),
    (["500"], [], OutcomeUnknownError, "may still appear"),
    (["drop"], [], OutcomeUnknownError, "may still appear"),
    (["lost"], ["403"], OutcomeUnknownError, "cannot be read back"),
]
"""Faults of a conditional write and of the read that follows, with the error that a writer ends with."""

RESET = struct.pack("ii", 1, 0)
"""``SO_LINGER`` that makes a close a reset."""


HUGE_BYTES = 2_600_000_000
"""Size of an answer with the fault ``huge`` or ``drip``."""

SHUTDOWN_LOOK_SECONDS = 0.005
"""How long a test waits at most until its store ends."""

DRIP_SECONDS = 0.02
"""Between two bytes of an answer with the fault ``drip`` or ``drip-headers``."""


@dataclass
class FaultyStore:
    """Objects by ``bucket/key``, and the faults of the next requests.

    Attributes:
        objects: everything that is there.
        metadata: of each object the headers with what its writer says of it.
        faults: for each method the faults of its next requests, the first one first; the last stays where ``lasting`` names the method.
        lasting: methods that fail for good.
        choose: gives the fault of each request by its method, path and headers, where ``faults`` holds none; it may take its time.
        ignores_conditions: as some stores do, without an error; ``ignores_if_match`` that of a PUT alone.
        released: requests with the fault ``late`` are answered once it is set, or after ``late_seconds_max``; a PUT was done by then.
        seen: method, path and headers of every request.
        order: of the keys in a listing.
        proves_puts: an answer to a PUT has the MD5 of the object as its ETag, unlike that of an object encrypted with a key of its own.
        page: keys and directories of one answer to a listing.
        at_once: the most requests that were under way at the same time.
        seconds: that each request takes at least.
        poured: bytes that were sent as answers with the fault ``huge``.
        uploads: large objects that were begun and not completed: by upload id the name, and the parts.
    """

    endpoint: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    lasting: set[str] = field(default_factory=set)
    choose: Callable[[str, str, dict[str, str]], str] = lambda *_: ""
    ignores_conditions: bool = False
    ignores_if_match: bool = False
    released: threading.Event = field(default_factory=threading.Event)
    late_seconds_max: float = 30.0
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    order: Callable[[list[str]], list[str]] = sorted
    proves_puts: bool = True
    page: int = 1000
    at_once: int = 0
    seconds: float = 0.0
    under_way: int = 0
    poured: int = 0
    uploads: dict[str, tuple[str, dict[int, bytes]]] = field(default_factory=dict)

    def fault(self, method: str) -> str:
        """The fault of this request, or an empty text."""
        waiting = self.faults.get(method, [])
        if not waiting:
            return ""
        return waiting[0] if len(waiting) == 1 and method in self.lasting else waiting.pop(0)

    def ranges(self) -> list[str]:
        """The ranges asked for, in order."""
        return [headers["range"] for method, _, headers in self.seen if method == "GET" and "range" in headers]

    def methods(self) -> list[str]:
        """Methods of all requests."""
        return [method for method, _, _ in self.seen]


def objects_below(root: Path, prefix: str) -> dict[str, bytes]:
    """The files below a directory as the objects below a prefix, ``BUCKET/PREFIX``."""
    return {f"{prefix}/{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()}


def etag_of(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each body waits 40 ms for the acknowledgement of its headers
    store: FaultyStore
    lock: threading.Lock

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""

    def _begin(self) -> tuple[str, str]:
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.lock:
            self.store.seen.append((self.command, self.path, headers))
            self.store.under_way += 1
            self.store.at_once = max(self.store.at_once, self.store.under_way)
            fault = self.store.fault(self.command)
        time.sleep(self.store.seconds)
        with self.lock:
            self.store.under_way -= 1
        path = unquote(urlsplit(self.path).path)[1:]
        return path, fault or self.store.choose(self.command, path, headers)

    def _answer(self, status: int, body: bytes = b"", cut: int | None = None, **headers: str) -> None:
        self.send_response(status)
        if length := headers.pop("length", str(len(body))):
            self.send_header("Content-Length", length)
        else:
            self.send_header("Connection", "close")
        self.send_header("x-amz-request-id", "REQUEST0815")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>hunter2</Message></Error>".encode())

    def _drop(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.close_connection = True
        self.connection.close()

    def _failed(self, fault: str) -> bool:
        codes = {"503": "SlowDown", "500": "InternalError", "409": "ConditionalRequestConflict", "412": "PreconditionFailed"}
        codes |= {"403": "AccessDenied", "501": "NotImplemented"}
        if fault in codes:
            self._error(int(fault), codes[fault])
        elif fault == "drop":
            self._drop()
        return fault in codes or fault == "drop"

    def _without_end(self, fault: str) -> bool:
        """Sends an answer that does not end before the client leaves, or the store is ``released``."""
        if fault not in ("drip", "drip-headers", "huge"):
            return False
        self.close_connection = True
        first, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        span = f"Content-Range: bytes {first}-{last}/{HUGE_BYTES}\r\n" if last else ""
        length = int(last) - int(first) + 1 if last else HUGE_BYTES
        rest = "X: " if fault == "drip-headers" else f'ETag: "x"\r\n{span}Content-Length: {length}\r\n\r\n'
        self.wfile.write(f"HTTP/1.1 {206 if last else 200} OK\r\n{rest}".encode())
        block = b" " * (1 << 20) if fault == "huge" else b"x"
        with contextlib.suppress(OSError):
            while fault == "huge" or not self.store.released.is_set():
                if fault != "huge":
                    time.sleep(DRIP_SECONDS)  # a wait with a timeout does not end where faketime moves the clock
                self.wfile.write(block)
                with self.lock:
                    self.store.poured += len(block)
        return True

    def do_GET(self) -> None:
        name, fault = self._begin()
        if self._failed(fault) or self._without_end(fault):
            return
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if "uploads" in query or "uploadId" in query:
            self._list_uploads(name, query.get("uploadId", [""])[0])
            return
        if "list-type" in query:
            if fault in ("endless", "endless-empty"):
                self._list_without_end(query.get("prefix", [""])[0], is_empty=fault == "endless-empty")
                return
            self._list(name.rstrip("/"), {name: values[0] for name, values in query.items()})
            return
        data = None if fault == "gone" else self.store.objects.get(name)
        if data is None:
            self._error(404, "NoSuchKey")
            return
        wanted = self.headers.get("If-Match")
        if wanted not in (None, etag_of(data)) and not self.store.ignores_conditions:
            self._error(412, "PreconditionFailed")
            return
        headers = {"ETag": '"other"' if fault == "etag" else etag_of(data), "Last_Modified": "Sat, 21 Nov 2026 00:00:00 GMT"}
        headers |= self.store.metadata.get(name, {})
        if fault == "unmeasured":
            headers["length"] = ""
        span = None if fault == "whole" else self.headers.get("Range")
        if span is None:
            self._answer(200, data, cut=len(data) // 2 if fault == "short" else None, **headers)
            return
        first, last = span.removeprefix("bytes=").split("-")
        start = int(first) if first else max(len(data) - int(last), 0)
        end = min(int(last) + 1, len(data)) if first else len(data)
        if fault == "range":
            start, end = start + 1, end + 1
        if fault == "late":
            self.store.released.wait(self.store.late_seconds_max)
        body = data[start:end]
        headers["Content_Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        self._answer(206, body, cut=len(body) // 2 if fault in ("short", "reset") else None, **headers)
        if fault == "reset":
            self._drop()

    def do_HEAD(self) -> None:
        name, fault = self._begin()
        if self._failed(fault):
            return
        data = self.store.objects.get(name)
        if data is None:
            self._answer(404)
            return
        headers = {"ETag": etag_of(data), "Last_Modified": "Sat, 21 Nov 2026 00:00:00 GMT", **self.store.metadata.get(name, {})}
        self._answer(200, b"", None, length=str(len(data)), **headers)

    def do_PUT(self) -> None:
        name, fault = self._begin()
        data = self._body()
        if self._failed(fault):
            return
        query = parse_qs(urlsplit(self.path).query)
        if "uploadId" in query:
            self.store.uploads[query["uploadId"][0]][1][int(query["partNumber"][0])] = data
            self._answer(200, ETag=etag_of(data))
            return
        with self.lock:
            there = self.store.objects.get(name)
            taken = there is not None and self.headers.get("If-None-Match") == "*" and not self.store.ignores_conditions
            wanted = self.headers.get("If-Match")
            gone = wanted is not None and there is None
            taken |= there is not None and wanted not in (None, etag_of(there)) and not self.store.ignores_if_match
            if not (taken or gone):
                self.store.objects[name] = b"another's" if fault == "another" else data
                said = {header.lower(): value for header, value in self.headers.items()}
                self.store.metadata[name] = {header: said[header] for header in said if header.startswith("x-amz-meta-")}
        if fault == "late":
            self.store.released.wait(self.store.late_seconds_max)
        if fault in ("lost", "another"):
            self._drop()
        elif gone:
            self._error(404, "NoSuchKey")
        elif taken:
            self._error(412, "PreconditionFailed")
        else:
            self._answer(200, ETag=etag_of(data if self.store.proves_puts else data + b"key"))

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return data
        size, _, rest = data.partition(b"\r\n")
        return rest[: int(size.split(b";")[0], 16)]

    def do_DELETE(self) -> None:
        name, fault = self._begin()
        if self._failed(fault):
            return
        upload_id = parse_qs(urlsplit(self.path).query).get("uploadId")
        if upload_id is None:
            self.store.objects.pop(name, None)
        else:
            self.store.uploads.pop(upload_id[0], None)
        self._answer(204)

    def do_POST(self) -> None:
        """Begins or completes a large object."""
        name, fault = self._begin()
        self._body()
        if self._failed(fault):
            return
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if "uploads" in query:
            upload_id = f"upload-{len(self.store.seen)}"
            self.store.uploads[upload_id] = name, {}
            self._answer(200, f"<R><UploadId>{upload_id}</UploadId></R>".encode())
            return
        if query["uploadId"][0] not in self.store.uploads:
            self._error(404, "NoSuchUpload")
            return
        if name in self.store.objects and self.headers.get("If-None-Match") == "*" and not self.store.ignores_conditions:
            self._error(412, "PreconditionFailed")
            return
        _, parts = self.store.uploads.pop(query["uploadId"][0])
        self.store.objects[name] = b"".join(parts[number] for number in sorted(parts))
        if fault == "lost":
            self._drop()
        else:
            self._answer(200, b"<R></R>")

    def _list_uploads(self, name: str, upload_id: str) -> None:
        """The uploads of a bucket, or the parts of one."""
        if upload_id:
            rows = "".join(
                f"<Part><PartNumber>{number}</PartNumber><Size>{len(data)}</Size><ETag>{etag_of(data)}</ETag></Part>"
                for number, data in self.store.uploads[upload_id][1].items()
            )
        else:
            bucket = f"{name.rstrip('/')}/"
            rows = "".join(
                f"<Upload><Key>{key.removeprefix(bucket)}</Key><UploadId>{each}</UploadId>"
                "<Initiated>2026-11-21T00:00:00.000Z</Initiated></Upload>"
                for each, (key, _) in self.store.uploads.items()
            )
        self._answer(200, f"<R>{rows}</R>".encode())

    def _list_without_end(self, prefix: str, *, is_empty: bool) -> None:
        """One page of a listing to which another one always follows."""
        number = len(self.store.seen)
        status = "<Size>1</Size><ETag>x</ETag><LastModified>2026-11-21T00:00:00.000Z</LastModified>"
        keys = [] if is_empty else [f"{prefix}{number:012d}-{each:012d}" for each in range(self.store.page)]
        rows = "".join(f"<Contents><Key>{quote(key)}</Key>{status}</Contents>" for key in keys)
        following = f"<NextContinuationToken>{number}</NextContinuationToken><EncodingType>url</EncodingType>"
        text = f"<ListBucketResult><IsTruncated>true</IsTruncated>{following}{rows}</ListBucketResult>"
        self._answer(200, text.encode())

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        prefix = query.get("prefix", "")
        keys = [name.removeprefix(f"{bucket}/") for name in self.store.objects if name.startswith(f"{bucket}/{prefix}")]
        found: dict[str, str] = {}
        for key in self.store.order(keys):
            directory, slash, _ = key[len(prefix) :].partition("/")
            if slash and query.get("delimiter") == "/":
                found[f"{prefix}{directory}/"] = (
                    f"<CommonPrefixes><Prefix>{quote(f'{prefix}{directory}/')}</Prefix></CommonPrefixes>"
                )
                continue
            data = self.store.objects[f"{bucket}/{key}"]
            status = f"<Size>{len(data)}</Size><ETag>{etag_of(data)}</ETag><LastModified>2026-11-21T00:00:00.000Z</LastModified>"
            found[key] = f"<Contents><Key>{quote(key)}</Key>{status}</Contents>"
        after = unquote(query.get("continuation-token", "")) or query.get("start-after", "")
        rows = [each for each in found.items() if each[0] > after or self.store.order is not sorted]
        page, rest = rows[: self.store.page], rows[self.store.page :]
        following = f"<NextContinuationToken>{quote(page[-1][0])}</NextContinuationToken>" if rest else ""
        following += "<EncodingType>url</EncodingType>"  # as the SDK asks for: XML has no place for some characters
        truncated = f"<IsTruncated>{'true' if rest else 'false'}</IsTruncated>{following}"
        self._answer(200, f"<ListBucketResult>{truncated}{''.join(row for _, row in page)}</ListBucketResult>".encode())


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Who asked may be gone; tests look at what is reported on stderr."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextlib.contextmanager
def faulty_store() -> Iterator[FaultyStore]:
    """Runs one on loopback."""
    store = FaultyStore()
    handler = type("Handler", (_Handler,), {"store": store, "lock": threading.Lock()})
    with _Server(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        store.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(SHUTDOWN_LOOK_SECONDS,), daemon=True)
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            thread.join()
