"""The contents of a bucket besides the objects of a listing, and its rules for them, as values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from snaprebuild.published import Natural, Part, one_of

__all__ = [
    "ArchiveTier",
    "Bucket",
    "BucketSettings",
    "LifecycleRule",
    "ListedUpload",
    "ListedVersion",
    "ObjectLock",
    "ReplicationRule",
    "Transition",
    "UnansweredCall",
]


class UnansweredCall(Part, frozen=True):
    """A call to the store that gave no answer."""

    call: str
    """Name in the API of S3."""
    permission: str
    """Permission that it needs."""
    reason: str
    """Why there is no answer, for the user; not stable."""
    denied: bool = False
    """The permission is missing."""
    limited: bool = False
    """A limit of the run is used up."""


class Transition(Part, frozen=True):
    """A move of objects to another storage class."""

    storage_class: str
    transition_after: str
    """Age of the objects in days, or a date."""


class LifecycleRule(Part, frozen=True):
    """An enabled rule of a lifecycle configuration."""

    rule_id: str
    prefix: str
    """Prefix of the keys in the bucket."""
    has_tags: bool = False
    """The rule takes only objects with some tags."""
    larger_than_bytes: Natural | None = None
    """The rule takes only larger objects; null without a limit."""
    smaller_than_bytes: Natural | None = None
    """The rule takes only smaller objects; null without a limit."""
    expiration: str | None = None
    """Age in days or date at which it deletes objects; null if it deletes none."""
    transitions: tuple[Transition, ...] = ()
    noncurrent_expiration_days: Natural | None = None
    """Days after which it deletes noncurrent versions; null if it deletes none."""
    abort_uploads_days: Natural | None = None
    """Days after which it aborts multipart uploads; null if it aborts none."""

    def takes(self, key: str, size_bytes: int) -> bool:
        """Whether the rule takes an object, if the object has the tags that the rule may need.

        Args:
            key: in the bucket.
            size_bytes: of the object.
        """
        is_larger = self.larger_than_bytes is None or size_bytes > self.larger_than_bytes
        is_smaller = self.smaller_than_bytes is None or size_bytes < self.smaller_than_bytes
        return key.startswith(self.prefix) and is_larger and is_smaller


class ArchiveTier(Part, frozen=True):
    """An archive tier of the storage class INTELLIGENT_TIERING: objects must be restored before they can be read."""

    configuration_id: str
    prefix: str
    """Prefix of the keys in the bucket."""
    has_tags: bool
    """The tier takes only objects with some tags."""
    access_tier: str
    idle_days: Natural
    """Days without access after which it takes an object."""


class ObjectLock(Part, frozen=True):
    """The object lock of a bucket."""

    lock_mode: str | None
    """Mode of new objects; null without a default."""
    lock_retention: str | None
    """How long new objects are locked; null without a default."""


class ReplicationRule(Part, frozen=True):
    """An enabled rule of a replication configuration."""

    rule_id: str
    prefix: str
    destination: str
    """Bucket, as the rule names it."""
    replicates_deletes: bool
    """Delete markers are replicated."""


class BucketSettings(Part, frozen=True):
    """The rules of a bucket for its objects."""

    versioning: Annotated[str, one_of("Enabled", "Suspended", "Off")] | None = None
    """Null if it is unknown."""
    lifecycle_rules: tuple[LifecycleRule, ...] | None = None
    """Enabled rules; null if they are unknown."""
    object_lock: ObjectLock | None = None
    """Null if there is none, or if it is unknown."""
    replication_rules: tuple[ReplicationRule, ...] | None = None
    """Enabled rules; null if they are unknown."""
    unanswered: tuple[UnansweredCall, ...] = ()
    """Calls without an answer: what they would show is unknown."""


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """A version of an object, or a delete marker.

    Attributes:
        key: below the location.
        version_id: as the store has it.
        is_current: a listing of objects shows it; of a delete marker: the object is deleted.
        is_delete_marker: it has no bytes, and hides the versions before it.
        size_bytes: of the version.
        modified_ms: when it was written, ms since 1970.
        etag: of the version; empty for a delete marker.
        storage_class: of the version; None for a delete marker.
    """

    key: str
    version_id: str
    is_current: bool
    is_delete_marker: bool
    size_bytes: int
    modified_ms: int
    etag: str = ""
    storage_class: str | None = None


@dataclass(frozen=True, slots=True)
class ListedUpload:
    """A multipart upload that was neither completed nor aborted.

    Attributes:
        key: below the location.
        upload_id: as the store has it.
        initiated_ms: when it began, ms since 1970.
        size_bytes: of its parts; None if these were not listed.
    """

    key: str
    upload_id: str
    initiated_ms: int
    size_bytes: int | None


class Bucket(Protocol):
    """The bucket of a location (``storage.s3.bucket.S3Bucket``).

    Attributes:
        unanswered: calls of ``archive_tiers``, ``archived``, ``versions`` and ``uploads`` without an answer.
    """

    unanswered: list[UnansweredCall]

    @property
    def prefix(self) -> str:
        """The beginning of all keys below the location."""

    def settings(self) -> BucketSettings:
        """The rules of the bucket for its objects."""

    def archive_tiers(self) -> list[ArchiveTier]:
        """The archive tiers of the storage class INTELLIGENT_TIERING."""

    def archived(self, keys: Sequence[str]) -> dict[str, str]:
        """The archive tier of each of these objects that must be restored before it can be read, by key: one request each.

        Args:
            keys: below the location, of objects in the storage class INTELLIGENT_TIERING, whose listing does not show the tier.
        """

    def versions(self, name_prefix: str) -> Iterator[ListedVersion]:
        """Every version of every object below the location, and every delete marker, ascending by key.

        Args:
            name_prefix: only keys below the location that begin with it.
        """

    def uploads(self, name_prefix: str) -> Iterator[ListedUpload]:
        """Every multipart upload below the location that was neither completed nor aborted.

        Args:
            name_prefix: only keys below the location that begin with it.
        """
