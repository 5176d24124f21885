"""How an object store is reached: locations, credentials, keys and connections."""

import base64
import hashlib
import os
import pickle
import socket
from pathlib import Path

import pytest
from faulty_store import FaultyStore
from s3_stores import NAME, PLACE, read, store_of

from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3.object_bytes import RANGE_BYTES
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import S3Settings, absolute


def test_locations() -> None:
    assert absolute("s3://bucket/") == absolute("s3://bucket") == "s3://bucket"
    assert absolute("s3://bucket/a/b//") == "s3://bucket/a/b"
    for location in ("s3://", "s3:///a", "s3://b/a//c", "s3://b/./c", "s3://user:hunter2@b/c", "s3://b?x=hunter2"):
        with pytest.raises(UsageError) as caught:
            absolute(location)
        assert "hunter2" not in str(caught.value)
    # As a path each would be a directory below the working one, which --out would make.
    for location in ("s3a://b/c", "S3://b/c", "hdfs://user:hunter2@host/c", "file:///c"):
        with pytest.raises(UsageError, match="expected a path, or s3://BUCKET/PREFIX") as caught:
            absolute(location)
        assert "hunter2" not in str(caught.value)
    assert absolute("./s3a://b") == os.path.abspath("s3a:/b"), "a path all the same"


def test_no_one_answers_at_the_endpoint() -> None:
    """Which of three places named it wrongly, the program does not know: it names all of them."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and no one listens
        store = S3Store(S3Settings(endpoint_url=f"http://user:hunter2@127.0.0.1:{taken.getsockname()[1]}", anonymous=True))
        with pytest.raises(
            ReadFailedError, match=r"nothing answers at the endpoint .*--s3-endpoint-url, --server-properties, AWS_ENDPOINT_URL"
        ) as caught:
            store.identity("s3://b/a")
    assert "hunter2" not in str(caught.value)


def test_a_store_travels() -> None:
    store = S3Store(S3Settings(endpoint_url="http://127.0.0.1:1", run="one"))
    assert pickle.loads(pickle.dumps(store)) == store == S3Store(S3Settings(endpoint_url="http://127.0.0.1:1", run="two"))
    assert "secret" not in repr(store)


def test_few_connections_are_kept(faulty: FaultyStore) -> None:
    """Each run has its own; of a process that begins run after run, the last ones stay, and who still has an older one may go on."""
    faulty.objects["bucket/k"] = b"data"
    first, *_, last = stores = [store_of(faulty, run=f"run {number}") for number in range(s3_requests.CLIENTS_MAX + 2)]
    held = s3_requests.client_of(first.settings)
    assert [store.read_small("s3://bucket/k", 10) for store in stores] == [b"data"] * len(stores)
    assert len(s3_requests._clients) == s3_requests.CLIENTS_MAX
    assert s3_requests.client_of(last.settings) is s3_requests.client_of(last.settings)
    assert s3_requests.client_of(first.settings) is not held
    assert held.get_object(Bucket="bucket", Key="k")["Body"].read() == b"data"


KEY_32 = b"0123456789abcdef0123456789ABCDEF"
KEY_BASE64 = base64.b64encode(KEY_32).decode()
OF_KEY = "x-amz-server-side-encryption-customer-"
LONG_ENOUGH = bytes(RANGE_BYTES + 1)


def every_request(store: S3Store, faulty: FaultyStore) -> None:
    """Each kind of request that a run may send."""
    faulty.objects |= {"bucket/t-0/small": b"data", "bucket/t-0/long": LONG_ENOUGH}
    assert [key for key, _ in store.list_below("s3://bucket")] == ["t-0/long", "t-0/small"]
    store.names_in(PLACE)
    store.holds_segments(PLACE)
    assert store.present(PLACE, ("small", "absent")) == {"small"}
    assert store.read_small(f"{PLACE}/small", 10) == b"data"
    assert store.read_end(f"{PLACE}/small", 2) == (4, b"ta")
    assert read(store, f"{PLACE}/long") == LONG_ENOUGH
    store.prepare_writes(PLACE)
    store.create(PLACE, NAME, b"new", owner=None, temporary_name="")
    assert {"GET", "HEAD", "PUT", "DELETE"} == set(faulty.methods())


@pytest.mark.parametrize("place", ["raw file", "base64 file", "variable"])
def test_a_customers_key(place: str, faulty: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes with every request for an object, and nowhere else."""
    path = tmp_path / "key"
    path.write_bytes(KEY_32 if place == "raw file" else KEY_BASE64.encode() + b"\n")
    if place == "variable":
        monkeypatch.setenv("SNAPREBUILD_S3_SSE_C_KEY", KEY_BASE64)
    store = store_of(faulty, sse_c_key_file=None if place == "variable" else str(path), run=place)
    every_request(store, faulty)
    sent = {
        f"{OF_KEY}algorithm": "AES256",
        f"{OF_KEY}key": KEY_BASE64,
        f"{OF_KEY}key-md5": base64.b64encode(hashlib.md5(KEY_32).digest()).decode(),
    }
    for method, path_of, headers in faulty.seen:
        is_of_object = "list-type" not in path_of and method != "DELETE"
        assert {name: value for name, value in headers.items() if name.startswith(OF_KEY)} == (sent if is_of_object else {})
    for held in (repr(store), pickle.dumps(store).decode("latin-1")):
        assert KEY_BASE64 not in held
        assert KEY_32.decode() not in held


def test_what_is_no_key(faulty: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    for bad in (b"hunter2", b"", KEY_32 + b"0", base64.b64encode(KEY_32[:31])):
        key.write_bytes(bad)
        with pytest.raises(UsageError, match="s3_sse_c_key_file: expected 32 bytes, raw or in base64") as caught:
            store_of(faulty, sse_c_key_file=str(key)).read_small("s3://bucket/small", 10)
        assert "hunter2" not in str(caught.value)
    for bad_text in ("hunter2", KEY_32.decode(), "\udcff"):
        monkeypatch.setenv("SNAPREBUILD_S3_SSE_C_KEY", bad_text)
        with pytest.raises(UsageError, match=r"\$SNAPREBUILD_S3_SSE_C_KEY: expected 32 bytes, in base64") as caught:
            store_of(faulty).read_small("s3://bucket/small", 10)
        assert bad_text not in str(caught.value)
    assert not faulty.seen


@pytest.mark.parametrize("place", ["file", "variable"])
def test_a_key_does_not_cross_the_network_in_the_clear(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    key.write_bytes(KEY_32)
    if place == "variable":
        monkeypatch.setenv("SNAPREBUILD_S3_SSE_C_KEY", KEY_BASE64)
    remote = S3Store(
        S3Settings(endpoint_url="http://store.example", sse_c_key_file=str(key) if place == "file" else None, run=place)
    )
    with pytest.raises(UsageError, match="would cross the network in the clear"):
        remote.read_small("s3://bucket/small", 10)


def test_the_requester_pays(faulty: FaultyStore) -> None:
    every_request(store_of(faulty, requester_pays=True, run="payer"), faulty)
    assert {headers.get("x-amz-request-payer") for _, _, headers in faulty.seen} == {"requester"}
    faulty.seen.clear()
    faulty.objects.clear()
    every_request(store_of(faulty, run="no payer"), faulty)
    assert {headers.get("x-amz-request-payer") for _, _, headers in faulty.seen} == {None}
    assert all("authorization" in headers for _, _, headers in faulty.seen)


@pytest.mark.parametrize("has_credentials", [True, False])
def test_an_anonymous_caller_signs_nothing(has_credentials: bool, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_credentials:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    every_request(store_of(faulty, anonymous=True, run=f"anonymous {has_credentials}"), faulty)
    assert not [headers for _, _, headers in faulty.seen if "authorization" in headers or "x-amz-security-token" in headers]
    assert not [path for _, path, _ in faulty.seen if "X-Amz-Signature" in path]
