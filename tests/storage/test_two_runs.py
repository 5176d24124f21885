"""Two runs at once in one process: each holds its own limits, and what one uses does not count for the other."""

import errno
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from faulty_store import FaultyStore
from manifests import FIXTURES

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.runs.run_settings import stores_of
from snaprebuild.errors import LimitReachedError
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.snapshots.verify import verify
from snaprebuild.storage.io_limits import policy
from snaprebuild.storage.io_limits.policy import NO_IO_LIMITS, IoLimits, ReadRate, current_limits, limited_io
from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.store import S3Settings
from snaprebuild.storage.store_path import store_of
from snaprebuild.storage.thread_pool import map_in_threads

RATES = {"kafka27-mixed": 50_000_000, "kafka4-mixed": 70_000_000}
CLOCK = Clock(1_795_219_200_000, 86_400_000)
SECONDS_MAX = 60


def at_once(*calls: Callable[[], object]) -> None:
    """Calls each function in a thread of its own."""
    errors: list[Exception] = []

    def called(call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=called, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()
    assert not errors


def test_each_reads_at_its_own_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is in the middle of a segment before the other one reads its next bytes."""
    together = threading.Barrier(len(RATES), timeout=SECONDS_MAX)
    has_begun = threading.local()
    taken: dict[int, int] = defaultdict(int)
    rates: dict[str, set[int | None]] = defaultdict(set)
    read_into = SegmentFile.read_into

    def take(rate: ReadRate, count: int) -> None:
        taken[rate.bytes_per_second] += count

    def recorded(segment: SegmentFile, position_bytes: int, buffer: memoryview) -> int:
        if not hasattr(has_begun, "verify"):
            has_begun.verify = True
            together.wait()
        rates[Path(segment.name).relative_to(FIXTURES).parts[0]].add(segment._limits.io.bytes_per_second)
        return read_into(segment, position_bytes, buffer)

    def verified(fixture: str) -> None:
        with limited_io(IoLimits(bytes_per_second=RATES[fixture])):
            verify(open_source([str(FIXTURES / fixture / "logs")]), Run(clock=CLOCK, jobs=1))

    monkeypatch.setattr(ReadRate, "take", take)
    monkeypatch.setattr(SegmentFile, "read_into", recorded)
    at_once(*(lambda each=fixture: verified(each) for fixture in RATES))  # type: ignore[misc]
    assert rates == {fixture: {rate} for fixture, rate in RATES.items()}
    for fixture, rate in RATES.items():
        assert taken[rate] >= sum(path.stat().st_size for path in (FIXTURES / fixture / "logs").glob("*/*.log"))
    assert current_limits().io == NO_IO_LIMITS


def test_a_run_takes_its_limits_to_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[int, int] = defaultdict(int)

    def take(rate: ReadRate, count: int) -> None:
        taken[rate.bytes_per_second] += count

    monkeypatch.setattr(ReadRate, "take", take)
    logs = FIXTURES / "kafka27-mixed" / "logs"
    with limited_io(IoLimits(bytes_per_second=50_000_000)):
        run = Run(clock=CLOCK, jobs=1)
    at_once(lambda: verify(open_source([str(logs)]), run))
    assert taken[50_000_000] >= sum(path.stat().st_size for path in logs.glob("*/*.log"))


def test_threads_of_the_program_work_for_the_run_that_asks() -> None:
    wanted = IoLimits(bytes_per_second=50_000_000)
    with limited_io(wanted):
        assert list(map_in_threads(lambda _: current_limits().io, range(8))) == [wanted] * 8
    assert list(map_in_threads(lambda _: current_limits().io, range(8))) == [NO_IO_LIMITS] * 8


def test_a_run_inside_of_another_one_shares_its_budget() -> None:
    with limited_io(IoLimits(bytes_per_second=50_000_000)) as outer:
        with limited_io(IoLimits(bytes_per_second=50_000_000, leaves_page_cache=True)) as inner:
            assert inner._rate is outer._rate
        with limited_io(IoLimits(bytes_per_second=10)) as slower:
            assert slower._rate is not outer._rate
        assert outer.io.bytes_per_second == 50_000_000


def test_a_run_that_cannot_begin_leaves_the_priority_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    before, priorities = policy.scheduling_class(), []

    def refused(_: int) -> None:
        raise OSError(errno.EPERM, "refused")

    monkeypatch.setattr(policy, "set_priority", priorities.append)
    monkeypatch.setattr(policy, "limit_memory", refused)
    with pytest.raises(OSError, match="refused"), limited_io(IoLimits(at_idle_priority=True, max_memory_bytes=1 << 30)):
        pass
    assert priorities == [policy.IDLE, before]
    assert current_limits().io == NO_IO_LIMITS


def test_each_sends_as_many_requests_as_it_may(faulty: FaultyStore) -> None:
    faulty.objects["bucket/small"] = b"data"
    sent: dict[int, int] = {}

    def read_on(most: int) -> None:
        store = store_of("s3://bucket", S3Settings(endpoint_url=faulty.endpoint, path_style=True, max_requests=most))
        for count in range(most + 2):
            try:
                assert store.read_small("s3://bucket/small", 10) == b"data"
            except LimitReachedError:
                sent[most] = count
                return

    at_once(*(lambda each=most: read_on(each) for most in (3, 3 + 4, 12)))  # type: ignore[misc]
    assert sent == {3: 3, 7: 7, 12: 12}
    assert len(faulty.seen) == 3 + 7 + 12


def test_all_parts_of_a_command_are_one_run() -> None:
    """Also where it opens a store several times: else each would send as many requests as the run may."""
    with click.Context(click.Command("verb")):
        first = stores_of(S3Options(max_requests=3))
        assert stores_of(S3Options(max_requests=3)) is first
    with click.Context(click.Command("verb")):
        assert stores_of(S3Options(max_requests=3)).run != first.run
