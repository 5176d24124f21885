"""Object stores that speak S3, by the requests of ``s3.requests``; ``s3.multipart`` and ``s3.replace`` are for few commands.

Requests: ListObjectsV2, HeadObject, GetObject (of ranges, with If-Match), PutObject (with a checksum and If-None-Match, or If-Match
for ``s3.replace``). In addition, a DeleteObject of a probe of our own, once for each place that is written to.
Credentials come from the usual chain of the SDK and appear in no message. Messages repeat only codes, names of exceptions and
request ids of the SDK or a store.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from formats.partition.file_names import parse_file_name
from snaprebuild.errors import (
    AlreadyExistsError,
    BusyError,
    OutcomeUnknownError,
    ReadFailedError,
    RefusedError,
    WriteFailedError,
)
from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3.listing import Listing
from snaprebuild.storage.s3.object_bytes import PIECE_BYTES, ObjectBytes, ReadInto
from snaprebuild.storage.s3.request_limits import meter_of
from snaprebuild.storage.s3.requests import (
    ATTEMPTS,
    PROBE_DATA,
    RUN_KEY,
    PutOutcome,
    access_of,
    already_exists,
    attempted,
    bucket_and_key,
    client_of,
    is_gone,
    length_of,
    md5,
    modified_ns_of,
    object_changed,
    outcome_unknown,
    payer_of,
    put_outcome,
    read_failed,
    reading,
    redacted,
    status_of,
)
from snaprebuild.storage.store import FileIdentity, ObjectStatus, OpenBytes, Ownership, S3Settings, WholeObject, parts_of
from snaprebuild.storage.thread_pool import map_in_threads

if TYPE_CHECKING:
    from snaprebuild.storage.s3.multipart import MultipartUpload
    from snaprebuild.storage.s3.replace import Replacement

__all__ = ["PROBE_NAME", "S3Store"]

log = logging.getLogger(__name__)

PROBE_NAME = ".snaprebuild-probe-"
"""Prefix of the objects that test whether a store honours conditions; they are deleted at once."""

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")

_probed: set[tuple[S3Settings, str, str]] = set()
_probed_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class S3Store:
    """Objects; see ``store.Store``. The connection is made when it is first used, once in a process.

    Attributes:
        settings: how it is reached.
        part_bytes: of each part but the last of a large object, sent in one request, and held. At least 5 MiB for S3, which accepts
            10,000 parts: 128 of the default are the largest segment.
    """

    settings: S3Settings = field(default_factory=S3Settings)
    part_bytes: int = 16 << 20

    @property
    def is_local(self) -> bool:
        """False: locations are object keys."""
        return False

    # ------------------------------------------------------------------------------------------------------------ what is there

    def list_below(self, location: str, name_prefix: str = "") -> Iterator[tuple[str, ObjectStatus]]:
        """Path and status of every object below a prefix, ascending by key (``Store.list_below``)."""
        return Listing(location, self.settings).below(name_prefix)

    def present(self, directory: str, names: Iterable[str]) -> frozenset[str]:
        """The names that exist below a prefix (``Store.present``): one request for each."""
        candidates = list(names)
        identities = map_in_threads(self.identity, [os.path.join(directory, name) for name in candidates])
        return frozenset(name for name, identity in zip(candidates, identities, strict=True) if identity is not None)

    def names_in(self, directory: str) -> frozenset[str]:
        """The objects directly below a prefix (``Store.names_in``)."""
        return frozenset(name for page in Listing(directory, self.settings).names() for name in page)

    def holds_segments(self, directory: str) -> bool:
        """Whether segments are directly below a prefix: one request. Segments come first, because their names begin with digits."""
        names = next(Listing(directory, self.settings).names())
        return any(name.endswith(".log") and parse_file_name(name) is not None for name in names)

    def identity(self, location: str) -> FileIdentity | None:
        """Identity of the object that is there now; None if there is none."""
        answer = self._head(location)
        if answer is None:
            return None
        return FileIdentity(length_of(answer, location), modified_ns_of(answer), 0, answer.get("ETag", ""))

    def _head(self, location: str) -> dict[str, Any] | None:
        bucket, key = bucket_and_key(location)
        try:
            answer: dict[str, Any] = client_of(self.settings).head_object(Bucket=bucket, Key=key, **access_of(self.settings))
        except (ClientError, BotoCoreError) as error:
            if is_gone(error):
                return None
            raise read_failed(error, location, "cannot be accessed") from None
        return answer

    # ------------------------------------------------------------------------------------------------------------ reading

    def for_file(self, location: str) -> S3Store:
        """This store: it contains only settings, and can be sent."""
        return self

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        """All bytes of a small object (``Store.read_small``): one request. Its checksum is compared if the store keeps one."""
        content = self._bytes_and_run(location, bytes_max)
        return None if content is None else content[0]

    def _bytes_and_run(self, location: str, bytes_max: int) -> tuple[bytes, str | None] | None:
        """The bytes of an object, and the run that made it, if its metadata have one."""
        content = self.whole(location, bytes_max)
        return None if content is None else (content[0], content[1].get("Metadata", {}).get(RUN_KEY))

    def whole(self, location: str, bytes_max: int) -> tuple[bytes, dict[str, Any]] | None:
        """The bytes of an object, and the fields of the answer (of a GetObject); None when it is absent.

        Raises:
            ReadFailedError, RefusedError: as ``Store.read_small``.
        """
        bucket, key = bucket_and_key(location)

        def get() -> tuple[bytes, dict[str, Any]] | None:
            try:
                answer = client_of(self.settings).get_object(
                    Bucket=bucket, Key=key, ChecksumMode="ENABLED", **access_of(self.settings)
                )
            except ClientError as error:
                if is_gone(error):
                    return None
                raise
            with contextlib.closing(answer["Body"]) as body:
                size = length_of(answer, location)
                if size > bytes_max:
                    raise ReadFailedError(f"has {size} bytes, more than the limit of {bytes_max}", path=location)
                self._count(size)
                return body.read(), answer

        return attempted(get, location, "cannot be read")

    def read_end(self, location: str, count: int) -> tuple[int, bytes] | None:
        """Size of an object and its last bytes (``Store.read_end``): one request, of a range that is counted from the end."""
        bucket, key = bucket_and_key(location)

        def get() -> tuple[int, bytes] | None:
            self._count(count)
            try:
                answer = client_of(self.settings).get_object(
                    Bucket=bucket, Key=key, Range=f"bytes=-{count}", **access_of(self.settings)
                )
            except ClientError as error:
                if is_gone(error):
                    return None
                if status_of(error) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    return 0, b""
                raise
            with contextlib.closing(answer["Body"]) as body:
                if length_of(answer, location) > count:
                    raise ReadFailedError("the store returns more than the requested range", path=location)
                data = body.read()
            content_range = _CONTENT_RANGE.fullmatch(answer.get("ContentRange", ""))
            return (len(data) if content_range is None else int(content_range[3])), data

        return attempted(get, location, "cannot be read")

    def open_bytes(
        self,
        location: str,
        identity: FileIdentity | None = None,
        deadline: float | None = None,
        may_grow: bool = False,
    ) -> ObjectBytes:
        """Opens an object to be read in ranges. With an identity no request is sent before the first byte is read."""
        if identity is None:
            identity = self.identity(location)
            if identity is None:
                raise ReadFailedError("does not exist", path=location, errno=errno.ENOENT)
        if not identity.etag:
            raise ReadFailedError("the store returns no ETag, which would show a change during the read", path=location)
        return ObjectBytes(
            location,
            identity,
            open_range=partial(self._open_range, location, identity),
            attempted=lambda get, what: attempted(get, location, what),
            deadline=deadline,
        )

    @contextlib.contextmanager
    def _open_range(self, location: str, identity: FileIdentity, start: int, count: int) -> Iterator[ReadInto]:
        """The answer to a request for a range, once it is known to be that range: fills memory, and returns the count of bytes."""
        bucket, key = bucket_and_key(location)
        self._count(count)
        last = start + count - 1
        try:
            answer = client_of(self.settings).get_object(
                Bucket=bucket, Key=key, Range=f"bytes={start}-{last}", IfMatch=identity.etag, **access_of(self.settings)
            )
        except ClientError as error:
            if status_of(error) == HTTPStatus.PRECONDITION_FAILED:
                raise object_changed(location) from None
            raise
        with reading(answer["Body"]) as read_into:
            if answer.get("ETag") != identity.etag:  # the store knows no If-Match
                raise object_changed(location)
            content_range = _CONTENT_RANGE.fullmatch(answer.get("ContentRange", ""))
            is_whole = content_range is None and (start, count) == (0, identity.size_bytes)
            if length_of(answer, location) != count or not (
                is_whole or (content_range and (int(content_range[1]), int(content_range[2])) == (start, last))
            ):
                message = f"the store returns another range than the requested bytes {start} to {last}"
                raise ReadFailedError(message, path=location)
            yield read_into

    # ------------------------------------------------------------------------------------------------------------ writing

    def prepare_writes(self, directory: str, largest_bytes: int = 0) -> None:
        """Tests once that the store never replaces an object: one of ours is put twice, and completed twice if parts will be sent."""
        self.probe("create", directory, self._check_create)
        if largest_bytes > self.part_bytes:
            self._parts().prepare(directory)

    def _check_create(self, location: str) -> None:
        try:
            self._create(location, b"snaprebuild: may be deleted. This one must never be seen")
        except AlreadyExistsError:
            return
        message = "the store ignores If-None-Match, so that an object could be replaced: nothing is written here"
        raise RefusedError(message, path=os.path.dirname(location))

    def probe(self, condition: str, directory: str, check: Callable[[str], None]) -> None:
        """Makes sure, once in a process, that the store honours a condition: some stores ignore it and report no error.

        Args:
            condition: name of the condition.
            directory: that is written to.
            check: tests the condition on an object of our own, which is then deleted; raises if it is not honoured.
        """
        with _probed_lock:
            if (self.settings, directory, condition) in _probed:
                return
            location = os.path.join(directory, f"{PROBE_NAME}{secrets.token_hex(8)}")
            self._create(location, PROBE_DATA)
            try:
                check(location)
            finally:
                self._delete_probe(location)
            _probed.add((self.settings, directory, condition))

    def _delete_probe(self, location: str) -> None:
        """Deletes a probe of our own. If that fails, it is only logged."""
        bucket, key = bucket_and_key(location)
        try:
            client_of(self.settings).delete_object(Bucket=bucket, Key=key, **payer_of(self.settings))
        except (ClientError, BotoCoreError, RefusedError) as error:
            log.warning("%s: a probe of the store stays, and may be deleted: %s", location, redacted(error))

    def wrote(self, location: str, since_ns: int) -> bool:
        """Whether this run made an object: the metadata of an object name the run that made it, whatever the clocks show."""
        answer = self._head(location)
        return bool(self.settings.run) and answer is not None and answer.get("Metadata", {}).get(RUN_KEY) == self.settings.run

    def create(
        self,
        directory: str,
        name: str,
        data: bytes,
        *,
        owner: Ownership | None,
        temporary_name: str,
        before_name: Callable[[int], None] | None = None,
    ) -> None:
        """Creates an object (``Store.create``). An object appears whole by itself, and belongs to the owner of the bucket."""
        if before_name is not None:
            before_name(0)
        self._create(os.path.join(directory, name), data)

    def _create(self, location: str, data: bytes) -> None:
        """Puts an object where none is, and makes sure of it."""
        metadata: dict[str, Any] = {"Metadata": {RUN_KEY: self.settings.run}} if self.settings.run else {}
        is_ours = partial(self._is_ours, location, data)
        if not self.put_settled(location, data, is_ours, already_exists(location), IfNoneMatch="*", **metadata):
            self._check_written(location, data)

    def create_large(self, location: str, source: OpenBytes) -> None:
        """Creates an object with the bytes of an open file: in one request if it is no larger than a part."""
        if source.size_bytes > self.part_bytes:
            self._parts().create(location, source)
            return
        self._create(location, b"".join(bytes(part) for part in parts_of(source, self.part_bytes)))

    def holds(self, location: str, source: OpenBytes) -> bool | None:
        """Whether an object has the bytes of an open file: by the ETag if it is a checksum, else by every byte."""
        return self._parts().holds(location, source)

    def read_whole(self, location: str, bytes_max: int) -> WholeObject | None:
        """All bytes of an object with its identity, for ``replace``: one request."""
        return self._replacement().read_whole(location, bytes_max)

    def prepare_replacing(self, directory: str) -> None:
        """Tests once that the store replaces on condition only: with a wrong condition, then with a right one, on an object of ours."""
        self.prepare_writes(directory)
        self._replacement().prepare(directory)

    def replace(self, location: str, data: bytes, was: WholeObject) -> None:
        """Replaces an object that was read whole (``Store.replace``)."""
        self._replacement().replace(location, data, was)

    # Few commands need these two modules.

    def _parts(self) -> MultipartUpload:
        from snaprebuild.storage.s3.multipart import MultipartUpload

        return MultipartUpload(self)

    def _replacement(self) -> Replacement:
        from snaprebuild.storage.s3.replace import Replacement

        return Replacement(self)

    def put_settled(
        self,
        location: str,
        data: bytes,
        is_done: Callable[[str], bool],
        refusal: Exception,
        gone: Exception | None = None,
        **fields: Any,
    ) -> bool:
        """Puts an object under a condition, until the outcome is known. Each attempt is ours, so we know which one took effect.

        Args:
            location: of it.
            data: all of its bytes.
            is_done: called with a reason if an answer was lost: whether our bytes are there. False if another attempt may be made.
            refusal: raised if the condition does not hold.
            gone: raised if there is no such object; None for a failed write.
            fields: of a PutObject: the condition, and what describes the object.

        Returns:
            Whether it is proven that the store has our bytes.

        Raises:
            BusyError: other attempts for the same key are under way.
            WriteFailedError: nothing took effect.
            OutcomeUnknownError: it may have taken effect, or may still.
        """
        may_be_done = False
        reason = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(s3_requests.PAUSE_SECONDS * 2**attempt)
            try:
                outcome, reason = self._put(location, data, **fields)
            except RefusedError as error:
                if not may_be_done:
                    raise
                raise outcome_unknown(location, reason, f", and it cannot be tried again: {error.message}") from None
            if outcome in (PutOutcome.DONE, PutOutcome.UNPROVEN):
                return outcome is PutOutcome.DONE
            if not may_be_done:
                if outcome is PutOutcome.TAKEN:
                    raise refusal
                if outcome is PutOutcome.GONE and gone is not None:
                    raise gone
                if outcome in (PutOutcome.FAILED, PutOutcome.GONE):
                    raise WriteFailedError(f"cannot be written: {reason}", path=location)
            may_be_done |= outcome is PutOutcome.UNKNOWN
            if may_be_done and is_done(reason):
                return True
        if may_be_done:
            raise outcome_unknown(location, reason, ", and it may still appear: check before you try again")
        if outcome is PutOutcome.CONFLICT:
            raise BusyError("another run writes this very object now", path=location)
        raise WriteFailedError(f"cannot be written: {reason}", path=location)

    def _put(self, location: str, data: bytes, **fields: Any) -> tuple[PutOutcome, str]:
        """Attempts once. Returns the outcome, and the reason of a bad one.

        Raises:
            RefusedError: the store knows no conditions, or a limit of the run is used up.
        """
        bucket, key = bucket_and_key(location)
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        try:
            answer = client_of(self.settings, 1).put_object(
                Bucket=bucket, Key=key, Body=data, ChecksumSHA256=digest, **fields, **access_of(self.settings)
            )
        except (ClientError, BotoCoreError) as error:
            if status_of(error) == HTTPStatus.NOT_IMPLEMENTED:
                message = f"the store takes no conditional writes ({redacted(error)}), so that nothing is written"
                raise RefusedError(message, path=location) from None
            return put_outcome(error), redacted(error)
        # The ETag is the MD5 of what was stored, unless that is encrypted by a key of its own.
        is_proven = answer.get("ChecksumSHA256") == digest or answer.get("ETag", "").strip('"') == md5(data)
        return PutOutcome.DONE if is_proven else PutOutcome.UNPROVEN, ""

    def _is_ours(self, location: str, data: bytes, reason: str) -> bool:
        """Reads back after a lost answer: our bytes mean that it was done, no object means that it may be tried again.

        Raises:
            AlreadyExistsError: another object is there.
            OutcomeUnknownError: it cannot be read either.
        """
        try:
            content = self._bytes_and_run(location, max(len(data), PIECE_BYTES))
        except (ReadFailedError, RefusedError) as error:
            raise outcome_unknown(location, reason, f", and it cannot be read back: {error.message}") from None
        if content is None:
            return False
        there, run = content
        if there != data or (run or self.settings.run) != self.settings.run:
            raise already_exists(location)
        return True

    def _check_written(self, location: str, data: bytes) -> None:
        try:
            content = self.read_small(location, max(len(data), PIECE_BYTES))
        except (ReadFailedError, RefusedError) as error:
            raise OutcomeUnknownError(f"was written, and cannot be read back: {error.message}", path=location) from None
        if content != data:
            what = "is not there" if content is None else "holds other bytes"
            raise OutcomeUnknownError(f"was written, and {what} when it is read back", path=location)

    def _count(self, count: int) -> None:
        meter_of(self.settings.run).read(count, self.settings.max_read_bytes)
