"""Large objects in parts, at a store that fails on demand and at a real one."""

import random
from pathlib import Path

import pytest
from faulty_store import FaultyStore
from object_store import ObjectStore, split

from snaprebuild.errors import AlreadyExistsError, OutcomeUnknownError, RefusedError, WriteFailedError
from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import S3Settings

PLACE, KEY = "s3://bucket/a", "bucket/a/large.log"
PARTS = {1: b"0123456789", 2: b"abcdefghij", 3: b"end"}
DATA = b"".join(PARTS.values())


@pytest.fixture(autouse=True)
def _source(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(DATA)


def large(faulty: FaultyStore) -> S3Store:
    return S3Store(S3Settings(endpoint_url=faulty.endpoint, path_style=True), part_bytes=10)


def create(faulty: FaultyStore, tmp_path: Path) -> None:
    with SegmentFile(str(tmp_path / "log")) as source:
        large(faulty).create_large(f"{PLACE}/large.log", source)


def holds(faulty: FaultyStore, tmp_path: Path) -> bool | None:
    with SegmentFile(str(tmp_path / "log")) as source:
        return large(faulty).holds(f"{PLACE}/large.log", source)


def sent(faulty: FaultyStore) -> int:
    return sum(method == "PUT" and "partNumber" in path for method, path, _ in faulty.seen)


def test_created_once(faulty: FaultyStore, tmp_path: Path) -> None:
    create(faulty, tmp_path)
    assert faulty.objects == {KEY: DATA}
    (completion,) = [headers for method, path, headers in faulty.seen if method == "POST" and "uploadId" in path]
    assert completion["if-none-match"] == "*"
    assert (holds(faulty, tmp_path), sent(faulty), faulty.uploads) == (True, 3, {})
    with pytest.raises(AlreadyExistsError):
        create(faulty, tmp_path)


@pytest.mark.parametrize("other", [DATA[:-1], DATA[:-1] + b"x"])
def test_another_object_is_known(faulty: FaultyStore, tmp_path: Path, other: bytes) -> None:
    faulty.objects[KEY] = other
    assert holds(faulty, tmp_path) is False


def test_another_is_faster(faulty: FaultyStore, tmp_path: Path) -> None:
    def appear(method: str, _path: str, _headers: dict[str, str]) -> str:
        if method == "POST" and faulty.uploads:
            faulty.objects[KEY] = b"another's"
        return ""

    faulty.choose = appear
    with pytest.raises(AlreadyExistsError):
        create(faulty, tmp_path)
    assert faulty.objects == {KEY: b"another's"}
    assert faulty.uploads == {}, "our parts are given up"


def test_what_an_earlier_run_has_sent(faulty: FaultyStore, tmp_path: Path) -> None:
    faulty.uploads["upload-0"] = KEY, {1: PARTS[1], 2: PARTS[1], 3: b"e"}
    create(faulty, tmp_path)
    assert faulty.objects == {KEY: DATA}
    assert sent(faulty) == 2


def test_a_part_that_arrives_damaged(faulty: FaultyStore, tmp_path: Path) -> None:
    def damage(method: str, _path: str, _headers: dict[str, str]) -> str:
        for _, parts in faulty.uploads.values():
            if method == "POST" and 2 in parts:
                parts[2] = b"damaged..."
        return ""

    faulty.choose = damage
    with pytest.raises(OutcomeUnknownError, match="holds other bytes"):
        create(faulty, tmp_path)


def test_an_answer_that_is_lost(faulty: FaultyStore, tmp_path: Path) -> None:
    """The object is there, and nothing shows who made it: the caller compares it."""
    faulty.choose = lambda method, _, headers: "lost" if method == "POST" and "if-none-match" in headers else ""
    with pytest.raises(AlreadyExistsError):
        create(faulty, tmp_path)
    assert holds(faulty, tmp_path) is True


@pytest.mark.parametrize("fault", ["drop", "500"])
def test_a_completion_that_never_arrives(faulty: FaultyStore, tmp_path: Path, fault: str) -> None:
    faulty.choose = lambda method, _, headers: fault if method == "POST" and "if-none-match" in headers else ""
    with pytest.raises(OutcomeUnknownError, match="run again"):
        create(faulty, tmp_path)
    faulty.choose = lambda *_: ""
    create(faulty, tmp_path)
    assert (faulty.objects, sent(faulty)) == ({KEY: DATA}, 3)


def test_a_part_that_cannot_be_sent(faulty: FaultyStore, tmp_path: Path) -> None:
    faulty.choose = lambda method, *_: "403" if method == "PUT" and sent(faulty) == 2 else ""
    with pytest.raises(WriteFailedError, match="the next run continues with the parts"):
        create(faulty, tmp_path)
    faulty.choose = lambda *_: ""
    before = sent(faulty)
    create(faulty, tmp_path)
    assert faulty.objects == {KEY: DATA}
    assert sent(faulty) - before < len(PARTS)


def test_another_gives_up_our_parts(faulty: FaultyStore, tmp_path: Path) -> None:
    faulty.choose = lambda _method, _path, headers: faulty.uploads.clear() or "" if "if-none-match" in headers else ""
    with pytest.raises(WriteFailedError, match="another program removed the parts"):
        create(faulty, tmp_path)
    assert holds(faulty, tmp_path) is None


def test_the_probe(faulty: FaultyStore) -> None:
    large(faulty).prepare_writes(PLACE, len(DATA))
    assert (faulty.objects, faulty.uploads) == ({}, {})
    large(faulty).prepare_writes("s3://bucket/other", 10)  # smaller than a part: no completion is tried
    faulty.ignores_conditions = True
    with pytest.raises(RefusedError, match="ignores If-None-Match where a large object is completed"):
        large(faulty).prepare_writes("s3://bucket/other", len(DATA))
    assert faulty.objects == {}


@pytest.mark.s3
def test_created_once_at_a_real_store(object_store: ObjectStore, tmp_path: Path) -> None:
    part_bytes = 5 << 20  # S3 takes no smaller ones
    data = random.Random(6).randbytes(2 * part_bytes + 1000)
    (tmp_path / "log").write_bytes(data)
    bucket = object_store.bucket()
    place, store = f"s3://{bucket}/a", S3Store(part_bytes=part_bytes)
    store.prepare_writes(place, len(data))
    with SegmentFile(str(tmp_path / "log")) as source:
        assert store.holds(f"{place}/large.log", source) is None
        store.create_large(f"{place}/large.log", source)
        assert store.holds(f"{place}/large.log", source) is True
        with pytest.raises(AlreadyExistsError):
            store.create_large(f"{place}/large.log", source)
    assert object_store.files(place).keys() == {"large.log"}
    assert object_store.get(f"{place}/large.log") == data
    assert "Uploads" not in object_store.client.list_multipart_uploads(Bucket=split(place)[0])
