"""Requests to an object store: the connection, fields of each request, retries (with the backoff of the SDK), errors.

Messages never repeat text of the SDK or the store that could contain a key, a token, or the password of a URL.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import functools
import hashlib
import logging
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
)
from botocore.loaders import Loader
from botocore.response import StreamingBody
from urllib3.exceptions import HTTPError

from snaprebuild import __version__
from snaprebuild.errors import AlreadyExistsError, ChangedFileError, OutcomeUnknownError, ReadFailedError, UsageError
from snaprebuild.storage.remote.plugin_config import read_access_key
from snaprebuild.storage.s3.answers import ANSWER_BYTES_MAX, ANSWER_SECONDS, LargeAnswerError, check_answers, limit_answers
from snaprebuild.storage.s3.object_bytes import ReadInto
from snaprebuild.storage.s3.request_limits import meter_of
from snaprebuild.storage.store import OBJECT_SCHEME, S3Settings
from snaprebuild.storage.thread_pool import THREADS

__all__ = [
    "ATTEMPTS",
    "PAUSE_SECONDS",
    "PROBE_DATA",
    "RUN_KEY",
    "PutOutcome",
    "ShortBodyError",
    "access_of",
    "already_exists",
    "attempted",
    "bucket_and_key",
    "client_of",
    "code_of",
    "is_gone",
    "length_of",
    "md5",
    "modified_ns_of",
    "object_changed",
    "outcome_unknown",
    "payer_of",
    "put_outcome",
    "read_failed",
    "reading",
    "redacted",
    "status_of",
]

PROBE_DATA = b"snaprebuild: may be deleted"
"""The bytes of an object that tests whether a store honours conditions."""

RUN_KEY = "snaprebuild-run"
"""Metadata field of each object that a run makes: the name of the run."""

ATTEMPTS = 5
"""Attempts at a request that only reads, by the SDK's standard mode; and at a range or object whose body breaks off."""

CONNECT_SECONDS = 10
READ_SECONDS = 60
"""The SDK waits this long for a connection, and for the next bytes of an answer."""

PAUSE_SECONDS = 0.1
"""Pause before the second attempt; twice as long before each later one."""

CLIENTS_MAX = 8
"""Connections that a process keeps: two for each of the stores that it reads and writes at a time."""

KEY_BYTES = 32
"""Size of a customer's key, AES-256."""

KEY_VARIABLE = "SNAPREBUILD_S3_SSE_C_KEY"
"""Environment variable with such a key in base64, used if no file is named."""

ARCHIVED = "InvalidObjectState"
"""Code of an answer about an object in GLACIER, DEEP_ARCHIVE, or an archive tier of INTELLIGENT_TIERING."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HARMLESS = re.compile(r"[A-Za-z0-9._:/+=-]{1,100}")
_GONE = ("404", "NoSuchKey", "NotFound")

_Answer = TypeVar("_Answer")

_clients: OrderedDict[tuple[S3Settings, str, int], Any] = OrderedDict()
_clients_lock = threading.Lock()


def client_of(settings: S3Settings, attempts: int = ATTEMPTS) -> Any:
    """A connection, made at its first use, and kept: the last ``CLIENTS_MAX`` of a process.

    Each run has its own, with the credentials of its time. One that is dropped closes its sockets; code that still has it may
    continue.

    Raises:
        UsageError: the settings allow no connection.
    """
    key = (settings, settings.run, attempts)
    with _clients_lock:
        if key not in _clients:
            _clients[key] = _connected(settings, attempts)
            while len(_clients) > CLIENTS_MAX:
                _clients.popitem(last=False)[1].close()
        _clients.move_to_end(key)
        return _clients[key]


def payer_of(settings: S3Settings) -> dict[str, str]:
    """The field for the payer, if that is not the owner of the bucket."""
    return {"RequestPayer": "requester"} if settings.requester_pays else {}


def access_of(settings: S3Settings) -> dict[str, Any]:
    """Fields of every request for an object."""
    key = _customer_key(settings.sse_c_key_file)
    if key is None:
        return payer_of(settings)
    return {**payer_of(settings), "SSECustomerAlgorithm": "AES256", "SSECustomerKey": key}


class PutOutcome(Enum):
    """The outcome of an attempt to put an object."""

    DONE = "done"
    UNPROVEN = "unproven"
    """Done, but the answer has no checksum to prove that it holds our bytes."""
    TAKEN = "taken"
    """The condition does not hold: a name is taken, or the object is another one."""
    GONE = "gone"
    """There is no such object, or no such bucket."""
    CONFLICT = "conflict"
    """Another attempt for the same key was under way (409): this one took no effect."""
    REPEAT = "repeat"
    """The request took no effect, and may be tried again."""
    FAILED = "failed"
    """The request took no effect, and never will."""
    UNKNOWN = "unknown"
    """The request was sent, and its result is unknown."""


def put_outcome(error: Exception) -> PutOutcome:
    """The outcome of an attempt that ended with an error."""
    status = status_of(error)
    if status == HTTPStatus.PRECONDITION_FAILED:
        return PutOutcome.TAKEN
    if status == HTTPStatus.NOT_FOUND:
        return PutOutcome.GONE
    if status == HTTPStatus.CONFLICT:
        return PutOutcome.CONFLICT
    if status == HTTPStatus.TOO_MANY_REQUESTS or code_of(error) in ("SlowDown", "RequestTimeout"):
        return PutOutcome.REPEAT
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return PutOutcome.FAILED
    if isinstance(error, (EndpointConnectionError, ConnectTimeoutError)):
        return PutOutcome.REPEAT
    if isinstance(error, (NoCredentialsError, PartialCredentialsError, ParamValidationError)):
        return PutOutcome.FAILED
    return PutOutcome.UNKNOWN


def md5(data: bytes) -> str:
    """The MD5 in hexadecimal: stores use it as the ETag of objects without a key of their own."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class ShortBodyError(Exception):
    """The body of an answer ended too early."""


def _connected(settings: S3Settings, attempts: int) -> Any:
    # The SDK writes headers and credentials to its log, which -vv would show.
    for name in ("boto3", "botocore", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    config = Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=2 * THREADS,
        s3={"addressing_style": "path" if settings.path_style else "auto"},
        signature_version=UNSIGNED if settings.anonymous else None,
        user_agent_extra=f"snaprebuild/{__version__}",
    )
    key = None if settings.broker_properties is None else read_access_key(settings.broker_properties)
    try:
        session = boto3.session.Session(profile_name=settings.profile, botocore_session=_sdk_session())
        client = session.client(
            "s3",
            region_name=settings.region,
            endpoint_url=settings.endpoint_url,
            config=config,
            aws_access_key_id=None if key is None else key.key_id,
            aws_secret_access_key=None if key is None else key.secret,
            aws_session_token=None if key is None else key.session_token,
        )
    except ProfileNotFound:
        raise UsageError("s3_profile: the shared configuration files have no such profile") from None
    except (BotoCoreError, ValueError) as error:
        raise UsageError(f"the object store cannot be reached as it is configured ({type(error).__name__})") from None
    endpoint = urlsplit(client.meta.endpoint_url)
    is_secret = endpoint.scheme == "https" or endpoint.hostname in _LOOPBACK
    if not is_secret and _customer_key(settings.sse_c_key_file) is not None:
        place = _key_place(settings.sse_c_key_file)
        raise UsageError(f"{place}: the key would cross the network in the clear; expected an endpoint with https")
    check_answers(client)
    limit_answers(client)
    meter = meter_of(settings.run)
    # Called for each attempt, including those of the SDK.
    client.meta.events.register("before-send.s3", lambda **_: meter.request(settings.max_requests))
    return client


def _sdk_session() -> botocore.session.Session:
    """A session of the SDK, which looks for credentials again."""
    session = botocore.session.Session()
    session.register_component("data_loader", _descriptions())
    return session


@functools.cache
def _descriptions() -> Loader:
    """Descriptions of services, parsed once for all sessions: they take 12 MiB and 70 ms."""
    loader: Loader = botocore.session.Session().get_component("data_loader")
    return loader


def _key_place(path: str | None) -> str:
    return f"${KEY_VARIABLE}" if path is None else "s3_sse_c_key_file"


def _customer_key(path: str | None) -> bytes | None:
    """The key in the file or in the variable, None without one. No message repeats a byte of it, and it is not kept.

    Raises:
        UsageError: the content is no such key.
    """
    if path is None:
        data = os.environb.get(KEY_VARIABLE.encode(), b"")
        if not data:
            return None
    else:
        try:
            with open(path, "rb") as file:
                data = file.read(100)
        except OSError as error:
            raise UsageError(f"s3_sse_c_key_file: cannot be read: {error.strerror}", path=path) from None
    if path is None or len(data) != KEY_BYTES:
        try:
            data = base64.b64decode(data.strip(), validate=True)
        except binascii.Error:
            data = b""
    if len(data) != KEY_BYTES:
        expected = "in base64" if path is None else "raw or in base64"
        raise UsageError(f"{_key_place(path)}: expected {KEY_BYTES} bytes, {expected}", path=path)
    return data


def bucket_and_key(location: str) -> tuple[str, str]:
    """Bucket and key of a location."""
    bucket, _, key = location.removeprefix(OBJECT_SCHEME).partition("/")
    return bucket, key


# ------------------------------------------------------------------------------------------------------------ what goes wrong


def attempted(get: Callable[[], _Answer], location: str, what: str) -> _Answer:
    """Calls ``get`` until an answer is whole. The SDK repeats requests; a body that breaks off is repeated here."""
    for attempt in range(ATTEMPTS):
        try:
            return get()
        except ClientError as error:
            raise read_failed(error, location, what) from None
        # The SDK passes errors of TLS in the middle of a body on as they are.
        except (BotoCoreError, HTTPError, ShortBodyError) as error:
            if attempt + 1 == ATTEMPTS or isinstance(error, (NoCredentialsError, PartialCredentialsError)):
                raise read_failed(error, location, what) from None
            time.sleep(PAUSE_SECONDS * 2**attempt)
    raise AssertionError


@contextlib.contextmanager
def reading(body: StreamingBody) -> Iterator[ReadInto]:
    """The body of an answer, closed at the end; a connection whose body was read to its end is used again.

    Raises:
        ShortBodyError: from the yielded function, if no more bytes come.
    """
    with contextlib.closing(body):
        yield functools.partial(_read_into, body)


def _read_into(body: StreamingBody, buffer: memoryview) -> int:
    # Its `readinto` is younger than the oldest SDK that is allowed, and copies the bytes as well.
    data = body.read(len(buffer))
    if not data:
        raise ShortBodyError
    buffer[: len(data)] = data
    return len(data)


def length_of(answer: Mapping[str, Any], location: str) -> int:
    """Size of an object, or of the range of it in the answer.

    Raises:
        ReadFailedError: the store does not report it, for example because it sends its answers in chunks.
    """
    length = answer.get("ContentLength")
    if length is None:
        raise ReadFailedError(
            "the store does not report the length of its answer, which shows whether the answer is whole", path=location
        )
    return int(length)


def modified_ns_of(answer: Mapping[str, Any]) -> int:
    """When an object was last written, ns since 1970. In whole milliseconds, because it is compared with listings."""
    return int(answer["LastModified"].timestamp() * 1000) * 1_000_000


def already_exists(location: str) -> AlreadyExistsError:
    """The error to raise if a name is taken."""
    return AlreadyExistsError("already exists and was not changed", path=location, name=os.path.basename(location))


def outcome_unknown(location: str, reason: str, more: str) -> OutcomeUnknownError:
    """The error to raise if an answer was lost, and nothing shows whether the write took effect."""
    return OutcomeUnknownError(f"it is not known whether it was written ({reason}){more}", path=location)


def object_changed(location: str) -> ChangedFileError:
    """The error to raise if an object has changed."""
    return ChangedFileError("changed since it was listed (another program is writing here): run again", path=location)


def status_of(error: Exception) -> int:
    """The HTTP status of an answer; 0 if there is none."""
    if isinstance(error, ClientError):
        return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return 0


def code_of(error: Exception) -> str:
    """The code of S3 in an answer, or an empty text."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return ""


def is_gone(error: Exception) -> bool:
    """Whether the answer means that there is no such object."""
    return code_of(error) in _GONE


def read_failed(error: Exception, location: str, what: str) -> ReadFailedError:
    """The error to raise if reading failed."""
    return ReadFailedError(f"{what}: {redacted(error)}", path=location, errno=errno.ENOENT if is_gone(error) else None)


def redacted(error: Exception) -> str:
    """The reason of an error, without text of the SDK or the store that could contain a key, a token, or the password of a URL."""
    if isinstance(error, ClientError):
        if code_of(error) == ARCHIVED:
            return f"the object is archived, and must be restored before it can be read ({status_of(error)} {ARCHIVED})"
        request_id = str(error.response.get("ResponseMetadata", {}).get("RequestId", ""))
        parts = [str(status_of(error) or ""), code_of(error), f"request {request_id}" if request_id else ""]
        return "the store answers " + " ".join(part for part in parts if part and _HARMLESS.fullmatch(part.replace(" ", "")))
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return "no credentials were found in the environment, the shared configuration files, or the machine's role"
    if isinstance(error, ShortBodyError):
        return "the answer breaks off every time"
    if isinstance(error, LargeAnswerError):
        return f"the answer has more than {ANSWER_BYTES_MAX} bytes"
    if isinstance(error, ReadTimeoutError):
        return f"no answer came whole in {ANSWER_SECONDS:g} s ({type(error).__name__})"
    if isinstance(error, (EndpointConnectionError, ConnectTimeoutError)):
        sources = "--s3-endpoint-url, --server-properties, AWS_ENDPOINT_URL or the profile"
        return f"nothing answers at the endpoint ({type(error).__name__}), which {sources} names"
    return f"the store returns an unexpected answer ({type(error).__name__})"
