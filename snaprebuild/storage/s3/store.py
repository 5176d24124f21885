"""Object stores that speak S3, by the requests of ``s3_requests``; ``s3_multipart`` and ``s3_replace`` are for what few verbs need.

What is sent: ListObjectsV2, HeadObject, GetObject (of ranges, with If-Match), PutObject (with a checksum and If-None-Match, or If-Match for
``s3_replace``), and, once for each place that is written to, the DeleteObject of a probe of our own. Credentials come from the usual chain
of the SDK and appear in no message: of what a store or the SDK says, only codes, names of exceptions and request ids are repeated.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import functools
import hashlib
import logging
import os
import re
import secrets
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from itertools import chain, pairwise, takewhile
from typing import Any

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
from snaprebuild.storage.local.atomic_file import Ownership
from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3.object_bytes import ObjectBytes
from snaprebuild.storage.s3.object_stream import PIECE_BYTES, Pace, ReadInto
from snaprebuild.storage.s3.object_tree import ObjectStatus
from snaprebuild.storage.s3.request_limits import meter_of
from snaprebuild.storage.s3.requests import (
    ATTEMPTS,
    PutOutcome,
    access_of,
    attempted,
    bucket_and_key,
    client_of,
    is_gone,
    length_of,
    md5,
    object_changed,
    payer_of,
    put_outcome,
    read_failed,
    reading,
    status_of,
    told,
)
from snaprebuild.storage.store import FileIdentity, S3Settings
from snaprebuild.storage.thread_pool import at_once

__all__ = ["PROBE_NAME", "RUN_KEY", "S3Store"]

log = logging.getLogger(__name__)

DIRECTORIES_ENOUGH, LEVELS_MAX = 32, 4
"""A long listing is parted at directories: at the first level that has so many, and not below this one."""

REQUESTS_OF_RANGE, RANGES_MAX = 4, 64
"""Of a listing that is parted: each range costs one request that is not full."""

KEYS_MAX, ANSWERS_MAX = 10_000_000, 100_000
"""Of one listing, unless ``--max-requests`` limits the run: some 400 bytes of memory for each key, and at least 100 of 1,000 keys an
answer."""

PROBE_NAME = ".snaprebuild-probe-"
"""Begins the names of the objects that tell whether a store honours conditions; they are deleted at once."""

RUN_KEY = "snaprebuild-run"
"""Metadata of each object that a run makes: which one."""

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")

_probed: set[tuple[S3Settings, str]] = set()
_probed_lock = threading.Lock()


@functools.lru_cache
def _pace_of(_settings: S3Settings) -> Pace:
    """Of the connections of this process to a store."""
    return Pace()


@dataclass(slots=True)
class _Listing:
    """What came of one listing so far: a store may give keys without end."""

    location: str
    settings: S3Settings
    keys: int = 0
    answers: int = 0

    def add(self, keys: int) -> None:
        """Counts an answer.

        Raises:
            RefusedError: the listing has more than any should have.
        """
        self.keys += keys
        self.answers += 1
        if self.settings.max_requests is None and (self.keys > KEYS_MAX or self.answers > ANSWERS_MAX):
            message = f"the store lists more than {KEYS_MAX:,} keys, or sends more than {ANSWERS_MAX:,} answers for one listing"
            raise RefusedError(f"{message}: select fewer, or set --max-requests to allow more", path=self.location)


@dataclass(frozen=True, slots=True)
class S3Store:
    """Objects; see ``store.Store``. The connection is made when it is first used, once in a process."""

    settings: S3Settings = field(default_factory=S3Settings)

    @property
    def is_local(self) -> bool:
        """It is not."""
        return False

    # ------------------------------------------------------------------------------------------------------------ what is there

    def list_below(self, location: str, name_prefix: str = "") -> Iterator[tuple[str, ObjectStatus]]:
        """See ``Store.list_below``: ascending by key. What does not fit one answer is listed in several ranges of keys at once."""
        bucket, prefix = bucket_and_key(location)
        prefix = (f"{prefix}/" if prefix else "") + name_prefix
        listing = _Listing(location, self.settings)
        rows, is_whole = self._page(listing, bucket, prefix, "")
        yield from ((name_prefix + key, status) for key, status in rows)
        if is_whole or not rows:
            return
        reached = prefix + rows[-1][0]
        bounds = [reached, *self._bounds(location, bucket, prefix, reached), None]
        listed = partial(self._range_of_keys, listing, bucket, prefix)
        for found in at_once(listed, list(pairwise(bounds))):
            yield from ((name_prefix + key, status) for key, status in found)

    def _range_of_keys(
        self, listing: _Listing, bucket: str, prefix: str, bounds: tuple[str, str | None]
    ) -> list[tuple[str, ObjectStatus]]:
        """Of the keys behind the first bound, up to the second one, that one included."""
        after, last = bounds
        found: list[tuple[str, ObjectStatus]] = []
        is_done = False
        while not is_done:
            rows, is_done = self._page(listing, bucket, prefix, after)
            for row in rows:
                after = prefix + row[0]
                if last is not None and after > last:
                    return found
                found.append(row)
        return found

    def _page(self, listing: _Listing, bucket: str, prefix: str, after: str) -> tuple[list[tuple[str, ObjectStatus]], bool]:
        """One request: keys after ``after`` with their status, and whether they are the last ones."""
        location = listing.location
        start = {"StartAfter": after} if after else {}
        try:
            page = client_of(self.settings).list_objects_v2(Bucket=bucket, Prefix=prefix, **start, **payer_of(self.settings))
        except (ClientError, BotoCoreError) as error:
            raise read_failed(error, location, "cannot be listed") from None
        listing.add(len(page.get("Contents", ())))
        rows = []
        previous = after
        for found in page.get("Contents", ()):
            key = found["Key"]
            if key <= previous or not key.startswith(prefix):
                # Directory buckets of S3 Express do: there a directory would be taken for whole before it is.
                raise ReadFailedError("the store does not list keys in ascending order, which is relied on", path=location)
            previous = key
            mtime_ns = int(found["LastModified"].timestamp() * 1000) * 1_000_000
            storage_class = sys.intern(found.get("StorageClass") or "STANDARD")
            status = ObjectStatus(found["Size"], mtime_ns, found.get("ETag", ""), st_storage_class=storage_class)
            rows.append((key[len(prefix) :], status))
        if page.get("IsTruncated") and not rows:
            raise ReadFailedError("the store gives a listing without end", path=location)
        return rows, not page.get("IsTruncated")

    def _bounds(self, location: str, bucket: str, prefix: str, reached: str) -> list[str]:
        """Directories at which the keys behind ``reached`` are parted, so that each range is some requests long."""
        level = [prefix]
        for _ in range(LEVELS_MAX):
            below = [each for found in at_once(partial(self._directories, location, bucket), level) for each in found]
            level = below or level
            if not below or len(below) >= DIRECTORIES_ENOUGH:
                break
        first = bisect_right(level, reached)
        ahead = level[first:]
        requests = len(ahead) // max(first, 1)  # the first one has passed so many directories
        ranges = min(requests // REQUESTS_OF_RANGE, RANGES_MAX)
        return [ahead[len(ahead) * each // ranges] for each in range(1, ranges)]

    def _directories(self, location: str, bucket: str, prefix: str) -> list[str]:
        """Directly below a prefix, ascending, each with its slash. Where a page holds none, those behind it are not looked for."""
        pages = self._level(location, bucket, prefix)
        some = ([each["Prefix"] for each in page.get("CommonPrefixes", ())] for page in pages)
        return sorted(chain.from_iterable(takewhile(bool, some)))

    def _level(self, location: str, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
        """What lies directly below a prefix, a request for each thousand."""
        listing = _Listing(location, self.settings)
        try:
            pages = client_of(self.settings).get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=bucket, Prefix=prefix, Delimiter="/", **payer_of(self.settings)):
                listing.add(len(page.get("Contents", ())) + len(page.get("CommonPrefixes", ())))
                yield page
        except (ClientError, BotoCoreError) as error:
            raise read_failed(error, location, "cannot be listed") from None

    def present(self, directory: str, names: Iterable[str]) -> frozenset[str]:
        """See ``Store.present``."""
        asked = list(names)
        identities = at_once(self.identity, [os.path.join(directory, name) for name in asked])
        return frozenset(name for name, found in zip(asked, identities, strict=True) if found is not None)

    def names_in(self, directory: str) -> frozenset[str]:
        """See ``Store.names_in``."""
        bucket, key = bucket_and_key(directory)
        prefix = f"{key}/" if key else ""
        return frozenset(
            each["Key"][len(prefix) :] for page in self._level(directory, bucket, prefix) for each in page.get("Contents", ())
        )

    def holds_segments(self, directory: str) -> bool:
        """See ``Store.holds_segments``: one request. Segments stand first, because their names begin with digits."""
        bucket, key = bucket_and_key(directory)
        prefix = f"{key}/" if key else ""
        page = next(self._level(directory, bucket, prefix))
        names = (found["Key"][len(prefix) :] for found in page.get("Contents", ()))
        return any(name.endswith(".log") and parse_file_name(name) is not None for name in names)

    def identity(self, location: str) -> FileIdentity | None:
        """Of the object that is there now; None where there is none."""
        bucket, key = bucket_and_key(location)
        try:
            answer = client_of(self.settings).head_object(Bucket=bucket, Key=key, **access_of(self.settings))
        except (ClientError, BotoCoreError) as error:
            if is_gone(error):
                return None
            raise read_failed(error, location, "cannot be looked at") from None
        mtime_ns = int(answer["LastModified"].timestamp() * 1000) * 1_000_000
        return FileIdentity(length_of(answer, location), mtime_ns, 0, answer.get("ETag", ""))

    # ------------------------------------------------------------------------------------------------------------ reading

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        """See ``Store.read_small``: one request, and its checksum compared where the store keeps one."""
        found = self._small(location, bytes_max)
        return None if found is None else found[0]

    def _small(self, location: str, bytes_max: int) -> tuple[bytes, str | None] | None:
        """The bytes of an object, and which run made it, as far as it says so."""
        found = self.whole(location, bytes_max)
        return None if found is None else (found[0], found[1].get("Metadata", {}).get(RUN_KEY))

    def whole(self, location: str, bytes_max: int) -> tuple[bytes, dict[str, Any]] | None:
        """The bytes of an object, and what the store says with them (the fields of a GetObject); None when it is absent.

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
        """See ``Store.read_end``: one request, of a range that is counted from the end."""
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
                    raise ReadFailedError("the store gives more than the range that was asked for", path=location)
                data = body.read()
            found = _CONTENT_RANGE.fullmatch(answer.get("ContentRange", ""))
            return (len(data) if found is None else int(found[3])), data

        return attempted(get, location, "cannot be read")

    def open_bytes(
        self,
        location: str,
        identity: FileIdentity | None = None,
        deadline: float | None = None,
        may_grow: bool | None = None,
    ) -> ObjectBytes:
        """See ``Store.open_bytes``. With an identity nothing is asked before the first byte is wanted."""
        if identity is None:
            identity = self.identity(location)
            if identity is None:
                raise ReadFailedError("does not exist", path=location, errno=errno.ENOENT)
        if not identity.etag:
            raise ReadFailedError("the store gives no ETag, which would tell whether it changes while it is read", path=location)
        return ObjectBytes(
            location,
            identity,
            body=partial(self._body, location, identity),
            attempted=lambda get, what: attempted(get, location, what),
            pace=_pace_of(self.settings),
            deadline=deadline,
            is_limited=self.settings.max_read_bytes is not None,
        )

    @contextlib.contextmanager
    def _body(self, location: str, identity: FileIdentity, start: int, count: int) -> Iterator[ReadInto]:
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
            found = _CONTENT_RANGE.fullmatch(answer.get("ContentRange", ""))
            is_whole = found is None and (start, count) == (0, identity.size_bytes)
            if length_of(answer, location) != count or not (
                is_whole or (found and (int(found[1]), int(found[2])) == (start, last))
            ):
                message = f"the store gives another range than bytes {start} to {last}, which were asked for"
                raise ReadFailedError(message, path=location)
            yield read_into

    # ------------------------------------------------------------------------------------------------------------ writing

    def prepare_writes(self, directory: str) -> None:
        """See ``Store.prepare_writes``: some stores ignore conditions without a word, so that one of our own objects is put twice."""
        with _probed_lock:
            if (self.settings, directory) in _probed:
                return
            name = f"{PROBE_NAME}{secrets.token_hex(8)}"
            location = os.path.join(directory, name)
            self._create(location, b"snaprebuild: may be deleted")
            try:
                self._create(location, b"snaprebuild: may be deleted. This one must never be seen")
            except AlreadyExistsError:
                _probed.add((self.settings, directory))
            else:
                message = "the store ignores If-None-Match, so that an object could be replaced: nothing is written here"
                raise RefusedError(message, path=directory)
            finally:
                self.delete_probe(location)

    def delete_probe(self, location: str) -> None:
        """Deletes a probe of our own. That it stays is no failure, and logged."""
        bucket, key = bucket_and_key(location)
        try:
            client_of(self.settings).delete_object(Bucket=bucket, Key=key, **payer_of(self.settings))
        except (ClientError, BotoCoreError, RefusedError) as error:
            log.warning("%s: a probe of the store stays, and may be deleted: %s", location, told(error))

    def wrote(self, location: str, since_ns: int) -> bool:
        """See ``Store.wrote``: an object says which run made it, whatever the clocks say."""
        bucket, key = bucket_and_key(location)
        try:
            answer = client_of(self.settings).head_object(Bucket=bucket, Key=key, **access_of(self.settings))
        except (ClientError, BotoCoreError) as error:
            if is_gone(error):
                return False
            raise read_failed(error, location, "cannot be looked at") from None
        return bool(self.settings.run) and answer.get("Metadata", {}).get(RUN_KEY) == self.settings.run

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
        """See ``Store.create``. An object appears whole by itself, and belongs to whoever owns the bucket."""
        if before_name is not None:
            before_name(0)
        self._create(os.path.join(directory, name), data)

    def _create(self, location: str, data: bytes) -> None:
        """Puts an object where none is, and makes sure of it. Each attempt is ours, so that it is known which one took effect."""
        may_be_there = False
        reason = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(s3_requests.PAUSE_SECONDS * 2**attempt)
            try:
                outcome, reason = self._put(location, data)
            except RefusedError as error:
                if not may_be_there:
                    raise
                message = f"whether it was written is not known ({reason}), and it cannot be looked at: {error.message}"
                raise OutcomeUnknownError(message, path=location) from None
            if outcome is PutOutcome.DONE:
                return
            if outcome is PutOutcome.UNPROVEN:
                self._check_written(location, data)
                return
            if outcome is PutOutcome.TAKEN and not may_be_there:
                raise AlreadyExistsError("is there already, and was not touched", path=location, name=os.path.basename(location))
            if outcome in (PutOutcome.FAILED, PutOutcome.GONE) and not may_be_there:
                raise WriteFailedError(f"cannot be written: {reason}", path=location)
            may_be_there |= outcome is PutOutcome.UNKNOWN
            if may_be_there and self._is_ours(location, data, reason):
                return
        if may_be_there:
            message = f"whether it was written is not known ({reason}), and it may still appear: look before trying again"
            raise OutcomeUnknownError(message, path=location)
        if outcome is PutOutcome.CONFLICT:
            raise BusyError("another run writes this very object now", path=location)
        raise WriteFailedError(f"cannot be written: {reason}", path=location)

    def _put(self, location: str, data: bytes) -> tuple[PutOutcome, str]:
        metadata = {"Metadata": {RUN_KEY: self.settings.run}} if self.settings.run else {}
        return self.put(location, data, IfNoneMatch="*", **metadata)

    def put(self, location: str, data: bytes, **fields: Any) -> tuple[PutOutcome, str]:
        """Attempts once to put an object.

        Args:
            location: of it.
            data: all of its bytes.
            fields: of a PutObject: the condition that it is held to, and what is told of the object.

        Returns:
            What came of it, and what the store said where that is no good.

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
                message = f"the store takes no conditional writes ({told(error)}), so that nothing is written"
                raise RefusedError(message, path=location) from None
            return put_outcome(error), told(error)
        # The ETag is the MD5 of what was stored, unless that is encrypted by a key of its own.
        is_proven = answer.get("ChecksumSHA256") == digest or answer.get("ETag", "").strip('"') == md5(data)
        return PutOutcome.DONE if is_proven else PutOutcome.UNPROVEN, ""

    def _is_ours(self, location: str, data: bytes, reason: str) -> bool:
        """Reads back where an answer was lost: our bytes mean that it was done, none that it may be tried again.

        Raises:
            AlreadyExistsError: another object is there.
            OutcomeUnknownError: it cannot be read either.
        """
        try:
            found = self._small(location, max(len(data), PIECE_BYTES))
        except (ReadFailedError, RefusedError) as error:
            message = f"whether it was written is not known ({reason}), and it cannot be read back: {error.message}"
            raise OutcomeUnknownError(message, path=location) from None
        if found is None:
            return False
        there, run = found
        if there != data or (run or self.settings.run) != self.settings.run:
            raise AlreadyExistsError("is there already, and was not touched", path=location, name=os.path.basename(location))
        return True

    def _check_written(self, location: str, data: bytes) -> None:
        try:
            found = self.read_small(location, max(len(data), PIECE_BYTES))
        except (ReadFailedError, RefusedError) as error:
            raise OutcomeUnknownError(f"was written, and cannot be read back: {error.message}", path=location) from None
        if found != data:
            what = "is not there" if found is None else "holds other bytes"
            raise OutcomeUnknownError(f"was written, and {what} when it is read back", path=location)

    def _count(self, count: int) -> None:
        meter_of(self.settings.run).read(self.settings, count)
