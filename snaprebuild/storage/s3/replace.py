"""Conditional replacement of objects: PutObject with If-Match, so that only the object that was read is replaced.

If an answer is lost, the object is read. Our bytes mean that it was replaced. The old ETag means that it may be tried again.
Anything else means that another program was faster. If it cannot be read either, the outcome is unknown: it is the old object or
the new one.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from snaprebuild.errors import ChangedFileError, ReadFailedError, RefusedError
from snaprebuild.storage.s3.requests import modified_ns_of, object_changed, outcome_unknown
from snaprebuild.storage.store import FileIdentity, WholeObject

if TYPE_CHECKING:
    from snaprebuild.storage.s3.store import S3Store

__all__ = ["Replacement"]

PRESERVED_HEADERS = (
    *("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Expires", "Metadata"),
    *("StorageClass", "WebsiteRedirectLocation", "ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled"),
)
"""Fields that an answer to GetObject and a PutObject share. Access control lists are in no answer; tags and locks only in one to a
user that may read them."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Replaces objects of a store that were read: how ``S3Store`` does it.

    Attributes:
        store: that holds the objects.
    """

    store: S3Store

    def read_whole(self, location: str, bytes_max: int) -> WholeObject | None:
        """All bytes of an object with its identity, for ``replace``: one request."""
        content = self.store.whole(location, bytes_max)
        if content is None:
            return None
        data, answer = content
        if not answer.get("ETag") or "LastModified" not in answer:
            raise ReadFailedError("the store returns no ETag, or no date, which would show a change", path=location)
        headers: dict[str, object] = {name: answer[name] for name in PRESERVED_HEADERS if answer.get(name)}
        return WholeObject(data, FileIdentity(len(data), modified_ns_of(answer), 0, answer["ETag"]), headers, _not_kept(answer))

    def prepare(self, directory: str) -> None:
        """Tests once that the store replaces on condition only, where objects are never replaced by accident."""
        self.store.probe("replace", directory, partial(self._probe, directory))

    def _probe(self, directory: str, location: str) -> None:
        was = self.read_whole(location, 1 << 20)
        if was is None:
            raise RefusedError("the store does not show an object that was just written: nothing is replaced here", path=directory)
        other = WholeObject(
            b"", FileIdentity(0, 0, 0, f'"{hashlib.md5(secrets.token_bytes(8), usedforsecurity=False).hexdigest()}"')
        )
        try:
            self.replace(location, b"snaprebuild: may be deleted. This one must never be seen", other)
        except ChangedFileError:
            pass  # the store has refused it, as it must
        else:
            raise RefusedError("the store ignores If-Match, so that what somebody else wrote could be replaced", path=directory)
        try:
            self.replace(location, b"snaprebuild: may be deleted, too", was)
        except RefusedError as error:
            message = f"the store refuses a write whose If-Match is right ({error.message}): nothing is replaced here"
            raise RefusedError(message, path=directory) from None

    def replace(self, location: str, data: bytes, was: WholeObject) -> None:
        """Replaces an object that was read whole (``Store.replace``)."""
        if was.not_kept is not None:
            raise RefusedError(f"has {was.not_kept}, which a replacement would lose: nothing is written", path=location)
        is_done = partial(self._is_done, location, data, was)
        fields = {"IfMatch": was.identity.etag, **was.kept}
        self.store.put_settled(location, data, is_done, object_changed(location), _gone(location), **fields)

    def _is_done(self, location: str, data: bytes, was: WholeObject, reason: str) -> bool:
        """Checks the object after a lost answer; False if it is still the old object."""
        try:
            present = self.read_whole(location, max(len(data), was.identity.size_bytes, 1 << 20))
        except (ReadFailedError, RefusedError) as error:
            raise outcome_unknown(location, reason, f", and it cannot be read back: {error.message}") from None
        if present is None:
            raise _gone(location)
        if present.identity.etag == was.identity.etag:
            return False
        if present.data == data:
            return True
        raise object_changed(location)


def _not_kept(answer: Mapping[str, object]) -> str | None:
    """The properties that a replacement would lose, from an answer to GetObject."""
    if answer.get("TagCount"):
        return "tags"
    if any(name.startswith("ObjectLock") and value for name, value in answer.items()):
        return "an object lock"
    if answer.get("ExpiresString") and not answer.get("Expires"):
        return "a field Expires that is no time"
    return None


def _gone(location: str) -> RefusedError:
    return RefusedError("is gone (another program is writing here): run again", path=location)
