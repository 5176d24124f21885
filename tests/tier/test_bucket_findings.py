"""Fates of the copies in a bucket, and of the records of them: each fault beside a healthy form."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec import structs

from snaprebuild.cluster.metadata.image_model import ConfigResource, MetadataImage, ResourceType, TopicImage
from snaprebuild.cluster.metadata.registered_model import PartitionRegistration
from snaprebuild.findings import Finding, exit_code_of
from snaprebuild.snapshots.source.selection import EVERYTHING, Selection
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
from snaprebuild.tier.inventory.bucket_report import archive_findings, bucket_findings, read_bucket
from snaprebuild.tier.inventory.metadata_topic_report import metadata_topic_findings, metadata_topic_report

ID = "AAAAAAAAAAAAAAAAAAAAAQ"
KEYS = [f"t-{ID}/0/{0:020d}-{ID}.{kind}" for kind in ("log", "indexes", "rsm-manifest")]
OBJECTS = [(f"tier/{key}", size) for key, size in zip(KEYS, (1_000_000, 5_000, 600), strict=True)]


@dataclass
class FakeBucket:
    """A bucket of given contents."""

    rules: BucketSettings = field(
        default_factory=lambda: BucketSettings(versioning="Off", lifecycle_rules=(), replication_rules=())
    )
    kept: tuple[ListedVersion, ...] = ()
    begun: tuple[ListedUpload, ...] = ()
    unanswered: list[UnansweredCall] = field(default_factory=list)
    prefix: str = "tier/"
    tiers: list[ArchiveTier] = field(default_factory=list)

    def settings(self) -> BucketSettings:
        return self.rules

    def archive_tiers(self) -> list[ArchiveTier]:
        return self.tiers

    def archived(self, keys: Sequence[str]) -> dict[str, str]:
        raise AssertionError(f"{len(keys)} requests although no object is in INTELLIGENT_TIERING")

    def versions(self, name_prefix: str) -> Iterator[ListedVersion]:
        yield from (each for each in self.kept if each.key.startswith(name_prefix))

    def uploads(self, name_prefix: str) -> Iterator[ListedUpload]:
        yield from (each for each in self.begun if each.key.startswith(name_prefix))


def with_rules(*rules: LifecycleRule, **more: Any) -> FakeBucket:
    return FakeBucket(BucketSettings(lifecycle_rules=rules, **{"versioning": "Off", "replication_rules": (), **more}))


def findings_of(bucket: FakeBucket) -> list[Finding]:
    return list(bucket_findings("s3://b/tier", read_bucket(bucket, EVERYTHING, ""), OBJECTS))


GLACIER = (Transition(storage_class="GLACIER", transition_after="1 day"),)
INSTANT = (Transition(storage_class="GLACIER_IR", transition_after="1 day"),)
FAULTS = {
    "deletes all after 30 days": (
        with_rules(LifecycleRule(rule_id="r", prefix="", expiration="30 days")),
        "tier-lifecycle-deletes",
    ),
    "deletes on a date": (
        with_rules(LifecycleRule(rule_id="r", prefix="tier/", expiration="2026-12-01")),
        "tier-lifecycle-deletes",
    ),
    "deletes large objects": (
        with_rules(LifecycleRule(rule_id="r", prefix="", larger_than_bytes=900_000, expiration="1 day")),
        "tier-lifecycle-deletes",
    ),
    "deletes one topic": (
        with_rules(LifecycleRule(rule_id="r", prefix=f"tier/t-{ID}/0/", expiration="1 day")),
        "tier-lifecycle-deletes",
    ),
    "archives": (with_rules(LifecycleRule(rule_id="r", prefix="", transitions=GLACIER)), "tier-lifecycle-archives"),
}
HEALTHY = {
    "no rule": (FakeBucket(), set()),
    "another prefix": (with_rules(LifecycleRule(rule_id="r", prefix="logs/", expiration="1 day")), set()),
    "small objects": (with_rules(LifecycleRule(rule_id="r", prefix="", smaller_than_bytes=600, expiration="1 day")), set()),
    "a class that is read at once": (with_rules(LifecycleRule(rule_id="r", prefix="", transitions=INSTANT)), set()),
    "cleans what is hidden": (
        with_rules(LifecycleRule(rule_id="r", prefix="", noncurrent_expiration_days=1, abort_uploads_days=1)),
        set(),
    ),
    "tags, which the plugin does not write": (
        with_rules(LifecycleRule(rule_id="r", prefix="", has_tags=True, expiration="1 day")),
        {"tier-lifecycle-deletes"},
    ),
    "versions of what was deleted": (
        FakeBucket(
            BucketSettings(versioning="Enabled", lifecycle_rules=(), replication_rules=()),
            kept=(ListedVersion(KEYS[0], "1", False, False, 9, 5), ListedVersion(KEYS[0], "2", True, True, 0, 6)),
        ),
        {"tier-noncurrent"},
    ),
    "an upload": (FakeBucket(begun=(ListedUpload(KEYS[0], "u", 5, 7),)), {"tier-unfinished-uploads"}),
    "an object lock": (with_rules(object_lock=ObjectLock(lock_mode="GOVERNANCE", lock_retention="1 day")), {"tier-object-lock"}),
    "replication": (
        with_rules(replication_rules=(ReplicationRule(rule_id="r", prefix="", destination="b", replicates_deletes=True),)),
        {"tier-replication"},
    ),
}


@pytest.mark.parametrize(("bucket", "code"), FAULTS.values(), ids=FAULTS)
def test_a_rule_that_loses_data_is_found(bucket: FakeBucket, code: str) -> None:
    findings = findings_of(bucket)
    assert ([each.code for each in findings], exit_code_of(findings)) == ([code], 1)


@pytest.mark.parametrize(("bucket", "codes"), HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_bucket_gives_notes_at_most(bucket: FakeBucket, codes: set[str]) -> None:
    findings = findings_of(bucket)
    assert ({each.code for each in findings}, exit_code_of(findings)) == (codes, 0)


def test_a_missing_permission_is_named_and_is_no_failure_of_the_rest() -> None:
    denied = UnansweredCall(call="GetBucketReplication", permission="s3:GetReplicationConfiguration", reason="x", denied=True)
    rule = LifecycleRule(rule_id="r", prefix="", expiration="30 days")
    bucket = FakeBucket(BucketSettings(versioning="Off", lifecycle_rules=(rule,), unanswered=(denied,)))
    findings = {each.code: each for each in findings_of(bucket)}
    assert findings.keys() == {"bucket-not-read", "tier-lifecycle-deletes"}
    absent = UnansweredCall(call="GetBucketVersioning", permission="s3:GetBucketVersioning", reason="501 NotImplemented")
    both = FakeBucket(BucketSettings(unanswered=(denied, absent, absent)))
    assert [each.message.partition(":")[0] for each in findings_of(both)] == [
        "GetBucketReplication (s3",
        "GetBucketVersioning, GetBucketVersioning",
    ]
    assert "GetBucketReplication" in findings["bucket-not-read"].message
    assert "s3:GetReplicationConfiguration" in findings["bucket-not-read"].message
    only = FakeBucket(BucketSettings(versioning="Off", unanswered=(denied,)))
    assert exit_code_of(findings_of(only)) == 0


@pytest.mark.parametrize(
    ("prefix", "has_tags", "keys", "exit_codes"),
    [
        ("tier/", False, [key for key, _ in OBJECTS], [1]),
        ("", False, [key for key, _ in OBJECTS], [1]),
        ("tier/", True, [key for key, _ in OBJECTS], [0]),
        ("logs/", False, [key for key, _ in OBJECTS], []),
        ("tier/", False, [], []),
    ],
)
def test_archive_tiers(prefix: str, has_tags: bool, keys: list[str], exit_codes: list[int]) -> None:
    """Only objects of that storage class are archived, and only then the bucket is asked."""
    tier = ArchiveTier(configuration_id="c", prefix=prefix, has_tags=has_tags, access_tier="ARCHIVE_ACCESS", idle_days=90)
    findings = list(archive_findings("s3://b/tier", FakeBucket(tiers=[tier]), keys))
    assert [exit_code_of([each]) for each in findings] == exit_codes


def test_a_limit_that_ends_the_calls_is_no_health() -> None:
    limited = UnansweredCall(call="ListObjectVersions", permission="s3:ListBucketVersions", reason="used up", limited=True)
    bucket = FakeBucket(BucketSettings(versioning="Enabled"), unanswered=[limited])
    contents = read_bucket(bucket, EVERYTHING, "")
    assert contents.hidden is None
    assert exit_code_of(bucket_findings("s3://b", contents, OBJECTS)) == 1


def test_hidden_bytes_of_a_selection() -> None:
    other = KEYS[0].replace("t-", "u-", 1)
    kept = tuple(ListedVersion(key, "1", False, False, 10, 5) for key in (KEYS[0], KEYS[1], other, "no key of a plugin"))
    begun = (ListedUpload(KEYS[0], "u", 7, 3), ListedUpload(other, "v", 5, None))
    bucket = FakeBucket(BucketSettings(versioning="Suspended"), kept=kept, begun=begun)
    everything = read_bucket(bucket, EVERYTHING, "")
    assert everything.hidden is not None
    assert everything.unfinished is not None
    assert (everything.hidden.noncurrent_versions, everything.hidden.noncurrent_bytes) == (4, 40)
    assert (everything.unfinished.uploads, everything.unfinished.part_bytes, everything.unfinished.oldest_ms) == (2, None, 5)
    selected = read_bucket(bucket, Selection(topics=("t",)), "")
    assert selected.hidden is not None
    assert selected.unfinished is not None
    assert (selected.hidden.noncurrent_versions, selected.hidden.noncurrent_bytes) == (2, 20)
    assert (selected.unfinished.uploads, selected.unfinished.part_bytes) == (1, 3)


# ---------------------------------------------------------------------------------------------------- the metadata topic

TOPIC = "__remote_log_metadata"
REGISTRATION = PartitionRegistration(
    leader=1,
    leader_epoch=0,
    leader_recovery_state="RECOVERED",
    partition_epoch=0,
    replicas=(1, 2, 3),
    directories=("UNASSIGNED",) * 3,
    isr=(1, 2, 3),
    elr=(),
    last_known_elr=(),
    adding=(),
    removing=(),
)
AS_KAFKA_MAKES_IT = {"cleanup.policy": "delete", "retention.ms": "-1"}


def image_of(settings: dict[str, str], defaults: dict[str, str] | None = None, replicas: int = 3) -> MetadataImage:
    partitions = {0: REGISTRATION, 1: replace_replicas(replicas)}
    topic = TopicImage(TOPIC, b"\1" * 16, partitions)
    configs = {ConfigResource(ResourceType.TOPIC, TOPIC): settings, ConfigResource(ResourceType.BROKER, ""): defaults or {}}
    return replace(MetadataImage(), topics={topic.topic_id: topic}, topic_ids={TOPIC: topic.topic_id}, configs=configs)


def replace_replicas(count: int) -> PartitionRegistration:
    return structs.replace(REGISTRATION, replicas=tuple(range(count)))


@pytest.mark.parametrize(
    ("image", "codes"),
    [
        (image_of(AS_KAFKA_MAKES_IT), []),
        (image_of({**AS_KAFKA_MAKES_IT, "retention.bytes": "-1"}), []),
        (image_of({"cleanup.policy": "delete"}, {"log.retention.ms": "-1"}), []),
        (image_of(AS_KAFKA_MAKES_IT, replicas=2), []),
        (image_of({"cleanup.policy": "delete", "retention.ms": "604800000"}), ["metadata-topic-retention"]),
        (image_of({}), ["metadata-topic-retention"]),
        (image_of({}, {"log.retention.ms": "1000"}), ["metadata-topic-retention"]),
        (image_of({**AS_KAFKA_MAKES_IT, "retention.bytes": "1000"}), ["metadata-topic-retention"]),
        (image_of({**AS_KAFKA_MAKES_IT, "cleanup.policy": "compact"}), ["metadata-topic-compacted"]),
        (image_of(AS_KAFKA_MAKES_IT, replicas=1), ["metadata-topic-replicas"]),
    ],
)
def test_settings_of_the_metadata_topic(image: MetadataImage, codes: list[str]) -> None:
    report = metadata_topic_report(image)
    assert report is not None
    assert [each.code for each in metadata_topic_findings(report, image, "node")] == codes


def test_a_cluster_without_the_topic() -> None:
    assert metadata_topic_report(MetadataImage()) is None
