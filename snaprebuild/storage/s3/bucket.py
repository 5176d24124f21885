"""The contents of a bucket besides the objects of a listing, and its rules for them: versions, unfinished uploads, rules.

Each call needs a permission of its own. A call without an answer is a value, so that the others are not affected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from snaprebuild.errors import LimitReachedError
from snaprebuild.storage.bucket_contents import (
    ArchiveTier,
    BucketSettings,
    LifecycleRule,
    ListedUpload,
    ListedVersion,
    ObjectLock,
    ReplicationRule,
    Transition,
    UnansweredCall,
)
from snaprebuild.storage.s3.requests import (
    access_of,
    bucket_and_key,
    client_of,
    code_of,
    is_gone,
    modified_ns_of,
    payer_of,
    redacted,
    status_of,
)
from snaprebuild.storage.store import S3Settings
from snaprebuild.storage.thread_pool import map_in_threads

__all__ = ["S3Bucket"]

NS_PER_MS = 1_000_000

PERMISSIONS = {
    "GetBucketVersioning": "s3:GetBucketVersioning",
    "GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
    "GetObjectLockConfiguration": "s3:GetBucketObjectLockConfiguration",
    "GetBucketReplication": "s3:GetReplicationConfiguration",
    "ListBucketIntelligentTieringConfigurations": "s3:GetIntelligentTieringConfiguration",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListParts": "s3:ListMultipartUploadParts",
    "ListObjectVersions": "s3:ListBucketVersions",
    "HeadObject": "s3:GetObject",
}
"""The permission that each call needs."""

_NONE_THERE = frozenset(
    ("NoSuchLifecycleConfiguration", "ReplicationConfigurationNotFoundError", "ObjectLockConfigurationNotFoundError")
)

HEADS_AT_ONCE = 100

UPLOADS_WITH_SIZE = 1_000
"""Unfinished uploads whose parts are listed: one request each."""

_Answer = TypeVar("_Answer")


@dataclass(slots=True)
class S3Bucket:
    """The bucket of a location.

    Attributes:
        location: ``s3://BUCKET/PREFIX`` without a slash at its end.
        store: how it is reached.
        unanswered: calls of ``archive_tiers``, ``archived``, ``versions`` and ``uploads`` without an answer.
    """

    location: str
    store: S3Settings
    unanswered: list[UnansweredCall] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        """The beginning of all keys below the location."""
        _, key = bucket_and_key(self.location)
        return f"{key}/" if key else ""

    @property
    def _bucket(self) -> dict[str, Any]:
        return {"Bucket": bucket_and_key(self.location)[0]}

    def settings(self) -> BucketSettings:
        """The rules of the bucket for its objects: four requests."""
        unanswered: list[UnansweredCall] = []
        no_lifecycle: tuple[LifecycleRule, ...] = ()
        no_replication: tuple[ReplicationRule, ...] = ()
        versioning = self._setting("GetBucketVersioning", "get_bucket_versioning", _versioning_of, "Off", unanswered)
        lifecycle = self._setting(
            "GetBucketLifecycleConfiguration", "get_bucket_lifecycle_configuration", _lifecycle_of, no_lifecycle, unanswered
        )
        lock = self._setting("GetObjectLockConfiguration", "get_object_lock_configuration", _lock_of, None, unanswered)
        replication = self._setting("GetBucketReplication", "get_bucket_replication", _replication_of, no_replication, unanswered)
        return BucketSettings(
            versioning=versioning,
            lifecycle_rules=lifecycle,
            object_lock=lock,
            replication_rules=replication,
            unanswered=tuple(unanswered),
        )

    def _setting(
        self, call: str, method: str, parse: Callable[[dict[str, Any]], _Answer], absent: _Answer, unanswered: list[UnansweredCall]
    ) -> _Answer | None:
        try:
            return parse(getattr(client_of(self.store), method)(**self._bucket))
        except (ClientError, BotoCoreError, LimitReachedError) as error:
            if code_of(error) in _NONE_THERE:
                return absent
            unanswered.append(_unanswered(call, error))
            return None

    def archive_tiers(self) -> list[ArchiveTier]:
        """The archive tiers of the storage class INTELLIGENT_TIERING; none if the call has no answer."""
        tiers: list[ArchiveTier] = []
        marker: dict[str, Any] = {}
        while True:
            try:
                page = client_of(self.store).list_bucket_intelligent_tiering_configurations(**self._bucket, **marker)
            except (ClientError, BotoCoreError, LimitReachedError) as error:
                self.unanswered.append(_unanswered("ListBucketIntelligentTieringConfigurations", error))
                return tiers
            for each in page.get("IntelligentTieringConfigurationList", ()):
                if each.get("Status") == "Enabled":
                    tiers += _archive_tiers_of(each)
            following = page.get("NextContinuationToken")
            if not page.get("IsTruncated") or not following or following == marker.get("ContinuationToken"):
                return tiers
            marker = {"ContinuationToken": following}

    def archived(self, keys: Sequence[str]) -> dict[str, str]:
        """The archive tier of each of these objects that must be restored before it can be read, by key: one request each.

        The first request without an answer is the last: those of other keys would have none either, or a limit of the run is used up.

        Args:
            keys: below the location, of objects in the storage class INTELLIGENT_TIERING, whose listing does not show the tier.
        """
        tiers: dict[str, str] = {}
        for start in range(0, len(keys), HEADS_AT_ONCE):
            some = keys[start : start + HEADS_AT_ONCE]
            answers = list(map_in_threads(self._archive_status, some))
            tiers |= {key: answer for key, answer in zip(some, answers, strict=True) if isinstance(answer, str)}
            unanswered = [answer for answer in answers if isinstance(answer, UnansweredCall)]
            if unanswered:
                self.unanswered.append(unanswered[0])
                break
        return tiers

    def _archive_status(self, key: str) -> str | UnansweredCall | None:
        """The archive tier of an object; None if it can be read at once, or is gone."""
        try:
            head = client_of(self.store).head_object(**self._bucket, Key=self.prefix + key, **access_of(self.store))
        except (ClientError, BotoCoreError, LimitReachedError) as error:
            return None if is_gone(error) else _unanswered("HeadObject", error)
        status = head.get("ArchiveStatus")
        return status if isinstance(status, str) else None

    def versions(self, name_prefix: str) -> Iterator[ListedVersion]:
        """Every version of every object below the location, and every delete marker, ascending by key; 1,000 for each request.

        Args:
            name_prefix: only keys below the location that begin with it.
        """
        marker: dict[str, Any] = {}
        while True:
            try:
                page = client_of(self.store).list_object_versions(
                    **self._bucket, Prefix=self.prefix + name_prefix, **marker, **payer_of(self.store)
                )
            except (ClientError, BotoCoreError, LimitReachedError) as error:
                self.unanswered.append(_unanswered("ListObjectVersions", error))
                return
            rows = [self._version(each, is_marker=False) for each in page.get("Versions", ())]
            rows += [self._version(each, is_marker=True) for each in page.get("DeleteMarkers", ())]
            yield from sorted(rows, key=lambda each: (each.key, -each.modified_ms))
            following = page.get("NextKeyMarker"), page.get("NextVersionIdMarker")
            if not page.get("IsTruncated") or following == (marker.get("KeyMarker"), marker.get("VersionIdMarker")):
                return
            marker = {"KeyMarker": following[0]}
            if following[1]:
                marker["VersionIdMarker"] = following[1]

    def _version(self, row: dict[str, Any], *, is_marker: bool) -> ListedVersion:
        return ListedVersion(
            key=row["Key"][len(self.prefix) :],
            version_id=row.get("VersionId") or "null",
            is_current=bool(row.get("IsLatest")),
            is_delete_marker=is_marker,
            size_bytes=0 if is_marker else int(row.get("Size", 0)),
            modified_ms=modified_ns_of(row) // NS_PER_MS,
            etag="" if is_marker else row.get("ETag", ""),
            storage_class=None if is_marker else sys.intern(row.get("StorageClass") or "STANDARD"),
        )

    def uploads(self, name_prefix: str) -> Iterator[ListedUpload]:
        """Every multipart upload below the location that was neither completed nor aborted; 1,000 for each request, and one for each.

        Args:
            name_prefix: only keys below the location that begin with it.
        """
        count = 0
        marker: dict[str, Any] = {}
        while True:
            try:
                page = client_of(self.store).list_multipart_uploads(
                    **self._bucket, Prefix=self.prefix + name_prefix, **marker, **payer_of(self.store)
                )
            except (ClientError, BotoCoreError, LimitReachedError) as error:
                self.unanswered.append(_unanswered("ListMultipartUploads", error))
                return
            for each in page.get("Uploads", ()):
                count += 1
                size = self._parts_bytes(each["Key"], each["UploadId"]) if count <= UPLOADS_WITH_SIZE else None
                initiated_ms = int(each["Initiated"].timestamp() * 1000)
                yield ListedUpload(each["Key"][len(self.prefix) :], each["UploadId"], initiated_ms, size)
            following = page.get("NextKeyMarker"), page.get("NextUploadIdMarker")
            if not page.get("IsTruncated") or following == (marker.get("KeyMarker"), marker.get("UploadIdMarker")):
                return
            marker = {"KeyMarker": following[0], "UploadIdMarker": following[1]}

    def _parts_bytes(self, key: str, upload_id: str) -> int | None:
        """Bytes of the parts of an upload; None if they cannot be listed."""
        if any(each.call == "ListParts" for each in self.unanswered):
            return None
        try:
            pages = client_of(self.store).get_paginator("list_parts")
            return sum(
                int(part["Size"])
                for page in pages.paginate(**self._bucket, Key=key, UploadId=upload_id, **payer_of(self.store))
                for part in page.get("Parts", ())
            )
        except (ClientError, BotoCoreError, LimitReachedError) as error:
            if status_of(error) != HTTPStatus.NOT_FOUND:  # else it was completed or aborted meanwhile
                self.unanswered.append(_unanswered("ListParts", error))
            return None


def _unanswered(call: str, error: Exception) -> UnansweredCall:
    if isinstance(error, LimitReachedError):
        return UnansweredCall(call=call, permission=PERMISSIONS[call], reason=error.message, limited=True)
    is_denied = status_of(error) in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED)
    return UnansweredCall(call=call, permission=PERMISSIONS[call], reason=redacted(error), denied=is_denied)


# ------------------------------------------------------------------------------------------------------------------ configurations


def _versioning_of(answer: dict[str, Any]) -> str:
    return str(answer.get("Status") or "Off")


def _lifecycle_of(answer: dict[str, Any]) -> tuple[LifecycleRule, ...]:
    return tuple(_lifecycle_rule(each) for each in answer.get("Rules", ()) if each.get("Status") == "Enabled")


def _lifecycle_rule(rule: dict[str, Any]) -> LifecycleRule:
    chosen = rule.get("Filter") or {}
    both = chosen.get("And") or {}
    chosen = {**chosen, **both}
    expiration = rule.get("Expiration") or {}
    moves = rule.get("Transitions", ())
    transitions = tuple(
        Transition(storage_class=str(each.get("StorageClass", "")), transition_after=_when(each) or "0 days") for each in moves
    )
    return LifecycleRule(
        rule_id=str(rule.get("ID", "")),
        prefix=str(chosen.get("Prefix") or rule.get("Prefix") or ""),
        has_tags=bool(chosen.get("Tag") or chosen.get("Tags")),
        larger_than_bytes=chosen.get("ObjectSizeGreaterThan"),
        smaller_than_bytes=chosen.get("ObjectSizeLessThan"),
        expiration=_when(expiration),
        transitions=transitions,
        noncurrent_expiration_days=(rule.get("NoncurrentVersionExpiration") or {}).get("NoncurrentDays"),
        abort_uploads_days=(rule.get("AbortIncompleteMultipartUpload") or {}).get("DaysAfterInitiation"),
    )


def _archive_tiers_of(configuration: dict[str, Any]) -> list[ArchiveTier]:
    chosen = configuration.get("Filter") or {}
    both = chosen.get("And") or {}
    return [
        ArchiveTier(
            configuration_id=str(configuration.get("Id", "")),
            prefix=str(chosen.get("Prefix") or both.get("Prefix") or ""),
            has_tags=bool(chosen.get("Tag") or both.get("Tags")),
            access_tier=str(each.get("AccessTier", "")),
            idle_days=int(each.get("Days", 0)),
        )
        for each in configuration.get("Tierings", ())
    ]


def _time_text(count: int, unit: str) -> str:
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def _when(action: dict[str, Any]) -> str | None:
    """When an action takes effect: days after an object was written, or a date; None if it never does."""
    days = action.get("Days")
    if days is not None:
        return _time_text(days, "day")
    date = action.get("Date")
    return date.date().isoformat() if isinstance(date, datetime) else None


def _lock_of(answer: dict[str, Any]) -> ObjectLock | None:
    lock = answer.get("ObjectLockConfiguration") or {}
    if lock.get("ObjectLockEnabled") != "Enabled":
        return None
    default = (lock.get("Rule") or {}).get("DefaultRetention") or {}
    years = default.get("Years")  # some stores answer 0 next to the days
    retention = _time_text(years, "year") if years else _when(default)
    return ObjectLock(lock_mode=default.get("Mode"), lock_retention=retention)


def _replication_of(answer: dict[str, Any]) -> tuple[ReplicationRule, ...]:
    rules = (answer.get("ReplicationConfiguration") or {}).get("Rules", ())
    return tuple(_replication_rule(each) for each in rules if each.get("Status") == "Enabled")


def _replication_rule(rule: dict[str, Any]) -> ReplicationRule:
    chosen = rule.get("Filter") or {}
    both = chosen.get("And") or {}
    return ReplicationRule(
        rule_id=str(rule.get("ID", "")),
        prefix=str(chosen.get("Prefix") or both.get("Prefix") or rule.get("Prefix") or ""),
        destination=str((rule.get("Destination") or {}).get("Bucket", "")),
        replicates_deletes=(rule.get("DeleteMarkerReplication") or {}).get("Status") == "Enabled",
    )
