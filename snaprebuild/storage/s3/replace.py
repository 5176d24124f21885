"""Objects that are replaced if they are still what was read: PutObject with If-Match.

An answer that is lost is looked up: our bytes mean that it was done, the old ETag that it may be tried again, anything else that somebody
else was faster. Where that cannot be told either, the outcome is unknown, and it is the old object or the new one.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from snaprebuild.errors import BusyError, OutcomeUnknownError, ReadFailedError, RefusedError, WriteFailedError
from snaprebuild.storage.replacing import WholeObject
from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3.requests import ATTEMPTS, PutOutcome, object_changed
from snaprebuild.storage.s3.store import PROBE_NAME, S3Store
from snaprebuild.storage.store import FileIdentity, S3Settings

__all__ = ["S3Replacing"]

KEPT = (
    *("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Expires", "Metadata"),
    *("StorageClass", "WebsiteRedirectLocation", "ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled"),
)
"""Fields that an answer to GetObject and a PutObject share. Access control lists are in no answer; tags and locks only in one to
somebody who may read them."""

_probed: set[tuple[S3Settings, str]] = set()
_probed_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class S3Replacing:
    """See ``replacing.ReplacingStore``.

    Attributes:
        store: that holds the objects.
    """

    store: S3Store

    def read_whole(self, location: str, bytes_max: int) -> WholeObject | None:
        """See ``ReplacingStore.read_whole``: one request."""
        found = self.store.whole(location, bytes_max)
        if found is None:
            return None
        data, told = found
        if not told.get("ETag") or "LastModified" not in told:
            raise ReadFailedError("the store gives no ETag, or no date, which would tell whether it changes", path=location)
        mtime_ns = int(told["LastModified"].timestamp() * 1000) * 1_000_000
        kept: dict[str, object] = {name: told[name] for name in KEPT if told.get(name)}
        return WholeObject(data, FileIdentity(len(data), mtime_ns, 0, told["ETag"]), kept, _not_kept(told))

    def prepare(self, directory: str) -> None:
        """See ``ReplacingStore.prepare``: some stores ignore If-Match without a word, which an object of our own tells."""
        with _probed_lock:
            if (self.store.settings, directory) in _probed:
                return
            self.store.prepare_writes(directory)
            name = f"{PROBE_NAME}{secrets.token_hex(8)}"
            location = os.path.join(directory, name)
            self.store.create(directory, name, b"snaprebuild: may be deleted", owner=None, temporary_name=name)
            try:
                self._probe(location, directory)
            finally:
                self.store.delete_probe(location)
            _probed.add((self.store.settings, directory))

    def _probe(self, location: str, directory: str) -> None:
        was = self.read_whole(location, 1 << 20)
        if was is None:
            raise RefusedError("the store does not show an object that was just written: nothing is replaced here", path=directory)
        other = WholeObject(
            b"", FileIdentity(0, 0, 0, f'"{hashlib.md5(secrets.token_bytes(8), usedforsecurity=False).hexdigest()}"')
        )
        try:
            self.replace(location, b"snaprebuild: may be deleted. This one must never be seen", other)
        except RefusedError as error:
            if error.message != object_changed(location).message:
                raise
        else:
            raise RefusedError("the store ignores If-Match, so that what somebody else wrote could be replaced", path=directory)
        try:
            self.replace(location, b"snaprebuild: may be deleted, too", was)
        except RefusedError as error:
            message = f"the store refuses a write whose If-Match is right ({error.message}): nothing is replaced here"
            raise RefusedError(message, path=directory) from None

    def replace(self, location: str, data: bytes, was: WholeObject) -> None:
        """See ``ReplacingStore.replace``. Each attempt is ours, so that it is known which one took effect."""
        if was.not_kept is not None:
            raise RefusedError(f"has {was.not_kept}, which a replacement would lose: nothing is written", path=location)
        may_be_done, reason = False, ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(s3_requests.PAUSE_SECONDS * 2**attempt)
            try:
                outcome, reason = self.store.put(location, data, IfMatch=was.identity.etag, **was.kept)
            except RefusedError as error:
                if not may_be_done:
                    raise
                raise _unknown(location, reason, f", and it cannot be tried again: {error.message}") from None
            if outcome in (PutOutcome.DONE, PutOutcome.UNPROVEN):
                return
            if not may_be_done:
                _raise_if_settled(outcome, location, reason)
            may_be_done |= outcome is PutOutcome.UNKNOWN
            if may_be_done and self._is_done(location, data, was, reason):
                return
        if may_be_done:
            raise _unknown(location, reason, ", and it may still appear: look before trying again")
        if outcome is PutOutcome.CONFLICT:
            raise BusyError("another run writes this very object now", path=location)
        raise WriteFailedError(f"cannot be written: {reason}", path=location)

    def _is_done(self, location: str, data: bytes, was: WholeObject, reason: str) -> bool:
        """Looks at what is there where an answer was lost; False where it is still the old object."""
        try:
            found = self.read_whole(location, max(len(data), was.identity.size_bytes, 1 << 20))
        except (ReadFailedError, RefusedError) as error:
            raise _unknown(location, reason, f", and it cannot be read back: {error.message}") from None
        if found is None:
            raise _gone(location)
        if found.identity.etag == was.identity.etag:
            return False
        if found.data == data:
            return True
        raise object_changed(location)


def _not_kept(told: Mapping[str, object]) -> str | None:
    """What a replacement would lose, by an answer to GetObject."""
    if told.get("TagCount"):
        return "tags"
    if any(name.startswith("ObjectLock") and value for name, value in told.items()):
        return "an object lock"
    return "a field Expires that is no time" if told.get("ExpiresString") and not told.get("Expires") else None


def _raise_if_settled(outcome: PutOutcome, location: str, reason: str) -> None:
    """Raises where the answer says for certain that nothing took effect, nor will."""
    if outcome is PutOutcome.TAKEN:
        raise object_changed(location)
    if outcome is PutOutcome.GONE:
        raise _gone(location)
    if outcome is PutOutcome.FAILED:
        raise WriteFailedError(f"cannot be written: {reason}", path=location)


def _gone(location: str) -> RefusedError:
    return RefusedError("is gone (somebody is at work here): run again", path=location)


def _unknown(location: str, reason: str, more: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"whether it was written is not known ({reason}){more}", path=location)
