"""The object store: reading and creating while requests fail, and at a real one."""

import base64
import hashlib
import random
import threading
import tracemalloc

import pytest
from botocore.httpchecksum import StreamingChecksumBody
from botocore.response import StreamingBody
from faulty_store import PUTS_THAT_ALWAYS_FAIL, FaultyStore
from log_dirs import EMPTY_SNAPSHOT, batch
from object_store import ObjectStore
from s3_stores import KEY, LOCATION, NAME, PLACE, read, store_of
from sentences import CHANGED_SINCE_LISTED

from formats.log.batch_headers import HeaderReader
from snaprebuild.errors import (
    AlreadyExistsError,
    ChangedFileError,
    OutcomeUnknownError,
    ReadFailedError,
    RefusedError,
    SnaprebuildError,
)
from snaprebuild.storage.s3 import object_bytes
from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3 import store as s3
from snaprebuild.storage.s3.object_bytes import AHEAD, HELD_MAX, RANGE_BYTES
from snaprebuild.storage.s3.store import S3Store


def create(faulty: FaultyStore, data: bytes = b"new") -> None:
    store_of(faulty).create(PLACE, NAME, data, owner=None, temporary_name="unused")


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


def test_a_read_with_the_oldest_sdk(faulty: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Botocore 1.36.0, as pyproject.toml allows it: bodies have no ``readinto`` there."""
    for body in (StreamingBody, StreamingChecksumBody):
        monkeypatch.delattr(body, "readinto", raising=False)
    data = faulty.objects["bucket/log"] = random.Random(3).randbytes(3 << 20)
    assert read(store_of(faulty), "s3://bucket/log") == data


@pytest.mark.parametrize(
    ("fault", "reported"), [("503", "503 SlowDown request REQUEST0815"), ("403", "403 AccessDenied"), ("short", "")]
)
def test_a_read_that_always_fails(faulty: FaultyStore, fault: str, reported: str) -> None:
    faulty.objects["bucket/log"] = bytes(100)
    faulty.faults["GET"], faulty.lasting = [fault], {"GET"}
    with pytest.raises(ReadFailedError, match=f"s3://bucket/log: cannot be read at bytes 0 to 99: .*{reported}") as caught:
        read(store_of(faulty), "s3://bucket/log")
    assert "hunter2" not in str(caught.value)
    assert len(faulty.ranges()) <= 2 * s3_requests.ATTEMPTS


def test_an_answer_of_unknown_length(faulty: FaultyStore) -> None:
    """Proxies that send an answer in chunks give these: a broken one would look whole."""
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
    with pytest.raises(ChangedFileError, match=f"s3://bucket/log: {CHANGED_SINCE_LISTED}"):
        read(store_of(faulty), "s3://bucket/log", was)
    faulty.faults["GET"] = ["range"]
    with pytest.raises(ReadFailedError, match="another range than the requested bytes 0 to 99"):
        read(store_of(faulty), "s3://bucket/log", was)
    faulty.objects["bucket/log"] = b"x" * 100
    for faulty.ignores_conditions in (False, True):
        with pytest.raises(ChangedFileError, match=CHANGED_SINCE_LISTED):
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


def test_a_range_that_breaks_uses_up_no_more_of_a_limit_than_its_rest(faulty: FaultyStore) -> None:
    """Else one reset would count all of a segment twice."""
    data = faulty.objects["bucket/log"] = random.Random(2).randbytes(3 * RANGE_BYTES)
    faulty.faults["GET"] = ["short"]
    store = store_of(faulty, max_read_bytes=len(data) + RANGE_BYTES, run="breaks")
    assert read(store, "s3://bucket/log") == data
    assert len(faulty.ranges()) == 4, "three ranges, and the rest of one"


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
    """Objects that are encrypted with a key of their own are such a case; a checksum in the answer is as good as an ETag."""
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
    ("puts", "gets", "error", "reported"),
    [
        (["412"], [], AlreadyExistsError, "already exists"),
        (["another"], [], AlreadyExistsError, "already exists"),
        *PUTS_THAT_ALWAYS_FAIL,
    ],
)
def test_a_create_that_always_fails(
    faulty: FaultyStore, puts: list[str], gets: list[str], error: type[SnaprebuildError], reported: str
) -> None:
    faulty.faults, faulty.lasting = {"PUT": puts, "GET": gets}, {"PUT", "GET"}
    with pytest.raises(error, match=reported) as caught:
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
    assert object_bytes._fetchers.threads()._max_workers == AHEAD


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
