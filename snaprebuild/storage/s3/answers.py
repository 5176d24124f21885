"""Answers of an object store may differ from those of S3: a gateway may leave out a field, or send a page of its own.

The SDK parses them, and Python raises various errors for a wrong number, date or text. Here all of these become one error of the
SDK. The caller handles that one: it reads again, or the outcome of its write is unknown.
What an error that a store reports means, such as a lack of permission, is in ``storage.s3.requests``.
The SDK itself waits as long as a byte comes now and then, and holds any number of bytes. Here each answer has a deadline, and each
that is held whole has a limit of bytes.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool, AWSResponse
from botocore.exceptions import BotoCoreError, ReadTimeoutError, ResponseStreamingError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError
from urllib3.exceptions import ReadTimeoutError as NoBytesError

__all__ = ["ANSWER_BYTES_MAX", "ANSWER_SECONDS", "LargeAnswerError", "MalformedAnswerError", "check_answers", "limit_answers"]

ANSWER_SECONDS = 60.0
"""Time that an answer may keep its reader waiting in all; each ``LEAST_BYTES_PER_SECOND`` bytes that arrive add a second."""

LEAST_BYTES_PER_SECOND = 16 << 10
"""Least rate of one connection. With 16 at once on a line of 2.5 Mbit/s each has more."""

ANSWER_BYTES_MAX = 8 << 20
"""An answer that is held whole: a listing, or an error. 1,000 keys of 1,024 bytes, each byte coded as three, take 3.5 MiB."""

PIECE_BYTES = 64 << 10

FIRST_ERROR_STATUS = 300

_RAISED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, ResponseParserError)

_NEEDED: Mapping[str, Mapping[str, type]] = {
    "HeadObject": {"LastModified": datetime},
    "CreateMultipartUpload": {"UploadId": str},
    "UploadPart": {"ETag": str},
}
_ROWS: Mapping[str, Mapping[str, type]] = {
    "Contents": {"Key": str, "Size": int, "LastModified": datetime},
    "CommonPrefixes": {"Prefix": str},
    "Uploads": {"Key": str, "UploadId": str, "Initiated": datetime},
    "Parts": {"PartNumber": int, "Size": int, "ETag": str},
    "Versions": {"Key": str, "Size": int, "LastModified": datetime},
    "DeleteMarkers": {"Key": str, "LastModified": datetime},
}
"""Required fields: of an answer, by operation, and of each row of a list, by its name."""


class MalformedAnswerError(BotoCoreError):  # type: ignore[misc]
    """An answer that S3 never gives."""

    fmt = "the answer to {operation} is none of S3"


class LargeAnswerError(BotoCoreError):  # type: ignore[misc]
    """An answer that is held whole and has more than ``ANSWER_BYTES_MAX`` bytes."""

    fmt = "the answer has more than {bytes_max} bytes"


def limit_answers(client: Any) -> None:
    """From now on answers to a client of the SDK have a deadline (its ``ReadTimeoutError``) and a limit of bytes (``LargeAnswerError``)."""
    # There is no public way: the SDK has no limit for the bytes and the time of an answer.
    session = client._endpoint.http_session
    session._pool_classes_by_scheme.update(http=_HttpPool, https=_TlsPool)
    send = session.send

    def limited(request: Any) -> Any:
        is_streamed = request.stream_output
        request.stream_output = True
        answer = send(request)
        if is_streamed and answer.status_code < FIRST_ERROR_STATUS:
            return answer
        body = _HeldBody(_whole(answer.raw, request.url))
        return AWSResponse(answer.url, answer.status_code, answer.headers, body)

    session.send = limited


def _whole(body: Any, url: str) -> bytes:
    pieces = []
    size = 0
    try:
        for piece in body.stream(PIECE_BYTES):
            size += len(piece)
            if size > ANSWER_BYTES_MAX:
                body.close()
                raise LargeAnswerError(bytes_max=ANSWER_BYTES_MAX)
            pieces.append(piece)
    except NoBytesError as error:
        raise ReadTimeoutError(endpoint_url=url, error=error) from None
    except HTTPError as error:
        raise ResponseStreamingError(error=error) from None
    return b"".join(pieces)


class _HeldBody:
    """The bytes of an answer that is held whole, as the SDK reads them."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def stream(self) -> Iterator[bytes]:
        yield self._data


class _TimedReader(io.RawIOBase):
    """The bytes of a connection, read for one answer. Time that its reader spends between two reads does not count."""

    def __init__(self, raw: socket.SocketIO) -> None:
        self._raw = raw
        self._seconds_left = ANSWER_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        began = time.monotonic()
        count = self._raw.readinto(buffer)
        self._seconds_left += (count or 0) / LEAST_BYTES_PER_SECOND - (time.monotonic() - began)
        if self._seconds_left < 0:
            raise TimeoutError("the answer takes too long")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedSocket:
    """A socket from which answers are read with a deadline."""

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected, name)

    def makefile(self, mode: str, buffering: int | None = None) -> io.BufferedReader | io.RawIOBase:
        assert mode == "rb", "answers are read as bytes"
        raw = _TimedReader(self._connected.makefile("rb", 0))
        return raw if buffering == 0 else io.BufferedReader(raw)


class _Timed:
    """A connection over such a socket."""

    sock: Any

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.sock = _TimedSocket(self.sock)


class _Connection(_Timed, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _TlsConnection(_Timed, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _HttpPool(AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _Connection


class _TlsPool(AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = _TlsConnection


def check_answers(client: Any) -> None:
    """From now on a client of the SDK raises ``MalformedAnswerError`` if an answer cannot be parsed, or lacks a required field."""
    # No event of the SDK has an answer that cannot be parsed. Paginators call these methods, too.
    for name, operation in client.meta.method_to_api_mapping.items():
        setattr(client, name, _checked(getattr(client, name), operation))


def _checked(call: Callable[..., Any], operation: str) -> Callable[..., Any]:
    def checked(**request: Any) -> Any:
        try:
            answer = call(**request)
            is_whole = _has(answer, _NEEDED.get(operation, {})) and answer.get("ContentLength", 0) >= 0
            is_whole = is_whole and all(_has(row, kinds) for name, kinds in _ROWS.items() for row in answer.get(name, ()))
        except BotoCoreError:
            raise
        except _RAISED:
            raise MalformedAnswerError(operation=operation) from None
        if not is_whole:
            raise MalformedAnswerError(operation=operation)
        return answer

    return checked


def _has(answer: Mapping[str, Any], kinds: Mapping[str, type]) -> bool:
    return all(isinstance(answer.get(name), kind) and (kind is not int or answer[name] >= 0) for name, kind in kinds.items())
