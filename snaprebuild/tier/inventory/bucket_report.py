"""The contents of the bucket of a store besides the listed objects, and the fate of the copies in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from formats.remote.object_names import parse_aiven_key, parse_local_tier_name
from snaprebuild.findings import Finding, Severity, pluralize
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.storage.bucket_contents import Bucket, BucketSettings, LifecycleRule, ListedUpload, ListedVersion
from snaprebuild.storage.remote.listing import CopyObjects
from snaprebuild.tier.inventory.model import BucketReport, HiddenVersions, UnfinishedUploads

__all__ = [
    "INTELLIGENT_TIERING",
    "RESTORED_FIRST",
    "BucketContents",
    "archive_findings",
    "bucket_findings",
    "note_archived",
    "read_bucket",
    "report_of",
]

RESTORED_FIRST = frozenset(("GLACIER", "DEEP_ARCHIVE"))
"""Storage classes whose objects must be restored before they can be read."""

INTELLIGENT_TIERING = "INTELLIGENT_TIERING"
"""Storage class whose listing does not show which objects are archived."""

NEVER_ARCHIVED_BELOW_BYTES = 128_000
"""S3 moves no smaller object of that class to another tier."""

NO_VERSIONS = "Off"


@dataclass(slots=True)
class BucketContents:
    """The contents of a bucket besides the listed objects.

    Attributes:
        settings: what it does with them; ``unanswered`` has all calls without an answer.
        hidden: noncurrent versions and delete markers; None if they are unknown.
        unfinished: multipart uploads; None if they are unknown.
        version_ids: of current versions, by key below the location; empty unless keys are wanted.
    """

    settings: BucketSettings
    hidden: HiddenVersions | None = None
    unfinished: UnfinishedUploads | None = None
    version_ids: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Which keys are read: those of the plugin's prefix, and of the selection."""

    key_prefix: str
    selection: Selection

    def takes(self, key: str) -> bool:
        if not key.startswith(self.key_prefix):
            return False
        if not self.selection.is_narrowed:
            return True
        parsed = parse_aiven_key(key) or parse_local_tier_name("/".join(key.split("/")[-2:]))
        if parsed is None:
            return False
        return self.selection.takes_partition(parsed.topic.removeprefix(self.key_prefix), parsed.partition)


def read_bucket(
    bucket: Bucket,
    selection: Selection,
    key_prefix: str,
    *,
    on_version: Callable[[ListedVersion], None] | None = None,
    on_upload: Callable[[ListedUpload], None] | None = None,
) -> BucketContents:
    """Reads the settings of a bucket, its versions if it has any, and its multipart uploads.

    Args:
        bucket: of the store.
        selection: of partitions.
        key_prefix: of the plugin, below the location.
        on_version: gets each noncurrent version and delete marker; then the ids of current versions are kept, too.
        on_upload: gets each multipart upload.
    """
    chosen = _Chosen(key_prefix, selection)
    contents = BucketContents(bucket.settings())
    if contents.settings.versioning != NO_VERSIONS:
        contents.hidden = _hidden(bucket, chosen, contents.version_ids, on_version)
    else:
        contents.hidden = HiddenVersions(noncurrent_versions=0, noncurrent_bytes=0, delete_markers=0)
    contents.unfinished = _unfinished(bucket, chosen, on_upload)
    unanswered = (*contents.settings.unanswered, *bucket.unanswered)
    contents.settings = structs.replace(contents.settings, unanswered=unanswered)
    calls = {each.call for each in unanswered}
    if "ListObjectVersions" in calls:
        contents.hidden = None
    if "ListMultipartUploads" in calls:
        contents.unfinished = None
    return contents


def _hidden(
    bucket: Bucket, chosen: _Chosen, version_ids: dict[str, str], on_version: Callable[[ListedVersion], None] | None
) -> HiddenVersions:
    versions = 0
    size_bytes = 0
    markers = 0
    for each in bucket.versions(chosen.key_prefix):
        if not chosen.takes(each.key):
            continue
        if each.is_current and not each.is_delete_marker:
            if on_version is not None:
                version_ids[each.key] = each.version_id
            continue
        if each.is_delete_marker:
            markers += 1
        else:
            versions += 1
            size_bytes += each.size_bytes
        if on_version is not None:
            on_version(each)
    return HiddenVersions(noncurrent_versions=versions, noncurrent_bytes=size_bytes, delete_markers=markers)


def _unfinished(bucket: Bucket, chosen: _Chosen, on_upload: Callable[[ListedUpload], None] | None) -> UnfinishedUploads:
    count = 0
    sizes: list[int | None] = []
    oldest_ms: int | None = None
    for each in bucket.uploads(chosen.key_prefix):
        if not chosen.takes(each.key):
            continue
        count += 1
        sizes.append(each.size_bytes)
        oldest_ms = each.initiated_ms if oldest_ms is None else min(oldest_ms, each.initiated_ms)
        if on_upload is not None:
            on_upload(each)
    known = [each for each in sizes if each is not None]
    part_bytes = sum(known) if len(known) == count else None
    return UnfinishedUploads(uploads=count, part_bytes=part_bytes, oldest_ms=oldest_ms)


def note_archived(place: str, bucket: Bucket, copies: Iterable[CopyObjects]) -> Iterator[Finding]:
    """Notes which objects of copies in the storage class INTELLIGENT_TIERING are archived: one request for each that can be.

    Args:
        place: location of the store.
        bucket: of the store.
        copies: whose objects get their archive tiers.

    Yields:
        What had no answer.
    """
    objects = {
        listed.key: (copy, kind)
        for copy in copies
        for kind, listed in copy.by_kind.items()
        if listed.storage_class == INTELLIGENT_TIERING and listed.identity.size_bytes >= NEVER_ARCHIVED_BELOW_BYTES
    }
    if not objects:
        return
    before = len(bucket.unanswered)
    for key, tier in bucket.archived(list(objects)).items():
        copy, kind = objects[key]
        copy.by_kind[kind] = replace(copy.by_kind[kind], archive_tier=tier)
    unanswered = tuple(bucket.unanswered[before:])
    del bucket.unanswered[before:]  # else the report of the bucket would have them again
    yield from _unanswered_findings(place, BucketSettings(unanswered=unanswered))


def report_of(contents: BucketContents) -> BucketReport:
    """The contents of a bucket as a document has them."""
    members = {name: getattr(contents.settings, name) for name in BucketSettings.__struct_fields__}
    return BucketReport(**members, hidden=contents.hidden, unfinished_uploads=contents.unfinished)


# -------------------------------------------------------------------------------------------------------------------- findings


def bucket_findings(place: str, contents: BucketContents, objects: Sequence[tuple[str, int]]) -> Iterator[Finding]:
    """The fate of the copies in a bucket.

    Args:
        place: location of the store.
        contents: of its bucket.
        objects: key in the bucket and size of each object of a copy.
    """
    settings = contents.settings
    for rule in settings.lifecycle_rules or ():
        yield from _lifecycle_findings(place, rule, objects)
    yield from _unanswered_findings(place, settings)
    hidden = contents.hidden
    if hidden is not None and (hidden.noncurrent_versions or hidden.delete_markers):
        days = [each.noncurrent_expiration_days for each in settings.lifecycle_rules or () if each.noncurrent_expiration_days]
        removed = (
            f"a lifecycle rule deletes versions after {min(days)} days" if days else "no lifecycle rule that is known deletes them"
        )
        message = (
            f"{pluralize(hidden.noncurrent_versions, 'noncurrent version')} with {hidden.noncurrent_bytes} bytes and "
            f"{pluralize(hidden.delete_markers, 'delete marker')}, which no listing shows: deletes of brokers leave them, and {removed}"
        )
        yield Finding("tier-noncurrent", Severity.NOTE, place, message)
    unfinished = contents.unfinished
    if unfinished is not None and unfinished.uploads:
        size = "" if unfinished.part_bytes is None else f" with {unfinished.part_bytes} bytes"
        aborts = any(each.abort_uploads_days for each in settings.lifecycle_rules or ())
        rest = "a lifecycle rule aborts them" if aborts else "no lifecycle rule that is known aborts them"
        message = f"{pluralize(unfinished.uploads, 'multipart upload')}{size} not completed, which no listing shows: {rest}"
        yield Finding("tier-unfinished-uploads", Severity.NOTE, place, message)
    yield from _protection_findings(place, settings)


def _unanswered_findings(place: str, settings: BucketSettings) -> Iterator[Finding]:
    """Calls without an answer: those whose permission is missing, and the others."""
    denied = [f"{each.call} ({each.permission})" for each in settings.unanswered if each.denied]
    if denied:
        message = f"{', '.join(denied)}: the permission in parentheses is missing, and what the call shows is unknown"
        yield Finding("bucket-not-read", Severity.NOTE, place, message)
    others = [each for each in settings.unanswered if not each.denied]
    if others:
        calls = ", ".join(each.call for each in others)
        message = f"{calls}: no answer, so that what the call shows is unknown: {others[0].reason}"
        yield Finding("bucket-not-read", Severity.NOTE, place, message, is_unread=any(each.limited for each in others))


def _lifecycle_findings(place: str, rule: LifecycleRule, objects: Sequence[tuple[str, int]]) -> Iterator[Finding]:
    """The effects of an enabled lifecycle rule on objects of copies: none if it takes none of them."""
    taken = sum(rule.takes(key, size) for key, size in objects)
    if not taken:
        return
    name = f"lifecycle rule {rule.rule_id!r}"
    what = pluralize(taken, "object of copies", "objects of copies")
    if rule.has_tags:
        what += ", if they have its tags, which are not read"
    severity = Severity.NOTE if rule.has_tags else Severity.FINDING
    if rule.expiration is not None:
        when = f"after {rule.expiration}" if rule.expiration.endswith(("day", "days")) else f"on {rule.expiration}"
        message = f"{name} deletes {what} {when}: brokers are not told, and reads of these offsets fail"
        yield Finding("tier-lifecycle-deletes", severity, place, message)
    for each in rule.transitions:
        if each.storage_class in RESTORED_FIRST:
            move = f"{name} moves {what} to {each.storage_class} ({each.transition_after})"
            message = f"{move}: reads of brokers fail until the objects are restored"
            yield Finding("tier-lifecycle-archives", severity, place, message)


def archive_findings(place: str, bucket: Bucket, keys: Sequence[str]) -> Iterator[Finding]:
    """The configurations that archive objects of the storage class INTELLIGENT_TIERING that brokers read.

    Args:
        place: location of the store.
        bucket: of the store; it is asked only if there are such objects.
        keys: of these objects, in the bucket.
    """
    if not keys:
        return
    before = len(bucket.unanswered)
    for tier in bucket.archive_tiers():
        taken = sum(key.startswith(tier.prefix) for key in keys)
        if taken:
            what = pluralize(taken, "object of copies", "objects of copies")
            if tier.has_tags:
                what += ", if they have its tags, which are not read,"
            archives = f"{tier.access_tier} of configuration {tier.configuration_id!r} archives {what} after {tier.idle_days} days"
            message = f"{archives} without access: reads of brokers fail until the objects are restored"
            yield Finding("tier-lifecycle-archives", Severity.NOTE if tier.has_tags else Severity.FINDING, place, message)
    yield from _unanswered_findings(place, BucketSettings(unanswered=tuple(bucket.unanswered[before:])))


def _protection_findings(place: str, settings: BucketSettings) -> Iterator[Finding]:
    lock = settings.object_lock
    if lock is not None:
        default = "without a default retention"
        if lock.lock_retention is not None:
            default = f"{lock.lock_mode}, {lock.lock_retention} for new objects"
        message = f"object lock is on ({default}): a delete of a broker hides an object, whose bytes stay until the lock ends"
        yield Finding("tier-object-lock", Severity.NOTE, place, message)
    for rule in settings.replication_rules or ():
        if rule.replicates_deletes:
            deletes = "with delete markers"
        else:
            deletes = "without delete markers, so that deleted copies stay there"
        message = f"replication rule {rule.rule_id!r} copies new objects to {rule.destination}, {deletes}"
        yield Finding("tier-replication", Severity.NOTE, place, message)
