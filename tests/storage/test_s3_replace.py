"""Conditional replacement at an object store: each answer, answers that are lost, and what stays with the object."""

import pytest
from faulty_store import PUTS_THAT_ALWAYS_FAIL, FaultyStore, etag_of
from object_store import ObjectStore, split
from s3_stores import store_of
from sentences import CHANGED_SINCE_LISTED

from snaprebuild.errors import ChangedFileError, OutcomeUnknownError, RefusedError, SnaprebuildError
from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3 import store as s3
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import S3Settings, WholeObject

LOCATION, KEY = "s3://bucket/t-0/x.indexes", "bucket/t-0/x.indexes"

HEADERS = {
    "Expires": "Sat, 28 Nov 2026 00:00:00 GMT",
    "Content_Type": "application/x",
    "x_amz_storage_class": "STANDARD_IA",
    "x_amz_server_side_encryption": "aws:kms",
    "x_amz_server_side_encryption_aws_kms_key_id": "one",
    "x_amz_meta_mine": "yes",
}


@pytest.fixture
def faulty(faulty: FaultyStore) -> FaultyStore:
    """With the object that is replaced."""
    faulty.objects[KEY] = b"old"
    return faulty


def read(store: S3Store, location: str = LOCATION) -> WholeObject:
    found = store.read_whole(location, 1000)
    assert found is not None
    return found


@pytest.mark.parametrize("fault", ["", "409", "503", "500", "drop", "lost"])
def test_a_write_that_fails_once_at_most(faulty: FaultyStore, fault: str) -> None:
    was = read(store_of(faulty))
    faulty.faults["PUT"] = [fault]
    store_of(faulty).replace(LOCATION, b"new", was)
    assert faulty.objects == {KEY: b"new"}
    puts = [headers for method, _, headers in faulty.seen if method == "PUT"]
    assert all(headers["if-match"] == etag_of(b"old") and "if-none-match" not in headers for headers in puts)
    assert len(puts) == (1 if fault in ("", "lost") else 2)


@pytest.mark.parametrize(
    ("puts", "gets", "error", "reported"),
    [
        (["412"], [], ChangedFileError, CHANGED_SINCE_LISTED),
        (["another"], [], ChangedFileError, CHANGED_SINCE_LISTED),
        *PUTS_THAT_ALWAYS_FAIL,
        (["drop", "403"], [], OutcomeUnknownError, "may still appear"),
    ],
)
def test_a_write_that_always_fails(
    faulty: FaultyStore, puts: list[str], gets: list[str], error: type[SnaprebuildError], reported: str
) -> None:
    was = read(store_of(faulty))
    faulty.faults, faulty.lasting = {"PUT": puts, "GET": gets}, {"PUT", "GET"}
    with pytest.raises(error, match=reported) as caught:
        store_of(faulty).replace(LOCATION, b"new", was)
    assert type(caught.value) is error
    assert "hunter2" not in str(caught.value)
    assert faulty.methods().count("PUT") <= s3_requests.ATTEMPTS
    assert faulty.objects[KEY] == (b"another's" if puts == ["another"] else b"new" if puts == ["lost"] else b"old")


def test_an_object_that_is_another_one_or_gone(faulty: FaultyStore) -> None:
    was = read(store_of(faulty))
    faulty.objects[KEY] = b"mine"
    with pytest.raises(RefusedError, match=CHANGED_SINCE_LISTED):
        store_of(faulty).replace(LOCATION, b"new", was)
    assert faulty.objects == {KEY: b"mine"}
    del faulty.objects[KEY]
    with pytest.raises(RefusedError, match="is gone"):
        store_of(faulty).replace(LOCATION, b"new", was)
    faulty.faults["PUT"] = ["drop"]
    with pytest.raises(RefusedError, match="is gone"):
        store_of(faulty).replace(LOCATION, b"new", was)
    assert faulty.objects == {}
    assert store_of(faulty).read_whole(LOCATION, 10) is None


def test_a_limit_that_is_used_up_behind_a_lost_answer(faulty: FaultyStore) -> None:
    was = read(store_of(faulty))
    faulty.faults["PUT"] = ["500"]
    with pytest.raises(OutcomeUnknownError, match=r"max_requests 1 is used up"):
        store_of(faulty, max_requests=1, run="one").replace(LOCATION, b"new", was)
    with pytest.raises(RefusedError, match=r"max_requests 0 is used up"):
        store_of(faulty, max_requests=0, run="none").replace(LOCATION, b"new", was)


def test_the_probe(faulty: FaultyStore) -> None:
    """It leaves nothing, is sent once for a place, and refuses where the store ignores the condition, or knows none."""
    for _ in range(2):
        store_of(faulty).prepare_replacing("s3://bucket/t-0")
    assert faulty.objects == {KEY: b"old"}
    assert faulty.methods().count("DELETE") == 2, "one for each condition"
    assert all(s3.PROBE_NAME in path for _, path, _ in faulty.seen)
    faulty.ignores_if_match = True
    with pytest.raises(RefusedError, match="the store ignores If-Match"):
        store_of(faulty).prepare_replacing("s3://bucket/other")
    faulty.ignores_if_match = False
    faulty.choose = lambda method, _, headers: "412" if method == "PUT" and "if-match" in headers else ""
    with pytest.raises(RefusedError, match="refuses a write whose If-Match is right"):
        store_of(faulty).prepare_replacing("s3://bucket/other")
    faulty.choose = lambda method, _, headers: "501" if method == "PUT" and "if-match" in headers else ""
    with pytest.raises(RefusedError, match="takes no conditional writes"):
        store_of(faulty).prepare_replacing("s3://bucket/other")
    assert faulty.objects == {KEY: b"old"}


def test_what_stays_with_an_object(faulty: FaultyStore) -> None:
    faulty.metadata[KEY] = dict(HEADERS)
    was = read(store_of(faulty))
    store_of(faulty).replace(LOCATION, b"new", was)
    (sent,) = [headers for method, _, headers in faulty.seen if method == "PUT"]
    assert {name: sent[name.replace("_", "-").lower()] for name in HEADERS} == HEADERS
    faulty.metadata[KEY] = {"x_amz_tagging_count": "2"}
    was = read(store_of(faulty))
    assert was.not_kept == "tags"
    with pytest.raises(RefusedError, match="has tags, which a replacement would lose"):
        store_of(faulty).replace(LOCATION, b"newer", was)


@pytest.mark.parametrize(
    ("header", "value", "reported"),
    [
        ("x_amz_object_lock_mode", "GOVERNANCE", "an object lock"),
        ("x_amz_object_lock_retain_until_date", "2027-01-01T00:00:00Z", "an object lock"),
        ("x_amz_object_lock_legal_hold", "ON", "an object lock"),
        ("Expires", "never", "a field Expires that is no time"),
    ],
)
def test_what_a_replacement_would_lose(faulty: FaultyStore, header: str, value: str, reported: str) -> None:
    faulty.metadata[KEY] = {header: value}
    was = read(store_of(faulty))
    with pytest.raises(RefusedError, match=f"has {reported}, which a replacement would lose"):
        store_of(faulty).replace(LOCATION, b"newer", was)
    assert faulty.objects[KEY] == b"old"


@pytest.mark.s3
def test_at_a_real_object_store(object_store: ObjectStore) -> None:
    bucket = object_store.bucket()
    location = f"s3://{bucket}/t-0/x.indexes"
    object_store.client.put_object(
        Bucket=bucket, Key=split(location)[1], Body=b"old", Metadata={"mine": "yes"}, ContentType="application/x"
    )
    store = S3Store(S3Settings(endpoint_url=object_store.endpoint, path_style=True))
    store.prepare_replacing(f"s3://{bucket}")
    was = read(store, location)
    store.replace(location, b"new", was)
    now = object_store.client.get_object(Bucket=bucket, Key=split(location)[1])
    assert (now["Body"].read(), now["Metadata"], now["ContentType"]) == (b"new", {"mine": "yes"}, "application/x")
    with pytest.raises(RefusedError, match=CHANGED_SINCE_LISTED):
        store.replace(location, b"newer", was)
    object_store.client.delete_object(Bucket=bucket, Key=split(location)[1])
    with pytest.raises(RefusedError, match="is gone"):
        store.replace(location, b"newer", was)
    assert object_store.files(f"s3://{bucket}") == {}
