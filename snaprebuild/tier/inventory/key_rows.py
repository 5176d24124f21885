"""The rows of ``tier inventory --keys``: every key of a store, also those that a listing of objects does not show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from snaprebuild.published import Int64, Natural, Part, one_of
from snaprebuild.storage.bucket_contents import ListedUpload, ListedVersion
from snaprebuild.storage.remote.listing import TierObject, UnknownObjects
from snaprebuild.tier.inventory.copy_states import CopyStanding
from snaprebuild.tier.inventory.model import FOREIGN
from snaprebuild.tier.remote_partition import RemotePartition
from snaprebuild.tier.remote_store import CopyState

__all__ = ["DELETE_MARKER", "NONCURRENT", "UNFINISHED_UPLOAD", "KeyRow", "KeyRows"]

NONCURRENT = "noncurrent"
DELETE_MARKER = "delete-marker"
UNFINISHED_UPLOAD = "unfinished-upload"

NS_PER_MS = 1_000_000

CLAIM = ".snaprebuild-claims/"


class KeyRow(Part, frozen=True):
    """A key of the store."""

    key: str
    """Below the location of the store."""
    state: Annotated[str, one_of(*CopyState, FOREIGN, NONCURRENT, DELETE_MARKER, UNFINISHED_UPLOAD)]
    """State of the copy that the object is a part of, or what the key is."""
    reason: str
    """The proof of the state, for the user; not stable."""
    size_bytes: Natural | None
    """Null if it is unknown."""
    modified_ms: Int64
    """When it was written, or the upload began: ms since 1970."""
    age_ms: Natural
    """Age at --as-of."""
    etag: str | None
    """ETag of an object; null in a directory, and for delete markers and uploads."""
    version_id: str | None
    """Version of an object, or id of an upload; null without versioning."""
    storage_class: str | None
    """Storage class of an object; null in a directory, and for delete markers and uploads."""
    archive_tier: str | None = None
    """Archive tier of INTELLIGENT_TIERING, in which the object must be restored before it can be read; null for no such tier."""


@dataclass(slots=True)
class KeyRows:
    """Makes the rows, and hands them out one after the other.

    Attributes:
        take: gets each row.
        now_ms: moment of the ages, ms since 1970.
        version_ids: of current versions, by key; empty without versioning.
    """

    take: Callable[[KeyRow], None]
    now_ms: int
    version_ids: Mapping[str, str] = field(default_factory=dict)

    def add_partition(self, remote: RemotePartition, standings: Mapping[bytes, CopyStanding]) -> None:
        """Adds the objects of the copies of a partition."""
        for copy in remote.copies.values():
            standing = standings[copy.segment_id]
            for each in copy.objects.by_kind.values():
                self._add_object(each, standing.state, standing.reason)
            for each in copy.objects.others:
                reason = "another object of the same copy is below another prefix: nothing proves which one brokers read"
                self._add_object(each, CopyState.UNKNOWN, reason)

    def add_foreign(self, unknown: UnknownObjects) -> None:
        """Adds the objects that are no part of a copy."""
        for each in unknown.objects:
            reason = "its key is of no known layout"
            if CLAIM in each.key:
                reason = "a claim of snaprebuild tier upload, which the plugin never reads"
            self._add_object(each, FOREIGN, reason)

    def _add_object(self, listed: TierObject, state: str, reason: str) -> None:
        modified_ms = listed.identity.modified_ns // NS_PER_MS
        self.take(
            KeyRow(
                key=listed.key,
                state=state,
                reason=reason,
                size_bytes=listed.identity.size_bytes,
                modified_ms=modified_ms,
                age_ms=self._age_ms(modified_ms),
                etag=listed.identity.etag,
                version_id=self.version_ids.get(listed.key),
                storage_class=listed.storage_class,
                archive_tier=listed.archive_tier,
            )
        )

    def add_version(self, version: ListedVersion) -> None:
        """Adds a noncurrent version or a delete marker."""
        state = DELETE_MARKER if version.is_delete_marker else NONCURRENT
        if version.is_delete_marker:
            if version.is_current:
                reason = "the object is deleted"
            else:
                reason = "the object was deleted, and written again since"
        else:
            reason = "deleted or replaced: the bucket keeps the version, and no broker reads it"
        self.take(
            KeyRow(
                key=version.key,
                state=state,
                reason=reason,
                size_bytes=version.size_bytes,
                modified_ms=version.modified_ms,
                age_ms=self._age_ms(version.modified_ms),
                etag=version.etag or None,
                version_id=version.version_id,
                storage_class=version.storage_class,
            )
        )

    def add_upload(self, upload: ListedUpload) -> None:
        """Adds a multipart upload."""
        self.take(
            KeyRow(
                key=upload.key,
                state=UNFINISHED_UPLOAD,
                reason="a multipart upload that was neither completed nor aborted",
                size_bytes=upload.size_bytes,
                modified_ms=upload.initiated_ms,
                age_ms=self._age_ms(upload.initiated_ms),
                etag=None,
                version_id=upload.upload_id,
                storage_class=None,
            )
        )

    def _age_ms(self, modified_ms: int) -> int:
        return max(self.now_ms - modified_ms, 0)
