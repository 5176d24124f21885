"""The object store: reading and creating while requests fail, and at a real one."""

import base64
import hashlib
import itertools
import os
import pickle
import random
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from faulty_store import HUGE_BYTES, PUTS_THAT_ALWAYS_FAIL, FaultyStore
from log_dirs import EMPTY_SNAPSHOT, batch
from object_store import ObjectStore

from formats.log.batch_headers import HeaderReader
from snaprebuild.errors import AlreadyExistsError, OutcomeUnknownError, ReadFailedError, RefusedError, SnaprebuildError, UsageError
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.storage import thread_pool
from snaprebuild.storage.log_dir import find_partitions
from snaprebuild.storage.s3 import answers as s3_answers
from snaprebuild.storage.s3 import listing as s3_listing
from snaprebuild.storage.s3 import object_bytes
from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3 import store as s3
from snaprebuild.storage.s3.object_bytes import AHEAD, HELD_MAX, RANGE_BYTES
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import FileIdentity, S3Settings, absolute

PLACE, NAME = "s3://bucket/t-0", "00000000000000000009.snapshot"
KEY = f"bucket/t-0/{NAME}"
LOCATION = f"{PLACE}/{NAME}"


def store_of(faulty: FaultyStore, **settings: object) -> S3Store:
    return S3Store(S3Settings(endpoint_url=faulty.endpoint, path_style=True, **settings))  # type: ignore[arg-type]


def create(faulty: FaultyStore, data: bytes = b"new") -> None:
    store_of(faulty).create(PLACE, NAME, data, owner=None, temporary_name="unused")


def read(store: S3Store, location: str, identity: FileIdentity | None = None, block: int = 4 << 20) -> bytes:
    with store.open_bytes(location, identity) as source:
        data = bytearray(source.size_bytes)
        position = 0
        while position < len(data):
            position += source.read_into(position, memoryview(data)[position : position + block])
    return bytes(data)


# ---------------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("fault", ["503", "drop", "short", "reset"])
def test_a_read_that_fails_once(faulty: FaultyStore, fault: str) -> None:
    data = faulty.objects["bucket/log"] = random.Random(0).randbytes(RANGE_BYTES + 5_000_000)
    faulty.faults["GET"] = ["", fault, fault]
    assert read(store_of(faulty), "s3://bucket/log") == data
    faulty.objects["bucket/small"] = data[:5000]
    faulty.faults["GET"] = [fault.replace("reset", "short")]
    assert store_of(faulty).read_small("s3://bucket/small", 5000) == data[:5000]
    faulty.faults["GET"] = [fault]
    assert store_of(faulty).read_end("s3://bucket/small", 100) == (5000, data[4900:5000])


def test_a_body_that_breaks_off_is_gone_on_with(faulty: FaultyStore) -> None:
    data = faulty.objects["bucket/log"] = random.Random(1).randbytes(4 << 20)
    faulty.faults["GET"] = ["short"]
    assert read(store_of(faulty), "s3://bucket/log") == data
    assert faulty.ranges() == [f"bytes=0-{(4 << 20) - 1}", f"bytes={2 << 20}-{(4 << 20) - 1}"]


@pytest.mark.parametrize(
    ("fault", "told"), [("503", "503 SlowDown request REQUEST0815"), ("403", "403 AccessDenied"), ("short", "")]
)
def test_a_read_that_always_fails(faulty: FaultyStore, fault: str, told: str) -> None:
    faulty.objects["bucket/log"] = bytes(100)
    faulty.faults["GET"], faulty.lasting = [fault], {"GET"}
    with pytest.raises(ReadFailedError, match=f"s3://bucket/log: cannot be read at bytes 0 to 99: .*{told}") as caught:
        read(store_of(faulty), "s3://bucket/log")
    assert "hunter2" not in str(caught.value)
    assert len(faulty.ranges()) <= 2 * s3_requests.ATTEMPTS


def test_an_answer_of_unknown_length(faulty: FaultyStore) -> None:
    """As proxies give them that send an answer in chunks: what breaks off would look whole."""
    faulty.objects["bucket/log"] = bytes(100)
    store = store_of(faulty)
    was = store.open_bytes("s3://bucket/log").identity
    faulty.faults["GET"], faulty.lasting = ["unmeasured"], {"GET"}
    for get in (
        lambda: read(store, "s3://bucket/log", was),
        lambda: store.read_small("s3://bucket/log", 100),
        lambda: store.read_end("s3://bucket/log", 10),
    ):
        with pytest.raises(ReadFailedError, match="s3://bucket/log: the store does not report the length of its answer"):
            get()


def test_an_object_that_changes(faulty: FaultyStore) -> None:
    """Also where the store knows no If-Match, and where it gives another range than it was asked for."""
    faulty.objects["bucket/log"] = bytes(100)
    was = store_of(faulty).open_bytes("s3://bucket/log").identity
    faulty.faults["GET"] = ["etag"]
    with pytest.raises(RefusedError, match="s3://bucket/log: changed since it was listed"):
        read(store_of(faulty), "s3://bucket/log", was)
    faulty.faults["GET"] = ["range"]
    with pytest.raises(ReadFailedError, match="another range than the requested bytes 0 to 99"):
        read(store_of(faulty), "s3://bucket/log", was)
    faulty.objects["bucket/log"] = b"x" * 100
    for faulty.ignores_conditions in (False, True):
        with pytest.raises(RefusedError, match="changed since it was listed"):
            read(store_of(faulty), "s3://bucket/log", was)
    del faulty.objects["bucket/log"]
    with pytest.raises(ReadFailedError, match="404 NoSuchKey"):
        read(store_of(faulty), "s3://bucket/log", was)


def test_small_files(faulty: FaultyStore) -> None:
    store = store_of(faulty)
    assert store.read_small("s3://bucket/absent", 10) is None
    assert store.read_end("s3://bucket/absent", 10) is None
    faulty.objects |= {"bucket/empty": b"", "bucket/large": bytes(11)}
    assert store.read_small("s3://bucket/empty", 10) == b""
    assert store.read_end("s3://bucket/large", 20) == (11, bytes(11))
    with pytest.raises(ReadFailedError, match="has 11 bytes, more than the limit of 10"):
        store.read_small("s3://bucket/large", 10)
    assert store.present("s3://bucket", ("empty", "absent")) == {"empty"}


def test_a_reader_that_looks_something_up_gets_little(faulty: FaultyStore) -> None:
    data = faulty.objects["bucket/log"] = random.Random(2).randbytes(3 * RANGE_BYTES)
    with store_of(faulty).open_bytes("s3://bucket/log") as source:
        for position in (RANGE_BYTES, 17, 2 * RANGE_BYTES):
            buffer = bytearray(61)
            assert source.read_into(position, memoryview(buffer)) == 61
            assert buffer == data[position : position + 61]
        assert source.read_into(len(data) - 10, memoryview(bytearray(61))) == 10
        assert source.read_into(len(data), memoryview(bytearray(61))) == 0
    assert len(faulty.ranges()) == 4
    assert all(int(last) - int(first) < 1 << 18 for first, last in (each[6:].split("-") for each in faulty.ranges()))


def test_limits_count_every_attempt(faulty: FaultyStore) -> None:
    faulty.objects["bucket/log"] = bytes(100)
    faulty.faults["GET"], faulty.lasting = ["503"], {"GET"}
    with pytest.raises(RefusedError, match="max_requests 3 is used up"):
        read(store_of(faulty, max_requests=3, run="attempts"), "s3://bucket/log")
    assert len(faulty.seen) == 3  # one HEAD among them
    faulty.faults.clear()
    with pytest.raises(RefusedError, match="max_read_bytes 150 is used up"):
        [read(store_of(faulty, max_read_bytes=150, run="bytes"), "s3://bucket/log") for _ in range(2)]


def test_a_stream_that_breaks_uses_up_no_more_of_a_limit_than_a_range(faulty: FaultyStore) -> None:
    """Else one reset would count all of a segment twice."""
    data = faulty.objects["bucket/log"] = random.Random(2).randbytes(3 * RANGE_BYTES)
    faulty.faults["GET"] = ["short"]
    store = store_of(faulty, max_read_bytes=len(data) + RANGE_BYTES, run="stream")
    s3._pace_of(store.settings).note(1 << 40, 1)
    assert read(store, "s3://bucket/log") == data
    assert faulty.ranges()[1] == f"bytes={RANGE_BYTES // 2}-{RANGE_BYTES // 2 + RANGE_BYTES - 1}", (
        "a stream, in requests of a range"
    )


# ---------------------------------------------------------------------------------------------------------------- creating


@pytest.mark.parametrize("fault", ["", "409", "503", "500", "drop", "lost"])
def test_a_create_that_fails_once_at_most(faulty: FaultyStore, fault: str) -> None:
    """``lost``: it took effect and the answer was lost, so that the next attempt would meet its own object."""
    faulty.faults["PUT"] = [fault]
    create(faulty)
    assert faulty.objects == {KEY: b"new"}
    puts = [headers for method, _, headers in faulty.seen if method == "PUT"]
    assert all(headers["if-none-match"] == "*" for headers in puts)
    checksum = base64.b64encode(hashlib.sha256(b"new").digest()).decode()
    assert {headers["x-amz-checksum-sha256"] for headers in puts} == {checksum}
    assert len(puts) == (1 if fault in ("", "lost") else 2)
    assert faulty.methods().count("GET") == (0 if fault in ("", "409", "503") else 1), "read back where no answer tells"


def test_an_object_is_read_back_where_the_answer_proves_nothing(faulty: FaultyStore) -> None:
    """As of objects that are encrypted with a key of their own; a checksum in the answer is as good as an ETag."""
    faulty.proves_puts = False
    create(faulty)
    assert faulty.methods() == ["PUT", "GET"]
    faulty.objects.clear()
    faulty.choose = lambda method, *_: faulty.objects.update({KEY: b"now"}) or "" if method == "GET" else ""
    with pytest.raises(OutcomeUnknownError, match="was written, and holds other bytes when it is read back"):
        create(faulty)
    faulty.choose = lambda *_: ""
    faulty.objects.clear()
    faulty.faults, faulty.lasting = {"GET": ["403"]}, {"GET"}
    with pytest.raises(OutcomeUnknownError, match="was written, and cannot be read back"):
        create(faulty)


def test_whose_object_it_is(faulty: FaultyStore) -> None:
    """Two runs make the same bytes: the object itself says which of them made it, also where the answer was lost."""
    mine, others = (store_of(faulty, run=run) for run in ("mine", "others"))
    assert not mine.wrote(LOCATION, 0)
    faulty.faults["PUT"] = ["lost"]
    mine.create(PLACE, NAME, b"new", owner=None, temporary_name="")
    assert (mine.wrote(LOCATION, 1 << 62), others.wrote(LOCATION, 0), store_of(faulty).wrote(LOCATION, 0)) == (True, False, False)
    with pytest.raises(AlreadyExistsError):
        others.create(PLACE, NAME, b"new", owner=None, temporary_name="")
    faulty.faults["PUT"] = ["drop"]
    with pytest.raises(AlreadyExistsError):
        others.create(PLACE, NAME, b"new", owner=None, temporary_name="")
    faulty.metadata.clear()  # as a store that keeps none: the bytes must do
    faulty.faults["PUT"] = ["drop"]
    others.create(PLACE, NAME, b"new", owner=None, temporary_name="")


@pytest.mark.parametrize(
    ("puts", "gets", "error", "told"),
    [
        (["412"], [], AlreadyExistsError, "already exists"),
        (["another"], [], AlreadyExistsError, "already exists"),
        *PUTS_THAT_ALWAYS_FAIL,
    ],
)
def test_a_create_that_always_fails(
    faulty: FaultyStore, puts: list[str], gets: list[str], error: type[SnaprebuildError], told: str
) -> None:
    faulty.faults, faulty.lasting = {"PUT": puts, "GET": gets}, {"PUT", "GET"}
    with pytest.raises(error, match=told) as caught:
        create(faulty)
    assert type(caught.value) is error
    assert caught.value.exit_code == (3 if error is RefusedError else 5)
    assert "hunter2" not in str(caught.value)
    assert faulty.methods().count("PUT") <= s3_requests.ATTEMPTS


def test_the_caller_is_asked_before_the_put(faulty: FaultyStore) -> None:
    seen: list[list[str]] = []

    def refuse(_mtime_ns: int) -> None:
        seen.append(faulty.methods())
        raise RefusedError("no receipt can be written")

    with pytest.raises(RefusedError, match="no receipt"):
        store_of(faulty).create(PLACE, NAME, b"new", owner=None, temporary_name="", before_name=refuse)
    assert (seen, faulty.objects) == ([[]], {})


def test_an_object_is_never_replaced(faulty: FaultyStore) -> None:
    faulty.objects[KEY] = b"old"
    with pytest.raises(AlreadyExistsError):
        create(faulty)
    assert faulty.objects == {KEY: b"old"}


def test_the_probe(faulty: FaultyStore) -> None:
    """It leaves nothing, is sent once for a place, and refuses where the store would replace."""
    for _ in range(2):
        store_of(faulty).prepare_writes(PLACE)
    assert faulty.objects == {}
    assert faulty.methods().count("DELETE") == 1
    assert all(s3.PROBE_NAME in path for _, path, _ in faulty.seen)
    faulty.ignores_conditions = True
    with pytest.raises(RefusedError, match="ignores If-None-Match"):
        store_of(faulty).prepare_writes("s3://bucket/elsewhere")
    assert faulty.objects == {}


def test_a_probe_that_may_not_be_deleted_stays(faulty: FaultyStore, caplog: pytest.LogCaptureFixture) -> None:
    faulty.faults["DELETE"] = ["403"]
    store_of(faulty).prepare_writes(PLACE)
    assert len(faulty.objects) == 1
    assert "a probe of the store stays, and may be deleted" in caplog.text


# ---------------------------------------------------------------------------------------------------------------- listing


def test_keys_that_no_directory_has(faulty: FaultyStore) -> None:
    """Below --out such a partition could be written anywhere."""
    for key in ("a/../../../etc/t-0", "a//t-0", "./t-0", "good/t-0"):
        faulty.objects[f"bucket/logs/{key}/{0:020d}.log"] = b""
    source = open_source(["s3://bucket/logs"], None, settings=store_of(faulty).settings)
    assert [partition.relative for partition in source.partitions] == ["good/t-0"]
    (finding,) = source.findings
    assert finding.code == "odd-keys"
    assert "3 keys that cannot be files below a directory, the first './t-0/" in finding.message


def test_a_listing_that_does_not_ascend(faulty: FaultyStore) -> None:
    """Then a directory would be taken for whole before it is."""
    for base in (0, 5, 9):
        faulty.objects[f"bucket/t-0/{base:020d}.log"] = b""
    faulty.order = lambda keys: sorted(keys, reverse=True)
    found = find_partitions(["s3://bucket"], store_of(faulty).settings)
    assert (found.log_dirs, [str(each) for each in found.faults]) == (
        [],
        ["s3://bucket: the store does not list keys in ascending order, so that it cannot be used"],
    )


def test_what_a_directory_is(faulty: FaultyStore) -> None:
    """As on a file system: by its name and what is in it; the broker's cache of remote indexes holds nothing of ours."""
    log = f"{0:020d}.log"
    names = [f"t-0/{log}", f"t-0/sub-1/{log}", f"data-1/t-1/{log}", "data-1/meta.properties", "empty-3/", f"t-0.x/t-9/{log}"]
    names += [f"remote-log-index-cache/t-5/{log}", "t-2/unknown", "t-2/t-6/leader-epoch-checkpoint", "t-10/0.snapshot"]
    faulty.objects = {f"bucket/logs/{name}": b"" for name in names}
    found = find_partitions(["s3://bucket/logs/", "s3://bucket/logs/t-0"], store_of(faulty).settings)
    paths = sorted(each.path.removeprefix("s3://bucket/logs/") for log_dir in found.log_dirs for each in log_dir.partitions)
    assert paths == ["data-1/t-1", "empty-3", "t-0", "t-0.x/t-9", "t-10", "t-2/t-6"]
    assert found.duplicates == ["s3://bucket/logs/t-0"]
    (t0,) = [each for log_dir in found.log_dirs for each in log_dir.partitions if each.path.endswith("/t-0")]
    assert t0.sub_directories == ("sub-1",)


def test_a_bucket_is_no_partition(faulty: FaultyStore) -> None:
    """Whatever it is called: above it there is no log directory."""
    faulty.objects = {f"kafka-0/{0:020d}.log": b"", f"kafka-0/t-1/{0:020d}.log": b""}
    found = find_partitions(["s3://kafka-0"], store_of(faulty).settings)
    assert [each.path for log_dir in found.log_dirs for each in log_dir.partitions] == ["s3://kafka-0/t-1"]
    assert found.faults == []


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
            ReadFailedError, match=r"nothing answers at the endpoint .*--s3-endpoint-url, AWS_ENDPOINT_URL"
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


def many(faulty: FaultyStore, brokers: int, partitions: int, segments: int) -> list[str]:
    """Copies of many partitions. Returns their keys."""
    keys = [
        f"copies/broker-{broker}/t{partition % 7}-{partition}/{base:020d}.log"
        for broker in range(brokers)
        for partition in range(partitions)
        for base in range(segments)
    ]
    faulty.objects |= {f"bucket/{key}": b"" for key in [*keys, "copies/a", "copies/broker-1/t0-7/", "copies/z/z"]}
    return sorted([*keys, "copies/a", "copies/broker-1/t0-7/", "copies/z/z"])


@pytest.mark.full
@pytest.mark.parametrize(("brokers", "partitions", "segments"), [(1, 200, 3), (3, 60, 4), (40, 1, 20), (1, 1, 700), (2, 9, 30)])
@pytest.mark.parametrize("page", [7, 50])
def test_a_long_listing_is_parted(faulty: FaultyStore, brokers: int, partitions: int, segments: int, page: int) -> None:
    keys = many(faulty, brokers, partitions, segments)
    faulty.page = page
    assert [f"copies/{key}" for key, _ in store_of(faulty).list_below("s3://bucket/copies")] == keys
    listings = len(faulty.seen)
    at_least = -(-len(keys) // page)
    directories = brokers * partitions + brokers
    assert at_least <= listings <= 1.3 * at_least + directories / page + 2 * s3_listing.DIRECTORIES_ENOUGH


def test_a_long_listing_is_fetched_at_once(faulty: FaultyStore) -> None:
    many(faulty, 1, 200, 5)
    faulty.page = 10
    for faulty.seconds in (0.02, 0.2, 2.0):  # on a busy machine quick requests may not meet
        assert len(list(store_of(faulty).list_below("s3://bucket/copies"))) == 1003
        assert faulty.at_once <= thread_pool.THREADS + 1
        if faulty.at_once >= 4:
            break
    assert faulty.at_once >= 4
    with pytest.raises(RefusedError, match="max_requests 20 is used up"):
        list(store_of(faulty, max_requests=20, run="listing").list_below("s3://bucket/copies"))
    faulty.seen.clear()
    assert len(list(store_of(faulty).list_below("s3://bucket/copies/broker-0/t0-0"))) == 5
    assert len(faulty.seen) == 1, "what fits one answer costs one request"


# ------------------------------------------------------------------------------------------------------- answers without end


def first_bytes(store: S3Store) -> int:
    with store.open_bytes(LOCATION, FileIdentity(HUGE_BYTES, 0, 0, '"x"')) as source:
        return source.read_into(0, memoryview(bytearray(100)))


ASKS: dict[str, Callable[[S3Store], object]] = {
    "list": lambda store: list(store.list_below("s3://bucket/t-0")),
    "names": lambda store: store.names_in(PLACE),
    "small": lambda store: store.read_small(LOCATION, 1 << 40),
    "range": first_bytes,
}


@pytest.mark.parametrize(
    ("ask", "fault"), [("list", "drip"), ("names", "drip-headers"), ("small", "drip-headers"), ("range", "drip")]
)
def test_an_answer_that_drips_has_a_deadline(fault: str, ask: str, faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_answers, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(s3_requests, "ATTEMPTS", 2)
    faulty.faults, faulty.lasting = {"GET": [fault]}, {"GET"}
    began = time.monotonic()
    with pytest.raises(ReadFailedError, match=r"no answer came whole in|breaks off"):
        ASKS[ask](store_of(faulty, run=f"{fault}-{ask}"))
    faulty.released.set()
    assert time.monotonic() - began < 20, "every attempt ends by itself"


def test_a_slow_reader_and_a_slow_line_have_their_time(faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline counts neither the time that a reader takes between two reads, nor that of a slow line on which bytes come."""
    monkeypatch.setattr(s3_answers, "ANSWER_SECONDS", 0.2)
    faulty.objects[KEY] = bytes(1000)
    with store_of(faulty).open_bytes(LOCATION) as source:
        for position in range(0, 1000, 250):
            time.sleep(0.1)
            assert source.read_into(position, memoryview(bytearray(250))) == 250
    one, other = socket.socketpair()

    def send() -> None:
        time.sleep(0.1)
        other.sendall(bytes(16 << 10))

    with one, other, s3_answers._TimedSocket(one).makefile("rb") as answer:
        for _ in range(6):  # 96 KiB in 0.6 s are six seconds' worth
            sender = threading.Thread(target=send)
            sender.start()
            assert answer.read(16 << 10) == bytes(16 << 10)
            sender.join()


@pytest.mark.parametrize("ask", ["list", "names"])
def test_a_listing_of_gigabytes_is_refused(ask: str, faulty: FaultyStore) -> None:
    faulty.faults, faulty.lasting = {"GET": ["huge"]}, {"GET"}
    with pytest.raises(ReadFailedError, match="cannot be listed: the answer has more than 8388608 bytes"):
        ASKS[ask](store_of(faulty))
    assert faulty.poured < 64 << 20, "what the kernel holds, and no more"


def test_a_listing_without_end(faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_listing, "KEYS_MAX", 50)
    monkeypatch.setattr(s3_listing, "ANSWERS_MAX", 20)
    faulty.page = 10
    for fault, ask in itertools.product(("endless", "endless-empty"), ("list", "names")):
        faulty.faults, faulty.lasting = {"GET": [fault]}, {"GET"}
        faulty.seen.clear()
        with pytest.raises((RefusedError, ReadFailedError), match=r"max_requests|a listing without end"):
            ASKS[ask](store_of(faulty))
        assert len(faulty.seen) <= 21
    faulty.faults, faulty.lasting = {}, set()
    faulty.objects |= {f"bucket/t-0/{number:03d}": b"" for number in range(51)}
    with pytest.raises(RefusedError, match="select fewer, or set max_requests to allow more"):
        ASKS["list"](store_of(faulty))
    assert len(list(store_of(faulty, max_requests=1000, run="more").list_below("s3://bucket/t-0"))) == 51


# ---------------------------------------------------------------------------------------------------------------- a real store


@pytest.mark.s3
def test_a_segment_is_never_held_whole(object_store: ObjectStore) -> None:
    location = f"s3://{object_store.bucket()}/log"
    one = batch(0, payload_bytes=64 << 10)
    batches = (100 << 20) // len(one)
    data = one * batches
    object_store.put(location, data)
    store = S3Store()
    with store.open_bytes(location) as source:
        tracemalloc.start()
        digest, buffer, position = hashlib.sha256(), bytearray(4 << 20), 0
        while count := source.read_into(position, memoryview(buffer)):
            digest.update(buffer[:count])
            position += count
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert digest.digest() == hashlib.sha256(data).digest()
    assert peak < (HELD_MAX + 2) * RANGE_BYTES + (32 << 20) < len(data)
    with store.open_bytes(location) as source:
        reader = HeaderReader(source, check_crc=True, columns=("base_offset",))
        assert sum(len(block) for block in reader) == batches
    assert object_bytes._fetchers()._max_workers == AHEAD


@pytest.mark.s3
def test_one_of_two_writers_wins(object_store: ObjectStore) -> None:
    """In every round exactly one, and what the others find is what it wrote."""
    place, store = f"s3://{object_store.bucket()}/t-0", S3Store()
    store.prepare_writes(place)
    for number in range(25):
        barrier, outcomes = threading.Barrier(4), []

        def write(
            mine: bytes, barrier: threading.Barrier = barrier, outcomes: list[object] = outcomes, number: int = number
        ) -> None:
            barrier.wait()
            try:
                store.create(place, f"{number:020d}.snapshot", mine, owner=None, temporary_name="")
                outcomes.append(mine)
            except AlreadyExistsError:
                outcomes.append(None)

        threads = [threading.Thread(target=write, args=(EMPTY_SNAPSHOT + bytes([each]),)) for each in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = [each for each in outcomes if each is not None]
        assert len(outcomes) == 4
        assert object_store.get(f"{place}/{number:020d}.snapshot") == winner
    assert len(object_store.files(place)) == 25
