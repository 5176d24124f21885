"""Large objects of S3, sent in parts: begun once, continued by any later run, and completed only if no object is there.

Requests in addition to those of ``s3``: ListMultipartUploads, CreateMultipartUpload, ListParts, UploadPart, CompleteMultipartUpload
with If-None-Match, and AbortMultipartUpload of our own uploads that came too late.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from snaprebuild.errors import BusyError, OutcomeUnknownError, ReadFailedError, RefusedError, WriteFailedError
from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3.requests import ATTEMPTS, PROBE_DATA, RUN_KEY, PutOutcome, already_exists, outcome_unknown
from snaprebuild.storage.store import OpenBytes, holds_bytes, parts_of

if TYPE_CHECKING:
    from snaprebuild.storage.s3.store import S3Store

__all__ = ["MultipartUpload"]

log = logging.getLogger(__name__)

PARTS_MAX = 10_000
"""Parts of one upload, as S3 allows them: a store may list them without end."""

UPLOADS_MAX = 1000
"""Uploads of one key that are checked: one page."""

_GONE = "NoSuchUpload"


@dataclass(frozen=True, slots=True)
class _UploadPart:
    """A part that the store has."""

    size_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class MultipartUpload:
    """Creates one object of a store from parts: how ``S3Store`` creates large ones.

    Attributes:
        store: that holds the objects.
    """

    store: S3Store

    # ------------------------------------------------------------------------------------------------------------ the store's part

    def prepare(self, directory: str) -> None:
        """Tests on an object of our own whether a completion honours its condition; errors as ``Store.prepare_writes``."""
        self.store.probe("complete", directory, partial(self._probe, directory))

    def _probe(self, directory: str, location: str) -> None:
        upload_id = ""
        try:
            upload_id = self._begin(location)
            part = self._send(location, upload_id, 1, PROBE_DATA)
            self._client(1).complete_multipart_upload(**self._completion(location, upload_id, {1: part}))
        except (ClientError, BotoCoreError) as error:
            if upload_id:
                self._abort(location, upload_id)
            if s3_requests.status_of(error) != HTTPStatus.PRECONDITION_FAILED:
                message = f"it is unknown whether the store would replace large objects: {s3_requests.redacted(error)}"
                raise RefusedError(message, path=directory) from None
        else:
            message = "the store ignores If-None-Match where a large object is completed, so that one could be replaced"
            raise RefusedError(f"{message}: nothing is written here", path=directory)

    def create(self, location: str, source: OpenBytes) -> None:
        """Creates an object of several parts with the bytes of an open file (``Store.create_large``)."""
        if self.store.identity(location) is not None:
            raise already_exists(location)
        try:
            upload_id = self._earlier_upload(location) or self._begin(location)
            parts, expected = self._sent(location, upload_id, source)
        except (ClientError, BotoCoreError) as error:
            message = f"cannot be written: {s3_requests.redacted(error)}; the next run continues with the parts that were sent"
            raise WriteFailedError(message, path=location) from None
        self._complete(location, upload_id, parts)
        if expected != self._etag_at(location) and not holds_bytes(self.store, location, source):
            raise OutcomeUnknownError("was written, and holds other bytes when it is read back", path=location)

    def holds(self, location: str, source: OpenBytes) -> bool | None:
        """Whether an object has the bytes of an open file: by the ETag if it is a checksum, else by every byte."""
        identity = self.store.identity(location)
        if identity is None:
            return None
        if identity.size_bytes != source.size_bytes:
            return False
        whole = hashlib.md5(usedforsecurity=False)
        digests = []
        for part in parts_of(source, self.store.part_bytes):
            whole.update(part)
            digests.append(s3_requests.md5(bytes(part)))
        expected = whole.hexdigest() if len(digests) <= 1 else _etag_of(digests)
        return (identity.etag or "").strip('"') == expected or holds_bytes(self.store, location, source)

    # ------------------------------------------------------------------------------------------------------------ parts

    def _client(self, attempts: int = ATTEMPTS) -> Any:
        return s3_requests.client_of(self.store.settings, attempts)

    def _target(self, location: str) -> dict[str, Any]:
        bucket, key = s3_requests.bucket_and_key(location)
        return {"Bucket": bucket, "Key": key, **s3_requests.payer_of(self.store.settings)}

    def _begin(self, location: str) -> str:
        run = self.store.settings.run
        more = {"Metadata": {RUN_KEY: run}} if run else {}
        answer = self._client().create_multipart_upload(**self._target(location), **self._encryption(), **more)
        return str(answer["UploadId"])

    def _encryption(self) -> dict[str, Any]:
        return {name: value for name, value in s3_requests.access_of(self.store.settings).items() if name.startswith("SSE")}

    def _earlier_upload(self, location: str) -> str | None:
        """The last begun upload of this very key that is neither completed nor aborted; None if there is none."""
        target = self._target(location)
        key = target.pop("Key")
        answer = self._client().list_multipart_uploads(**target, Prefix=key, MaxUploads=UPLOADS_MAX)
        uploads = [each for each in answer.get("Uploads", ()) if each["Key"] == key]
        if not uploads:
            return None
        return str(max(uploads, key=lambda each: (each["Initiated"], each["UploadId"]))["UploadId"])

    def _listed(self, location: str, upload_id: str) -> dict[int, _UploadPart]:
        pages = self._client().get_paginator("list_parts").paginate(**self._target(location), UploadId=upload_id)
        parts = islice((each for page in islice(pages, PARTS_MAX) for each in page.get("Parts", ())), PARTS_MAX)
        return {each["PartNumber"]: _UploadPart(each["Size"], each["ETag"].strip('"')) for each in parts}

    def _sent(self, location: str, upload_id: str, source: OpenBytes) -> tuple[dict[int, _UploadPart], str]:
        """All parts, each of which the store has, and the ETag of our own bytes: the bytes that arrived may differ.

        Parts that the store already has, with the right bytes, are not sent again.
        """
        there = self._listed(location, upload_id)
        parts = {}
        digests = []
        for number, view in enumerate(parts_of(source, self.store.part_bytes), 1):
            data = bytes(view)
            expected = _UploadPart(len(data), s3_requests.md5(data))
            parts[number] = expected if there.get(number) == expected else self._send(location, upload_id, number, data)
            digests.append(expected.etag)
        return parts, _etag_of(digests)

    def _send(self, location: str, upload_id: str, number: int, data: bytes) -> _UploadPart:
        answer = self._client().upload_part(
            **self._target(location), **self._encryption(), UploadId=upload_id, PartNumber=number, Body=data
        )
        return _UploadPart(len(data), answer["ETag"].strip('"'))

    def _etag_at(self, location: str) -> str:
        try:
            identity = self.store.identity(location)
        except (ReadFailedError, RefusedError) as error:
            raise OutcomeUnknownError(f"was written, but cannot be checked: {error.message}", path=location) from None
        if identity is None:
            raise OutcomeUnknownError("was written, but does not exist when it is checked", path=location)
        return (identity.etag or "").strip('"')

    # ------------------------------------------------------------------------------------------------------------ completion

    def _completion(self, location: str, upload_id: str, parts: dict[int, _UploadPart]) -> dict[str, Any]:
        listed = [{"PartNumber": number, "ETag": f'"{parts[number].etag}"'} for number in sorted(parts)]
        return {**self._target(location), "UploadId": upload_id, "IfNoneMatch": "*", "MultipartUpload": {"Parts": listed}}

    def _complete(self, location: str, upload_id: str, parts: dict[int, _UploadPart]) -> None:
        """Makes an object of the parts, if none is there. Each attempt is ours, so that it is known which one took effect."""
        reason = ""
        is_known = True
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(s3_requests.PAUSE_SECONDS * 2**attempt)
            try:
                self._client(1).complete_multipart_upload(**self._completion(location, upload_id, parts))
            except (ClientError, BotoCoreError) as error:
                outcome = s3_requests.put_outcome(error)
                reason = s3_requests.redacted(error)
                is_gone = s3_requests.code_of(error) == _GONE
            else:
                return
            if outcome is PutOutcome.TAKEN:
                self._abort(location, upload_id)
                raise already_exists(location)
            is_known = is_known and outcome is not PutOutcome.UNKNOWN
            if (is_gone or not is_known) and self._is_there(location, reason):
                raise already_exists(location)
            if is_gone:
                raise WriteFailedError("another program removed the parts that were sent: run again", path=location)
            if outcome in (PutOutcome.FAILED, PutOutcome.GONE):
                raise WriteFailedError(f"cannot be written: {reason}", path=location)
        if not is_known:
            raise outcome_unknown(location, reason, ", and it may still appear: run again")
        raise BusyError(f"cannot be completed now: {reason}", path=location)

    def _is_there(self, location: str, reason: str) -> bool:
        try:
            return self.store.identity(location) is not None
        except (ReadFailedError, RefusedError) as error:
            raise outcome_unknown(location, reason, f", and it cannot be checked: {error.message}") from None

    def _abort(self, location: str, upload_id: str) -> None:
        try:
            self._client().abort_multipart_upload(**self._target(location), UploadId=upload_id)
        except (ClientError, BotoCoreError, RefusedError) as error:
            log.warning(
                "%s: parts of an upload that came too late stay, and may be deleted: %s", location, s3_requests.redacted(error)
            )


def _etag_of(digests: Sequence[str]) -> str:
    """The ETag of an object of parts, by their MD5 in hex, as S3 makes it without encryption by a key of its own."""
    return f"{s3_requests.md5(b''.join(map(bytes.fromhex, digests)))}-{len(digests)}"
