"""Rules of a bucket that no listing shows: answers of S3 as the SDK parses them, and a real store."""

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from object_store import ObjectStore

from snaprebuild.storage.bucket_contents import LifecycleRule, ObjectLock, ReplicationRule, Transition
from snaprebuild.storage.s3 import bucket as s3_bucket
from snaprebuild.storage.s3.bucket import PERMISSIONS, S3Bucket
from snaprebuild.storage.s3.requests import redacted
from snaprebuild.storage.store import S3Settings

WHEN = datetime(2026, 11, 20, 12, tzinfo=UTC)
WHEN_MS = 1_795_176_000_000


class AnsweringClient:
    """Answers by name of the method; a text is the code of an error, with status 403 for ``AccessDenied``, else 404."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(**request: Any) -> Any:
            self.requests.append((name, request))
            answer = self._answers.get(name, {})
            if isinstance(answer, list):
                answer = answer.pop(0)
            if isinstance(answer, str):
                status = 403 if answer == "AccessDenied" else 404
                raise ClientError({"Error": {"Code": answer}, "ResponseMetadata": {"HTTPStatusCode": status}}, name)
            return answer

        return call

    def get_paginator(self, name: str) -> Any:
        client = self

        class Pages:
            def paginate(self, **request: Any) -> list[Any]:
                return [getattr(client, name)(**request)]

        return Pages()


def bucket_of(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> tuple[S3Bucket, AnsweringClient]:
    client = AnsweringClient(**answers)
    monkeypatch.setattr(s3_bucket, "client_of", lambda _settings: client)
    return S3Bucket("s3://b/tier", S3Settings()), client


NOTHING = {
    "get_bucket_lifecycle_configuration": "NoSuchLifecycleConfiguration",
    "get_object_lock_configuration": "ObjectLockConfigurationNotFoundError",
    "get_bucket_replication": "ReplicationConfigurationNotFoundError",
}


def test_a_bucket_without_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = bucket_of(monkeypatch, **NOTHING)[0].settings()
    assert (settings.versioning, settings.lifecycle_rules, settings.object_lock, settings.replication_rules) == (
        "Off",
        (),
        None,
        (),
    )
    assert settings.unanswered == ()


RULES = [
    {"ID": "all", "Status": "Enabled", "Filter": {}, "Expiration": {"Days": 30}},
    {"ID": "off", "Status": "Disabled", "Filter": {}, "Expiration": {"Days": 1}},
    {"ID": "old form", "Status": "Enabled", "Prefix": "tier/", "Expiration": {"Date": WHEN}},
    {
        "ID": "and",
        "Status": "Enabled",
        "Filter": {"And": {"Prefix": "tier/a", "Tags": [{"Key": "k", "Value": "v"}], "ObjectSizeGreaterThan": 10}},
        "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}, {"Days": 90, "StorageClass": "DEEP_ARCHIVE"}],
    },
    {"ID": "tag", "Status": "Enabled", "Filter": {"Tag": {"Key": "k", "Value": "v"}}, "Expiration": {"Days": 2}},
    {
        "ID": "clean",
        "Status": "Enabled",
        "Filter": {"ObjectSizeLessThan": 5},
        "Expiration": {"ExpiredObjectDeleteMarker": True},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 7},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3},
    },
]


def test_every_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    replication = {
        "Rules": [
            {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "tier/"}, "Destination": {"Bucket": "arn:aws:s3:::copy"}},
            {"ID": "off", "Status": "Disabled", "Destination": {"Bucket": "arn:aws:s3:::x"}},
        ]
    }
    lock = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Years": 1}}}
    settings = bucket_of(
        monkeypatch,
        get_bucket_versioning={"Status": "Enabled"},
        get_bucket_lifecycle_configuration={"Rules": RULES},
        get_object_lock_configuration={"ObjectLockConfiguration": lock},
        get_bucket_replication={"ReplicationConfiguration": replication},
    )[0].settings()
    assert settings.versioning == "Enabled"
    transitions = (
        Transition(storage_class="GLACIER", transition_after="1 day"),
        Transition(storage_class="DEEP_ARCHIVE", transition_after="90 days"),
    )
    assert settings.lifecycle_rules == (
        LifecycleRule(rule_id="all", prefix="", expiration="30 days"),
        LifecycleRule(rule_id="old form", prefix="tier/", expiration="2026-11-20"),
        LifecycleRule(rule_id="and", prefix="tier/a", has_tags=True, larger_than_bytes=10, transitions=transitions),
        LifecycleRule(rule_id="tag", prefix="", has_tags=True, expiration="2 days"),
        LifecycleRule(rule_id="clean", prefix="", smaller_than_bytes=5, noncurrent_expiration_days=7, abort_uploads_days=3),
    )
    assert settings.object_lock == ObjectLock(lock_mode="COMPLIANCE", lock_retention="1 year")
    assert settings.replication_rules == (
        ReplicationRule(rule_id="r", prefix="tier/", destination="arn:aws:s3:::copy", replicates_deletes=False),
    )


@pytest.mark.parametrize(
    ("default", "retention"),
    [({"Days": 30}, "30 days"), ({"Days": 30, "Years": 0}, "30 days"), ({"Days": 0, "Years": 2}, "2 years"), ({}, None)],
)
def test_a_lock_of_a_store_that_answers_both_units(
    monkeypatch: pytest.MonkeyPatch, default: dict[str, int], retention: str | None
) -> None:
    """S3 answers one of them, and the server of moto 0 for the other one."""
    lock = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", **default}}}
    bucket, _ = bucket_of(monkeypatch, get_object_lock_configuration={"ObjectLockConfiguration": lock})
    assert bucket.settings().object_lock == ObjectLock(lock_mode="GOVERNANCE", lock_retention=retention)


@pytest.mark.parametrize(
    ("method", "call", "member"),
    [
        ("get_bucket_versioning", "GetBucketVersioning", "versioning"),
        ("get_bucket_lifecycle_configuration", "GetBucketLifecycleConfiguration", "lifecycle_rules"),
        ("get_object_lock_configuration", "GetObjectLockConfiguration", "object_lock"),
        ("get_bucket_replication", "GetBucketReplication", "replication_rules"),
    ],
)
def test_a_missing_permission_leaves_one_setting_unknown(
    monkeypatch: pytest.MonkeyPatch, method: str, call: str, member: str
) -> None:
    settings = bucket_of(monkeypatch, **{**NOTHING, method: "AccessDenied"})[0].settings()
    ((unanswered),) = settings.unanswered
    assert (unanswered.call, unanswered.permission, unanswered.denied) == (call, PERMISSIONS[call], True)
    assert getattr(settings, member) is None


def test_archive_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    enabled = {
        "Id": "c",
        "Status": "Enabled",
        "Filter": {"Prefix": "tier/"},
        "Tierings": [{"Days": 90, "AccessTier": "ARCHIVE_ACCESS"}, {"Days": 180, "AccessTier": "DEEP_ARCHIVE_ACCESS"}],
    }
    disabled = {"Id": "d", "Status": "Disabled", "Tierings": [{"Days": 90, "AccessTier": "ARCHIVE_ACCESS"}]}
    pages = [
        {"IntelligentTieringConfigurationList": [enabled], "IsTruncated": True, "NextContinuationToken": "t"},
        {"IntelligentTieringConfigurationList": [disabled]},
    ]
    bucket, client = bucket_of(monkeypatch, list_bucket_intelligent_tiering_configurations=pages)
    assert [(each.access_tier, each.idle_days, each.prefix) for each in bucket.archive_tiers()] == [
        ("ARCHIVE_ACCESS", 90, "tier/"),
        ("DEEP_ARCHIVE_ACCESS", 180, "tier/"),
    ]
    assert client.requests[1][1]["ContinuationToken"] == "t"
    bucket, _ = bucket_of(monkeypatch, list_bucket_intelligent_tiering_configurations="AccessDenied")
    assert bucket.archive_tiers() == []
    assert [each.permission for each in bucket.unanswered] == ["s3:GetIntelligentTieringConfiguration"]


def test_pages_of_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(key: str, version_id: str, size: int, *, is_latest: bool) -> dict[str, Any]:
        return {"Key": key, "VersionId": version_id, "Size": size, "LastModified": WHEN, "ETag": '"e"', "IsLatest": is_latest}

    first = {
        "Versions": [version("tier/a", "2", 5, is_latest=True), version("tier/a", "1", 4, is_latest=False)],
        "IsTruncated": True,
        "NextKeyMarker": "tier/a",
        "NextVersionIdMarker": "1",
    }
    marker = {"Key": "tier/b", "VersionId": "9", "LastModified": WHEN, "IsLatest": True}
    bucket, client = bucket_of(monkeypatch, list_object_versions=[first, {"DeleteMarkers": [marker]}])
    versions = list(bucket.versions(""))
    assert [(each.key, each.version_id, each.is_current, each.is_delete_marker, each.size_bytes) for each in versions] == [
        ("a", "2", True, False, 5),
        ("a", "1", False, False, 4),
        ("b", "9", True, True, 0),
    ]
    assert {each.modified_ms for each in versions} == {WHEN_MS}
    assert client.requests[1][1]["KeyMarker"] == "tier/a"
    assert {request["Prefix"] for _, request in client.requests} == {"tier/"}
    assert client.requests[1][1]["VersionIdMarker"] == "1"


def test_versions_that_may_not_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, _ = bucket_of(monkeypatch, list_object_versions="AccessDenied", list_multipart_uploads="NotImplemented")
    assert (list(bucket.versions("")), list(bucket.uploads(""))) == ([], [])
    assert [(each.call, each.denied) for each in bucket.unanswered] == [
        ("ListObjectVersions", True),
        ("ListMultipartUploads", False),
    ]


def test_uploads_with_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = {"Uploads": [{"Key": "tier/a", "UploadId": "u", "Initiated": WHEN}]}
    bucket, _ = bucket_of(monkeypatch, list_multipart_uploads=uploads, list_parts={"Parts": [{"Size": 3}, {"Size": 4}]})
    assert [(each.key, each.upload_id, each.initiated_ms, each.size_bytes) for each in bucket.uploads("")] == [
        ("a", "u", WHEN_MS, 7)
    ]
    bucket, _ = bucket_of(monkeypatch, list_multipart_uploads=uploads, list_parts="AccessDenied")
    assert [each.size_bytes for each in bucket.uploads("")] == [None]
    assert [each.permission for each in bucket.unanswered] == ["s3:ListMultipartUploadParts"]


@pytest.mark.s3
def test_a_real_store(object_store: ObjectStore) -> None:
    """Versions, delete markers and multipart uploads. The server has no lifecycle and no replication: these stay unknown or none."""
    name = object_store.bucket()
    object_store.client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    object_store.put(f"s3://{name}/tier/a", b"first")
    object_store.put(f"s3://{name}/tier/a", b"second")
    object_store.put(f"s3://{name}/tier/b", b"deleted")
    object_store.client.delete_object(Bucket=name, Key="tier/b")
    object_store.put(f"s3://{name}/other", b"elsewhere")
    upload_id = object_store.client.create_multipart_upload(Bucket=name, Key="tier/c")["UploadId"]
    object_store.client.upload_part(Bucket=name, Key="tier/c", UploadId=upload_id, PartNumber=1, Body=b"part")
    bucket = S3Bucket(f"s3://{name}/tier", S3Settings())
    settings = bucket.settings()
    assert settings.versioning == "Enabled"
    assert settings.lifecycle_rules in (None, ())
    versions = list(bucket.versions(""))
    assert sorted((each.key, each.is_current, each.is_delete_marker, each.size_bytes) for each in versions) == [
        ("a", False, False, 5),
        ("a", True, False, 6),
        ("b", False, False, 7),
        ("b", True, True, 0),
    ]
    assert [(each.key, each.upload_id, each.size_bytes) for each in bucket.uploads("")] == [("c", upload_id, 4)]
    assert [each.key for each in bucket.versions("b")] == ["b", "b"]
    assert list(bucket.uploads("a")) == []
    assert bucket.unanswered == []


def test_archive_tiers_of_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The header ``x-amz-archive-status``; an object that is gone, and one that is restored, have none."""
    answers: list[Any] = [{"ArchiveStatus": "ARCHIVE_ACCESS"}, {"StorageClass": "INTELLIGENT_TIERING"}, "404"]
    monkeypatch.setattr(s3_bucket, "HEADS_AT_ONCE", 1)
    bucket, client = bucket_of(monkeypatch, head_object=answers)
    assert bucket.archived(["a", "b", "c"]) == {"a": "ARCHIVE_ACCESS"}
    assert client.requests == [("head_object", {"Bucket": "b", "Key": f"tier/{key}"}) for key in "abc"]
    assert bucket.unanswered == []


def test_the_first_object_without_an_answer_is_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_bucket, "HEADS_AT_ONCE", 1)
    bucket, client = bucket_of(monkeypatch, head_object=[{"ArchiveStatus": "ARCHIVE_ACCESS"}, "AccessDenied"])
    assert bucket.archived(["a", "b", "c"]) == {"a": "ARCHIVE_ACCESS"}
    assert len(client.requests) == 2
    assert [(each.call, each.permission, each.denied) for each in bucket.unanswered] == [("HeadObject", "s3:GetObject", True)]


def test_a_read_of_an_archived_object_names_what_is_to_do() -> None:
    error = ClientError({"Error": {"Code": "InvalidObjectState"}, "ResponseMetadata": {"HTTPStatusCode": 403}}, "GetObject")
    expected = "the object is archived, and must be restored before it can be read (403 InvalidObjectState)"
    assert redacted(error) == expected
