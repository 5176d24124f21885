"""Workers look at mapped segments, which may become shorter meanwhile: a real signal ends them, and what they read is read again."""

import faulthandler
import re
import resource
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from dying_reads import mark_shrinking, read_mapped, says_its_limits, shrinks_where_marked
from log_dirs import batch, write_partition
from manifests import REPOSITORY
from recorded_tasks import RecordedTask
from simulated_broker import listed

from snaprebuild.errors import RefusedError
from snaprebuild.replay.segment_effect import COLUMNS
from snaprebuild.replay.segment_summary import SegmentSummary
from snaprebuild.snapshots.engine import schedule, task_queues, worker_pool
from snaprebuild.snapshots.engine.schedule import run
from snaprebuild.snapshots.engine.segment_reader import read_each, read_segment
from snaprebuild.snapshots.engine.worker_start import begin_worker, parent_of_workers, start_server
from snaprebuild.storage.io_limits import policy
from snaprebuild.storage.io_limits.policy import RATE_WITH_BROKER_BYTES, IoLimits, adapt_to_live_broker, limited_io, share_io_limits
from snaprebuild.storage.s3.request_limits import share_meters

LARGE = 20_000
"""Bytes of a payload: large enough for a mapping."""


BASES = range(0, 48, 12)


@pytest.fixture
def works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RecordedTask]:
    """Sixty partitions with four rolled segments of twelve large batches each, and an active one without any; read by workers."""
    monkeypatch.setattr(schedule, "IN_PROCESS_BYTES_MAX", 0)
    monkeypatch.setattr(task_queues, "PARCEL_SEGMENTS_MAX", 2)
    segments = {
        base: b"".join(batch(base + at, producer_id=at, sequence=base, payload_bytes=LARGE) for at in range(12)) for base in BASES
    }
    directories = [write_partition(tmp_path / f"t-{number}", {**segments, 48: b""}) for number in range(60)]
    return [RecordedTask(listed(each), check_crc=False) for each in directories]


def as_read(work: RecordedTask) -> list[SegmentSummary]:
    """What this process reads, which never maps."""
    return [summary for task in RecordedTask(work.listing, check_crc=False).tasks() for summary in read_segment(task)]


def assert_same(found: list[SegmentSummary], expected: list[SegmentSummary]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.facts, one.tail, one.bytes_read) == (other.facts, other.tail, other.bytes_read)
        for name in COLUMNS:
            np.testing.assert_array_equal(getattr(one.effect, name), getattr(other.effect, name), name)


def test_a_mapped_segment_has_the_summary_of_one_that_was_read(works: list[RecordedTask], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "read_parcel", partial(read_each, read_mapped))
    run(works, 2)
    assert [work.error for work in works] == [None] * len(works)
    assert_same(works[0].summaries, as_read(works[0]))
    assert [len(work.summaries) for work in works] == [len(BASES) + 1] * len(works)


@pytest.mark.parametrize("shrinking", [1, pytest.param(59, marks=pytest.mark.full)], ids=["one", "nearly all"])
def test_segments_that_shrink_while_they_are_looked_at(
    shrinking: int, works: list[RecordedTask], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is refused as changed. All others are right, and few workers die: after some deaths nothing is mapped any more."""
    expected = as_read(works[-1])
    for work in works[:shrinking]:
        mark_shrinking(Path(work.listing.path), 12)
    deaths: list[bool] = []
    sort_lost = worker_pool.WorkerPool._sort_lost

    def counting(pool: worker_pool.WorkerPool) -> None:
        deaths.extend([True] * bool(pool.lost))
        sort_lost(pool)
        assert not [each for each in pool.again if each.may_map]

    monkeypatch.setattr(worker_pool.WorkerPool, "_sort_lost", counting)
    monkeypatch.setattr(schedule, "read_parcel", partial(read_each, shrinks_where_marked))
    run(works, 2)
    for work in works[:shrinking]:
        assert isinstance(work.error, RefusedError)
        assert (work.error.path, len(work.summaries)) == (str(Path(work.listing.path) / f"{12:020d}.log"), 1)
    for work in works[shrinking:]:
        assert work.error is None
        assert_same(work.summaries, expected)
    assert 1 <= len(deaths) <= worker_pool.MAPPED_DEATHS_MAX
    assert not [each for each in caplog.records if each.levelname == "WARNING"], "nothing was read one at a time"


@pytest.mark.night
def test_a_thousand_truncations_in_one_run_of_the_command(tmp_path: Path) -> None:
    """At many moments and to many lengths, by another process. Snapshots are those of a run that reads, or refused."""
    command = [sys.executable, REPOSITORY / "scripts" / "bench_truncations.py", "--truncations", "1000", "--directory", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^while .* 1000 +[1-9]\d* +\d+ +0 ", done.stdout, re.MULTILINE)) == 2, done.stdout


def test_a_worker_has_the_limits_of_the_moment_at_which_it_begins(
    works: list[RecordedTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of the moment when the server was started: a live broker is found later, and nothing is read before."""
    monkeypatch.setattr(schedule, "read_parcel", partial(read_each, says_its_limits))
    monkeypatch.setattr(policy, "set_priority", lambda _wanted: None)  # this process could perhaps not raise it again
    start_server()
    with limited_io(IoLimits(adapts_to_broker=True, priority_is_automatic=True)):
        adapt_to_live_broker(1)
        run(works, 2)
    assert {str(work.error) for work in works} == {f"{RATE_WITH_BROKER_BYTES} at idle priority: True"}


def limits_of_process(_nothing: object) -> tuple[int, bool, bool]:
    """The largest core file, whether a handler of faults is on, and whether SIGBUS ends the process."""
    default = signal.getsignal(signal.SIGBUS) is signal.SIG_DFL
    return resource.getrlimit(resource.RLIMIT_CORE)[0], faulthandler.is_enabled(), default


def test_a_worker_dies_without_a_core_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    context = get_context("spawn")
    begin = (parent_of_workers(context), share_meters(context), share_io_limits(context, 1))
    with ProcessPoolExecutor(1, mp_context=context, initializer=begin_worker, initargs=begin) as pool:
        assert pool.submit(limits_of_process, None).result() == (0, False, True)
