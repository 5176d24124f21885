"""Listings of an object store: which keys are partitions, long ones, and those without end."""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from faulty_store import HUGE_BYTES, FaultyStore
from s3_stores import LOCATION, PLACE, store_of

from snaprebuild.errors import ReadFailedError, RefusedError
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.storage import thread_pool
from snaprebuild.storage.log_dir import find_partitions
from snaprebuild.storage.s3 import answers as s3_answers
from snaprebuild.storage.s3 import listing as s3_listing
from snaprebuild.storage.s3 import requests as s3_requests
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import FileIdentity

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# ---------------------------------------------------------------------------------------------------------------- listing


def test_keys_that_no_directory_has(faulty: FaultyStore) -> None:
    """Below --out such a partition could be written anywhere."""
    for key in ("a/../../../etc/t-0", "a//t-0", "./t-0", "good/t-0"):
        faulty.objects[f"bucket/logs/{key}/{0:020d}.log"] = b""
    source = open_source(["s3://bucket/logs"], None, run=Run(stores=store_of(faulty).settings))
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
    """Its name and contents decide, like on a file system; the broker's cache of remote indexes holds nothing of ours."""
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


@pytest.mark.full
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
    ("ask", "fault"),
    [
        *(("list", "drip"), ("small", "drip-headers")),
        *(pytest.param(*each, marks=pytest.mark.full) for each in (("names", "drip-headers"), ("range", "drip"))),
    ],
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


class Line(io.RawIOBase):
    """A connection on which 16 KiB take some seconds of a clock."""

    def __init__(self, clock: SimpleNamespace, seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        count = memoryview(buffer).nbytes
        self.clock.now += self.seconds * count / (16 << 10)
        return count

    def makefile(self, _mode: str, _buffering: int) -> Line:
        return self


def test_a_slow_reader_and_a_slow_line_have_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline counts neither the time that a reader takes between two reads, nor that of a slow line on which bytes come."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(s3_answers, "time", clock)

    def answer(seconds: float) -> io.BufferedReader | io.RawIOBase:
        return s3_answers._TimedSocket(Line(clock, seconds)).makefile("rb")  # type: ignore[arg-type]

    with answer(0) as read_slowly:
        for _ in range(4):
            assert len(read_slowly.read(16 << 10) or b"") == 16 << 10
            clock.now += 2 * s3_answers.ANSWER_SECONDS
    with answer(0.9) as slow:
        assert len(slow.read(200 * (16 << 10)) or b"") == 200 * (16 << 10), "in 180 seconds"
    with answer(1.5) as too_slow, pytest.raises(TimeoutError, match="the answer takes too long"):
        too_slow.read(200 * (16 << 10))


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
